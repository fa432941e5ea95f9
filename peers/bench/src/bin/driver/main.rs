//! Runs every system in every scenario, in turns, and says where requeue stands.
//!
//!     driver --go <program> --out <dir> [--quick] [--rounds <n>] [--only <prefix>]
//!
//! Writes `peers.json`, `peers.md` and `peers.svg`, and prints table and targets.

mod options;
mod plot;
mod result;
mod run;
mod table;
mod targets;

use std::error::Error;
use std::fs;

use options::Options;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args()?;
    let results = run::all(&options)?;
    let table = table::markdown(&results);
    let report = |name: &str, text: &str| fs::write(options.out.join(name), text);
    report("peers.json", &serde_json::to_string_pretty(&results)?)?;
    report("peers.md", &table)?;
    report("peers.svg", &plot::svg(&results))?;
    println!("{table}\n{}", targets::report(&results));
    Ok(())
}
