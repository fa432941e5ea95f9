//! Draws how the limiters let the same events through, as SVG; see `scripts/pictures`.
//!
//! Nothing here is sketched by hand: each row is what the real limiter answered, on a
//! clock that the example moves.

#![expect(clippy::print_stdout, reason = "the pictures go to where the caller says")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use requeue::rate::{Hierarchy, Limit, Limiter, Pacer, Share, Window};
use requeue::testing::FakeClock;

/// Events a second that each limiter lets through in the long run.
const RATE: u32 = 4;
/// Burst of the buckets, and slack of the pacer that has some.
const BURST: u32 = 6;
/// How long a picture is.
const SPAN: Duration = Duration::from_secs(8);

fn main() {
    let which = std::env::args().nth(1).unwrap_or_default();
    match which.as_str() {
        "limiters" => print!("{}", draw(&limiters())),
        "hierarchy" => print!("{}", draw(&hierarchy())),
        _ => println!("usage: limiters limiters|hierarchy"),
    }
}

/// One line of a picture: what it shows, and when events happened.
struct Row {
    label: &'static str,
    detail: &'static str,
    times: Vec<Duration>,
}

/// Twelve events at the start and twelve five seconds later, through each limiter.
fn limiters() -> Vec<Row> {
    let arrivals = bursts(&[(0, 12), (5, 12)]);
    let limit = Limit::per_second(f64::from(RATE));
    let row = |label, detail, times| Row { label, detail, times };
    vec![
        row("events", "12 at once, twice", arrivals.clone()),
        row("Limiter", "4 a second, burst 6", {
            let clock = FakeClock::new();
            let limiter = Limiter::with_clock(limit, BURST, clock.clone());
            let ask = || allow(limiter.allow(), || limiter.peek().unwrap_or(SPAN));
            pass(&clock, &arrivals, ask)
        }),
        row("Pacer", "4 a second, slack 6", pace(&arrivals, BURST)),
        row("Pacer", "4 a second, no slack", pace(&arrivals, 0)),
        row("Window", "4 in any second", {
            let clock = FakeClock::new();
            let second = Duration::from_secs(1);
            let window = Window::with_clock(RATE, second, clock.clone());
            let ask = || allow(window.allow(), || window.peek().unwrap_or(SPAN));
            pass(&clock, &arrivals, ask)
        }),
    ]
}

fn pace(arrivals: &[Duration], slack: u32) -> Vec<Duration> {
    let clock = FakeClock::new();
    let pacer = Pacer::builder(RATE).slack(slack).clock(clock.clone()).build();
    pass(&clock, arrivals, || pacer.try_take().map(drop))
}

/// Two tenants with half of the rate each; the second comes when the first is busy.
fn hierarchy() -> Vec<Row> {
    let (first, second) = (bursts(&[(0, 24)]), bursts(&[(3, 8)]));
    let clock = FakeClock::new();
    let per_second = |events: u32| Limit::per_second(f64::from(events));
    let all = Hierarchy::with_clock(per_second(RATE), BURST, clock.clone());
    let half = || Share::new(per_second(RATE / 2), 2);
    let tenants = [half(), half()].map(|share| all.child(share).expect("halves fit"));
    let mut lines = [Line::new(&first), Line::new(&second)];
    let began = clock.now();
    while clock.now() - began < SPAN {
        let waits = [0, 1].map(|tenant| {
            let limiter = &tenants[tenant];
            lines[tenant].serve(&clock, began, || {
                allow(limiter.allow(), || limiter.peek().unwrap_or(SPAN))
            })
        });
        clock.advance(waits[0].min(waits[1]));
    }
    let [busy, late] = lines.map(|line| line.passed);
    let row = |label, detail, times| Row { label, detail, times };
    vec![
        row("tenant 1 asks", "24 at once", first),
        row("… is let through", "2 a second, 4 if alone", busy),
        row("tenant 2 asks", "8 at once, later", second),
        row("… is let through", "2 a second, 4 if alone", late),
    ]
}

/// Events at whole seconds: when, and how many.
fn bursts(bursts: &[(u64, usize)]) -> Vec<Duration> {
    let times = |&(at, count)| std::iter::repeat_n(Duration::from_secs(at), count);
    bursts.iter().flat_map(times).collect()
}

/// Whether an event may happen, or how long until it may.
fn allow(allowed: bool, wait: impl Fn() -> Duration) -> Result<(), Duration> {
    if allowed { Ok(()) } else { Err(wait()) }
}

