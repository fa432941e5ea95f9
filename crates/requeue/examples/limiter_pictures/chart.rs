//! A chart of events over time, as SVG: a dot per event, stacked if they are simultaneous.

use super::scene::{END, Millis};

/// Rows of events with one time axis.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) settings: &'static str,
    pub(crate) colour: Colour,
    /// When the events happen, in order.
    pub(crate) at: Vec<Millis>,
}

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Grey,
    Blue,
    Orange,
    Red,
    Green,
}

impl Colour {
    fn hex(self) -> &'static str {
        match self {
            Self::Grey => "#767676",
            Self::Blue => "#0072b2",
            Self::Orange => "#e69f00",
            Self::Red => "#d55e00",
            Self::Green => "#009e73",
        }
    }
}

// All in pixels.
const WIDTH: u32 = 880;
const LEFT: u32 = 170;
const RIGHT: u32 = 24;
const TOP: u32 = 52;
const AXIS: u32 = 44;
const RADIUS: f64 = 2.6;
const DOT: u32 = 6;
/// Above and below the dots of a row.
const PADDING: u32 = 9;
/// Leaves room for two lines of text next to the dots.
const LEAST_DOTS: u32 = 5;

impl Chart {
    pub(crate) fn to_svg(&self) -> String {
        let bottom = TOP + self.rows.iter().map(Row::height).sum::<u32>();
        let mut svg = open(bottom + AXIS, self.title);
        let mut y = TOP;
        for (i, row) in self.rows.iter().enumerate() {
            stripe(&mut svg, y, row.height(), i % 2 == 0);
            y += row.height();
        }
        grid(&mut svg, bottom);
        let mut y = TOP;
        for row in &self.rows {
            y += row.height();
            row.draw(&mut svg, y);
        }
        line(&mut svg, "</svg>");
        svg
    }
}

impl Row {
    fn height(&self) -> u32 {
        self.tallest().max(LEAST_DOTS) * DOT + 2 * PADDING
    }

    /// Returns the largest number of simultaneous events.
    fn tallest(&self) -> u32 {
        self.stacks().map(|(_, n)| n).max().unwrap_or(0)
    }

    /// Returns the times of events, and how many happen at each.
    fn stacks(&self) -> impl Iterator<Item = (Millis, u32)> {
        self.at.chunk_by(|a, b| a == b).map(|stack| {
            let events = u32::try_from(stack.len()).unwrap_or(u32::MAX);
            (stack[0], events)
        })
    }

    /// Draws the row above `bottom`.
    fn draw(&self, svg: &mut String, bottom: u32) {
        let middle = bottom - self.height() / 2;
        text(svg, "name", (20.0, middle - 3), self.name);
        text(svg, "settings", (20.0, middle + 14), self.settings);
        let colour = self.colour.hex();
        line(svg, &format!(r#"<g fill="{colour}">"#));
        for (at, events) in self.stacks() {
            for i in 0..events {
                let (x, y) = (x(at), bottom - PADDING - i * DOT - DOT / 2);
                line(svg, &format!(r#"<circle cx="{x:.1}" cy="{y}" r="{RADIUS}"/>"#));
            }
        }
        line(svg, "</g>");
        for (at, events) in self.stacks().filter(|&(_, events)| events > 2) {
            let (x, y) = (x(at) + 7.0, bottom - PADDING - events * DOT + DOT);
            text(svg, "count", (x, y), &events.to_string());
        }
    }
}

fn x(at: Millis) -> f64 {
    let width = f64::from(WIDTH - LEFT - RIGHT);
    f64::from(LEFT) + f64::from(at) / f64::from(END) * width
}

fn open(height: u32, title: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{title}">
<style>
text {{ font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }}
.title {{ font-size: 17px; font-weight: 600; }}
.name {{ font-size: 14px; font-weight: 600; }}
.settings, .axis, .count {{ font-size: 12px; fill: #59636e; }}
.axis {{ text-anchor: middle; }}
</style>
<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>
<text class="title" x="20" y="32">{title}</text>
"##
    )
}

fn stripe(svg: &mut String, y: u32, height: u32, shaded: bool) {
    let fill = if shaded { "#f6f8fa" } else { "#ffffff" };
    let stripe = format!(
        r#"<rect x="0" y="{y}" width="{WIDTH}" height="{height}" fill="{fill}"/>"#
    );
    line(svg, &stripe);
}

fn grid(svg: &mut String, bottom: u32) {
    for at in (0..=END).step_by(1000) {
        let x = x(at);
        let rule = format!(
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom}" stroke="#d1d9e0"/>"##
        );
        line(svg, &rule);
        text(svg, "axis", (x, bottom + 20), &format!("{} s", at / 1000));
    }
}

fn text(svg: &mut String, class: &str, (x, y): (f64, u32), text: &str) {
    line(svg, &format!(r#"<text class="{class}" x="{x:.1}" y="{y}">{text}</text>"#));
}

fn line(svg: &mut String, line: &str) {
    svg.push_str(line);
    svg.push('\n');
}
