//! The comparison with Go as a picture: one line per scenario, one dot per system, on a
//! logarithmic axis.

use std::fmt::Write;

use crate::catalog::{GROUPS, Group, is_ours, name_of};
use crate::format::ratio;
use crate::results::{Results, Row};

const LEFT: f64 = 430.0;
const WIDTH: f64 = 560.0;
const RIGHT: f64 = 40.0;
const LINE: f64 = 21.0;
const TOP: f64 = 108.0;
const BOTTOM: f64 = 46.0;
/// The ends of the axis. Dots beyond them are drawn at the end.
const ENDS: (f64, f64) = (0.1, 30.0);
const TICKS: [f64; 6] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The systems in the legend, with their colours. Channels are left out: they do not
/// deduplicate.
const LEGEND: [(&str, &str); 6] = [
    ("requeue", "#d1242f"),
    ("requeue, next()", "#8250df"),
    ("requeue, batches of 64", "#bf8700"),
    ("requeue, async", "#bf3989"),
    ("other Rust crates", "#1a7f37"),
    ("controller-runtime (Go)", "#0969da"),
];

fn colour(system: &str) -> Option<&'static str> {
    let entry = match system {
        "requeue" => 0,
        "requeue-next" => 1,
        "requeue-batch64" => 2,
        "requeue-async" => 3,
        "kube-scheduler" | "tokio-delay-queue" | "governor" | "governor-std"
        | "ratelimit" | "leaky-bucket" => 4,
        "go-controller-runtime" => 5,
        _ => return None,
    };
    Some(LEGEND[entry].1)
}

pub fn render(results: &Results) -> String {
    let mut body = String::new();
    let mut y = TOP;
    for group in GROUPS.iter().filter(|group| group.title != "Primitives") {
        y = draw_group(&mut body, results, group, y);
    }
    let (width, height) = (LEFT + WIDTH + RIGHT, y + BOTTOM);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}{}{body}</svg>\n",
        header(),
        axis(y)
    )
}

fn header() -> String {
    let mut svg = format!(
        "<text x=\"16\" y=\"28\" font-size=\"19\" font-weight=\"bold\">\
         requeue compared with its Go originals</text>\n{}",
        text(
            16.0,
            50.0,
            "start",
            "How many times as fast as client-go, x/time/rate and Uber's ratelimit \
             (memory: how many times smaller). Lines: lowest to highest run."
        )
    );
    let mut x = 20.0;
    for (name, colour) in LEGEND {
        svg.push_str(&circle(x, 72.0, colour, name));
        svg.push_str(&text(x + 10.0, 76.5, "start", name));
        x += 36.0 + 6.9 * name.len() as f64;
    }
    svg
}

fn axis(bottom: f64) -> String {
    let mut svg = String::new();
    for tick in TICKS {
        let x = across(tick);
        let (stroke, width) = if tick == 1.0 { ("#555", 2) } else { ("#ddd", 1) };
        writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" \
             stroke=\"{stroke}\" stroke-width=\"{width}\"/>"
        )
        .expect("writing to a string cannot fail");
        let label =
            if tick == 1.0 { "same as Go".to_owned() } else { format!("{tick}×") };
        svg.push_str(&text(x, TOP - 6.0, "middle", &label));
        svg.push_str(&text(x, bottom + 16.0, "middle", &label));
    }
    let middle = LEFT + WIDTH / 2.0;
    svg.push_str(&text(middle, bottom + 36.0, "middle", "further right is better →"));
    svg
}

/// Draws the scenarios of a group that have a Go original. Returns the new bottom.
fn draw_group(svg: &mut String, results: &Results, group: &Group, top: f64) -> f64 {
    let has_go = |(id, _): &&(&str, &str)| {
        let mut rows = results.of_scenario(id);
        results.original(id).is_some() && rows.any(|row| is_ours(&row.system))
    };
    let scenarios: Vec<_> = group.scenarios.iter().filter(has_go).collect();
    if scenarios.is_empty() {
        return top;
    }
    let mut y = top + LINE;
    writeln!(
        svg,
        "<text x=\"16\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
        y + 1.0,
        group.title
    )
    .expect("writing to a string cannot fail");
    for (id, title) in scenarios {
        y += LINE;
        svg.push_str(&text(LEFT - 14.0, y, "end", title));
        // Ours last, on top of the others.
        let (ours, others): (Vec<_>, Vec<_>) =
            results.of_scenario(id).partition(|row| is_ours(&row.system));
        for row in others.into_iter().chain(ours) {
            svg.push_str(&dot(results, row, y - 4.5));
        }
    }
    y + LINE / 2.0
}

/// Draws the median as a dot and the range as a line.
fn dot(results: &Results, row: &Row, y: f64) -> String {
    let Some((spread, colour)) = results.times_go(row).zip(colour(&row.system)) else {
        return String::new();
    };
    let title = format!("{}: {} times Go", name_of(&row.system), ratio(spread));
    let (low, high) = (across(spread.low), across(spread.high));
    format!(
        "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
         stroke=\"{colour}\" stroke-width=\"2\" stroke-opacity=\"0.5\"/>\n{}",
        circle(across(spread.median), y, colour, &title)
    )
}

fn across(ratio: f64) -> f64 {
    let (low, high) = ENDS;
    LEFT + WIDTH * (ratio.clamp(low, high) / low).ln() / (high / low).ln()
}

fn circle(x: f64, y: f64, colour: &str, title: &str) -> String {
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\" \
         fill-opacity=\"0.85\"><title>{title}</title></circle>\n"
    )
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}