/// Sends events through a limiter in the order of their arrival: when each passed.
fn pass(
    clock: &FakeClock,
    arrivals: &[Duration],
    mut ask: impl FnMut() -> Result<(), Duration>,
) -> Vec<Duration> {
    let began = clock.now();
    let mut line = Line::new(arrivals);
    while clock.now() - began < SPAN {
        let wait = line.serve(clock, began, &mut ask);
        clock.advance(wait);
    }
    line.passed
}

/// Events that stand in line for a limiter.
struct Line {
    waiting: VecDeque<Duration>,
    passed: Vec<Duration>,
}

impl Line {
    fn new(arrivals: &[Duration]) -> Self {
        Self { waiting: arrivals.iter().copied().collect(), passed: Vec::new() }
    }

    /// Lets through who may pass: how long until another might.
    fn serve(
        &mut self,
        clock: &FakeClock,
        began: Instant,
        mut ask: impl FnMut() -> Result<(), Duration>,
    ) -> Duration {
        let now = clock.now() - began;
        while let Some(&arrival) = self.waiting.front() {
            if arrival > now {
                return arrival.saturating_sub(now);
            }
            if let Err(wait) = ask() {
                return wait.max(Duration::from_nanos(1));
            }
            self.waiting.pop_front();
            self.passed.push(now);
        }
        SPAN
    }
}

/// Where second 0 is, how wide a second is, and the radius of a dot; in pixels.
const LEFT: f64 = 210.0;
const SECOND: f64 = 60.0;
const DOT: f64 = 3.5;
/// Room for the two lines of text of a row.
const TEXT: f64 = 44.0;

fn draw(rows: &[Row]) -> String {
    let (mut base, mut lines) = (0.0, Vec::new());
    for row in rows {
        base += row.height();
        lines.extend(row.draw(base));
    }
    let (width, height) = (LEFT + SECOND * SPAN.as_secs_f64() + 20.0, base + 30.0);
    let size = format!("width=\"{width:.0}\" height=\"{height:.0}\"");
    let font = "font-family=\"sans-serif\" font-size=\"13\"";
    let mut picture = vec![
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} {font}>"),
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>".to_owned(),
    ];
    picture.extend(grid(height));
    picture.extend(lines);
    picture.push("</svg>\n".to_owned());
    picture.join("\n")
}

/// A line for each second.
fn grid(height: f64) -> impl Iterator<Item = String> {
    let (bottom, text) = (height - 22.0, height - 6.0);
    (0..=SPAN.as_secs()).map(move |second| {
        let x = place(Duration::from_secs(second));
        format!(
            "<line x1=\"{x:.1}\" y1=\"6\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{text:.1}\" fill=\"#666\" text-anchor=\"middle\">{second} s</text>"
        )
    })
}

impl Row {
    /// When each event happened, and how many before it did at the same time.
    fn piles(&self) -> impl Iterator<Item = (Duration, usize)> {
        self.times.iter().enumerate().map(|(index, time)| {
            let below = self.times[..index].iter().filter(|other| *other == time).count();
            (*time, below)
        })
    }

    fn height(&self) -> f64 {
        let highest = self.piles().map(|(_, below)| below).max().unwrap_or(0);
        (lift(highest) + TEXT / 2.0).max(TEXT)
    }

    fn draw(&self, base: f64) -> impl Iterator<Item = String> {
        let (upper, lower) = (base - 16.0, base - 2.0);
        let Self { label, detail, .. } = self;
        let text = format!(
            "<text x=\"10\" y=\"{upper:.1}\" font-weight=\"bold\">{label}</text>\n\
             <text x=\"10\" y=\"{lower:.1}\" fill=\"#666\">{detail}</text>"
        );
        let dots = self.piles().map(move |(time, below)| {
            let (x, y) = (place(time), base - DOT - lift(below));
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT}\" fill=\"#2563a8\"/>")
        });
        std::iter::once(text).chain(dots)
    }
}

/// Where a moment is, from the left.
fn place(time: Duration) -> f64 {
    LEFT + SECOND * time.as_secs_f64()
}

/// How high a dot lies that has so many below it.
fn lift(below: usize) -> f64 {
    f64::from(u32::try_from(below).unwrap_or(u32::MAX)) * 2.0 * DOT * 1.15
}
