//! The pictures in `docs/LIMITERS.md` are up to date.

#[path = "../../examples/limiter_pictures/chart.rs"]
mod chart;
#[path = "../../examples/limiter_pictures/scene.rs"]
mod scene;

#[test]
fn pictures_match_the_current_limiters() {
    let drawn = [("limiters", scene::one_burst()), ("hierarchy", scene::two_tenants())];
    for (name, chart) in drawn {
        let path = format!("{}/../../docs/img/{name}.svg", env!("CARGO_MANIFEST_DIR"));
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(
            chart.to_svg() == kept,
            "{name}.svg is stale; run scripts/limiter-pictures"
        );
    }
}
