//! Measures requeue next to its Go originals and comparable Rust crates.
//!
//! Starts one process per scenario, system and round, writes the results to `peers.json`,
//! and renders them as Markdown (`peers.md`) and as a picture (`peers.svg`).
//! `scripts/bench-peers` builds the programs and passes the paths.

mod aims;
mod catalog;
mod format;
mod machine;
mod options;
mod page;
mod plot;
mod results;
mod run;

use std::error::Error;
use std::fs;
use std::path::Path;

use options::Options;
use results::Results;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args()?;
    let results = match &options.from {
        Some(path) => serde_json::from_str(&fs::read_to_string(path)?)?,
        None => measure(&options)?,
    };
    let (page, picture) = (page::render(&results), plot::render(&results));
    fs::write(options.out.join("peers.md"), &page)?;
    fs::write(options.out.join("peers.svg"), &picture)?;
    println!("{page}");
    if let Some(docs) = &options.docs {
        update_docs(docs, &page, &picture)?;
    }
    Ok(())
}

fn measure(options: &Options) -> Result<Results, Box<dyn Error>> {
    let results = run::all(options)?;
    let text = serde_json::to_string_pretty(&results)?;
    fs::write(options.out.join("peers.json"), text)?;
    Ok(results)
}

const BEGIN: &str = "<!-- begin: written by scripts/bench-peers --docs -->\n";
const END: &str = "<!-- end -->\n";

/// Replaces the marked section of `PERFORMANCE.md`, and the picture.
fn update_docs(docs: &Path, page: &str, picture: &str) -> Result<(), Box<dyn Error>> {
    let path = docs.join("PERFORMANCE.md");
    let old = fs::read_to_string(&path)?;
    let (before, rest) = old.split_once(BEGIN).ok_or("the page has no begin mark")?;
    let (_, after) = rest.split_once(END).ok_or("the page has no end mark")?;
    fs::write(&path, format!("{before}{BEGIN}\n{page}\n{END}{after}"))?;
    fs::write(docs.join("img/peers.svg"), picture)?;
    Ok(())
}
