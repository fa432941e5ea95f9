//! Measures speed.

use std::process::ExitCode;

fn main() -> ExitCode {
    requeue_peers::cli::main(&requeue_peers::system::all())
}
