//! Runs one hot path of the queue once, for `scripts/instructions` to count what it
//! executes.
//!
//! `instructions --list` prints each name with its number of operations;
//! `instructions NAME` runs that one, and without a name all are run.

#![expect(clippy::print_stdout, reason = "the list is for a script")]

mod work;

use std::hint::black_box;

use self::work::{ALL, Run};

/// All that is counted; the script knows it by this name.
#[inline(never)]
fn counted_run(run: &mut Run) {
    black_box(run)();
}

fn main() {
    // cargo adds `--bench`.
    let wanted = std::env::args().skip(1).find(|argument| argument != "--bench");
    for work in ALL {
        if wanted.as_deref() == Some("--list") {
            println!("{}\t{}", work.count, work.name);
        } else if wanted.as_deref().is_none_or(|wanted| wanted == work.name) {
            let mut run = (work.start)();
            // Grows what grows with use, so that the counted run finds it grown.
            run();
            counted_run(&mut run);
        }
    }
}
