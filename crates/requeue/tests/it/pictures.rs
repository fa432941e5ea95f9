//! The pictures of `docs/LIMITERS.md` show the limiters as they are.

#[path = "../../examples/limiter_pictures/chart.rs"]
mod chart;
#[path = "../../examples/limiter_pictures/scene.rs"]
mod scene;

#[test]
fn the_pictures_are_what_would_be_drawn() {
    let drawn = [("limiters", scene::one_burst()), ("hierarchy", scene::two_tenants())];
    for (name, chart) in drawn {
        let path = format!("{}/../../docs/img/{name}.svg", env!("CARGO_MANIFEST_DIR"));
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(chart.to_svg() == kept, "draw {name}.svg anew: scripts/limiter-pictures");
    }
}
