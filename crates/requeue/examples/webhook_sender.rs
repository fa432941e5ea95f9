//! Sends webhooks for changed orders, under a rate limit.
//!
//! `cargo run -p requeue --features tokio --example webhook_sender` starts a local server,
//! sends webhooks to it, and stops when all are sent or at Ctrl-C.
//!
//! Each order is a key. An order that changes again before it is sent is sent once. All
//! workers together send at most twenty requests per second, after a burst of five. A busy
//! server chooses when it is asked again, and a webhook to a missing address is given up.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use requeue::pool::{Failed, Pool};
use requeue::rate::{Limit, Limiter};
use requeue::retry::Exponential;
use requeue::{Clock, Queue, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (server, began) = (Server::start().await?, SystemClock.now());
    let backoff = Exponential::new(Duration::from_millis(100), Duration::from_secs(60));
    let queue = Queue::<String>::builder().name("webhooks").retry(backoff).build();
    let limiter = Arc::new(Limiter::new(Limit::per_second(20.0), 5));
    let address = server.address;

    let pool = Pool::new(queue.clone())
        .workers(4)
        .timeout(Duration::from_secs(10))
        .max_retries(8)
        .on_failure(move |order, failure| print_line(began, order, failure))
        .on_dead(move |order, _| print_line(began, order, "is dead"))
        .spawn_tasks(move |run| {
            let limiter = Arc::clone(&limiter);
            async move {
                limiter.wait().await?;
                send(address, run.key()).await?;
                print_line(began, run.key(), "sent");
                Ok::<_, Failed>(())
            }
        })?;

    for _ in 0..3 {
        queue.add_all((1..=12).map(|number| format!("order-{number}")))?;
    }
    println!("36 changes, {} orders to send", queue.len());
    queue.add("busy-1".to_owned())?; // the server is busy at first
    queue.add("gone-1".to_owned())?; // the server does not know this one

    tokio::select! {
        () = queue.wait_idle() => {} // retries included
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    let stopped = pool.stop(Duration::from_secs(5)).await;
    println!("{} requests; orders left: {:?}", server.requests(), stopped.left);
    Ok(())
}

/// Posts an order, and decides what the response means for it.
async fn send(address: SocketAddr, order: &str) -> Result<(), Failed> {
    let body = format!("{{\"order\":\"{order}\"}}");
    let request = format!(
        "POST /{order} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    match response.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some("404" | "410") => Err(Failed::give_up("unknown address")),
        Some("503") => Err(Failed::retry_after("busy", Duration::from_millis(200))),
        Some(status) => Err(format!("status {status}").into()),
        None => Err("no response".into()),
    }
}

fn print_line(began: Instant, order: &str, text: impl std::fmt::Display) {
    let ms = (SystemClock.now() - began).as_millis();
    println!("{ms:>5} ms {order:<10} {text}");
}

/// A server that is busy for some orders and does not know others.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<HashMap<String, u32>>>,
}

impl Server {
    async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let requests = Arc::<Mutex<HashMap<String, u32>>>::default();
        let server =
            Self { address: listener.local_addr()?, requests: Arc::clone(&requests) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond(stream, Arc::clone(&requests)));
            }
        });
        Ok(server)
    }

    fn requests(&self) -> u32 {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

async fn respond(
    mut stream: TcpStream,
    requests: Arc<Mutex<HashMap<String, u32>>>,
) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let before = {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.entry(path.clone()).or_default();
        *count += 1;
        *count - 1
    };
    let status = match path.as_str() {
        path if path.starts_with("/gone") => "410 Gone",
        path if path.starts_with("/busy") && before < 3 => "503 Service Unavailable",
        _ => "200 OK",
    };
    let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(response.as_bytes()).await
}
