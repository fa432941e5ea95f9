//! Tells subscribers what changed, under a rate limit.
//!
//! Run it with `cargo run -p requeue --features tokio --example webhook_sender`. It starts a
//! server of its own on the loopback interface, sends to it, and ends.
//!
//! A key is an order whose subscribers are to be told. An order that changes again before
//! it was sent is sent once, as it is by then. All workers together send at most twenty a
//! second, after a burst of five; a server that is busy is asked again later, and an
//! address that does not exist is given up.

#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use requeue::pool::{Outcome, Pool};
use requeue::rate::{Limit, Limiter};
use requeue::retry::Exponential;
use requeue::{Clock, Queue, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> io::Result<()> {
    let (server, began) = (Server::start().await?, SystemClock.now());
    let backoff = Exponential::new(Duration::from_millis(100), Duration::from_secs(60));
    let queue = Queue::<String>::builder().name("webhooks").retry(backoff).build();
    let limiter = Arc::new(Limiter::new(Limit::per_second(20.0), 5));
    let address = server.address;

    let pool = Pool::new(queue.clone())
        .workers(4)
        .timeout(Duration::from_secs(10))
        .max_retries(8)
        .on_failure(move |order, failure| line(began, order, &failure.to_string()))
        .on_dead(|order, _| println!("         {order:<10} is dead"))
        .run_async(move |order: String| {
            let limiter = Arc::clone(&limiter);
            async move {
                limiter.wait().await.map_err(io::Error::other)?;
                let outcome = send(address, &order).await?;
                line(began, &order, &format!("{outcome:?}"));
                Ok::<_, io::Error>(outcome)
            }
        })?;

    for round in 0..3 {
        for number in 1..=12 {
            queue.add(format!("order-{number}")).unwrap();
        }
        println!("round {round}: {} orders wait", queue.len());
    }
    queue.add("busy-1".to_owned()).unwrap(); // the server is busy at first
    queue.add("gone-1".to_owned()).unwrap(); // nobody is at that address

    queue.wait_idle().await; // retries included
    let stopped = pool.stop(Duration::from_secs(5)).await;
    println!(
        "38 changes made {} requests; left over: {:?}",
        server.requests(),
        stopped.left
    );
    Ok(())
}

/// Posts an order. What the server's answer means for the order is decided here.
async fn send(address: SocketAddr, order: &str) -> io::Result<Outcome> {
    let body = format!("{{\"order\":\"{order}\"}}");
    let request = format!(
        "POST /{order} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.split(' ').nth(1) {
        Some("200") => Ok(Outcome::Done),
        Some("404" | "410") => Ok(Outcome::GiveUp),
        Some(status) => Err(io::Error::other(format!("status {status}"))),
        None => Err(io::Error::other("no answer")),
    }
}

fn line(began: Instant, order: &str, text: &str) {
    let ms = (SystemClock.now() - began).as_millis();
    println!("{ms:>5} ms {order:<10} {text}");
}

/// A server that is busy for some, and does not know others.
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
                tokio::spawn(answer(stream, Arc::clone(&requests)));
            }
        });
        Ok(server)
    }

    fn requests(&self) -> u32 {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

async fn answer(
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
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}
