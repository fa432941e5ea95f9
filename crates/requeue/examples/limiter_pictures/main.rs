//! Draws the pictures of `docs/LIMITERS.md`: the same bursts through each limiter.
//!
//! Runs the real limiters on a fake clock and writes SVG files into the given directory.
//! `scripts/limiter-pictures` calls it.

mod chart;
mod scene;

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dir = PathBuf::from(env::args().nth(1).unwrap_or_else(|| "docs/img".to_owned()));
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("limiters.svg"), scene::one_burst().to_svg())?;
    fs::write(dir.join("hierarchy.svg"), scene::two_tenants().to_svg())
}
