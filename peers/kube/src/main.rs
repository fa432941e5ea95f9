//! Benchmarks of controllers: kube-runtime and requeue-kube in this program, controller-runtime
//! in the program of the folder `go`. `scripts/bench-kube` runs it.
//!
//! ```text
//! kube-peers run ENGINE SCENARIO NAMESPACE COUNT    measures; prints one JSON object
//! kube-peers bench --go PROGRAM --runs N            measures everything; prints tables
//! ```

mod bench;
mod document;
mod driver;
mod engine;

use std::env;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["run", engine, scenario, namespace, count] => {
            let count = count.parse().expect("COUNT is a number");
            let values = bench::run(engine, scenario, namespace, count).await;
            println!("{}", serde_json::to_string(&values).expect("numbers"));
        }
        ["bench", "--go", program, "--runs", runs] => {
            driver::run(program, runs.parse().expect("N is a number")).await;
        }
        _ => {
            eprintln!("usage: kube-peers run ENGINE SCENARIO NAMESPACE COUNT");
            eprintln!("       kube-peers bench --go PROGRAM --runs N");
            std::process::exit(2);
        }
    }
}
