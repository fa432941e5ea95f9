//! The ratios to Go as a picture: one line for each scenario, one dot for each system,
//! on a logarithmic axis.

use std::fmt::Write;

use crate::result::Measured;
use crate::table::short;

const LEFT: f64 = 170.0;
const WIDTH: f64 = 620.0;
const LINE: f64 = 20.0;
const TOP: f64 = 60.0;
/// The ends of the axis: a hundredth of Go's speed, and a hundred times.
const ENDS: (f64, f64) = (0.01, 100.0);

pub fn svg(results: &[Measured]) -> String {
    let mut scenarios: Vec<&str> =
        results.iter().map(|row| row.scenario.as_str()).collect();
    scenarios.dedup();
    let height = TOP + LINE * scenarios.len() as f64 + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        LEFT + WIDTH + 60.0
    );
    svg.push_str(&legend());
    svg.push_str(&axis(height - 20.0));
    for (number, scenario) in scenarios.iter().enumerate() {
        let y = TOP + LINE * (number as f64 + 0.7);
        svg.push_str(&text(LEFT - 10.0, y + 4.0, "end", scenario));
        let rows = results.iter().filter(|row| row.scenario == *scenario);
        rows.for_each(|row| svg.push_str(&dot(row, y)));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Whose system it is, and the colour of its dots.
fn family(system: &str) -> (&'static str, &'static str) {
    match system {
        s if s.starts_with("requeue") => ("requeue", "#d1242f"),
        s if s.starts_with("go-") => ("Go", "#0969da"),
        "kanal" | "flume" | "crossbeam" => ("channels, no dedup", "#bbbbbb"),
        _ => ("Rust peers", "#1a7f37"),
    }
}

fn legend() -> String {
    let mut x = LEFT;
    let mut svg = text(LEFT - 10.0, 20.0, "end", "times better than Go");
    for system in ["requeue", "go-", "governor", "kanal"] {
        let (name, colour) = family(system);
        svg.push_str(&circle(x, 16.0, 5.0, colour, name));
        svg.push_str(&text(x + 10.0, 20.0, "start", name));
        x += 30.0 + 7.0 * name.len() as f64;
    }
    svg
}

fn axis(bottom: f64) -> String {
    let mut svg = String::new();
    for tick in [0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0] {
        let (x, stroke) = (across(tick), if tick == 1.0 { "#555" } else { "#ddd" });
        writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>"
        )
        .expect("a string takes anything");
        svg.push_str(&text(x, TOP - 6.0, "middle", &format!("{tick}×")));
    }
    svg
}

fn dot(row: &Measured, y: f64) -> String {
    let Some(ratio) = row.ratio_to_go else { return String::new() };
    let (name, colour) = family(&row.system);
    let radius = if name == "requeue" { 5.0 } else { 4.0 };
    let title = format!("{} {}: {}×", row.scenario, row.system, short(ratio));
    circle(across(ratio), y, radius, colour, &title)
}

fn across(ratio: f64) -> f64 {
    let (low, high) = ENDS;
    LEFT + WIDTH * (ratio.clamp(low, high) / low).ln() / (high / low).ln()
}

fn circle(x: f64, y: f64, radius: f64, colour: &str, title: &str) -> String {
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\" \
         fill-opacity=\"0.8\"><title>{title}</title></circle>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}
