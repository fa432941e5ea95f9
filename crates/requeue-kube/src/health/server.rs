//! A small HTTP server for the probes of the kubelet.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::debug;

use super::{Health, HealthReport};

/// Connections that are served at once. Others wait in the listener's backlog.
const CONNECTIONS: usize = 16;
/// Limits a connection, from its acceptance to the last byte of the reply.
const WITHIN: Duration = Duration::from_secs(5);
/// Limits the head of a request. A probe sends about 150 bytes.
const HEAD: usize = 8 * 1024;

/// Answers probes until it is dropped. Returned by [`Health::serve`].
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct HealthServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HealthServer {
    pub(super) async fn start(health: Health, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(accept(listener, health)) })
    }

    /// Returns the bound address, with the chosen port if the given one was 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, health: Health) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let health = health.clone();
                tokio::spawn(async move {
                    if let Ok(Err(error)) = timeout(WITHIN, answer(stream, &health)).await
                    {
                        debug!(%error, "a probe failed");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely. Do not spin until some are free.
                debug!(%error, "cannot accept a probe");
                drop(slot);
                requeue::Timer::after(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, health: &Health) -> io::Result<()> {
    let reply = match read_head(&mut stream).await? {
        Some(head) => respond(&head, health),
        None => reply(431, "the head of the request is too long\n"),
    };
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads up to the empty line. Returns `None` if the head is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(512);
    let mut limited = stream.take(HEAD as u64);
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            let is_complete = limited.limit() > 0;
            return if is_complete {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(None)
            };
        }
    }
    Ok(Some(head))
}

fn respond(head: &[u8], health: &Health) -> String {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target) =
        (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    if method != b"GET" && method != b"HEAD" {
        return reply(405, "only GET and HEAD are supported\n");
    }
    let with_body = method == b"GET";
    match path {
        b"/healthz" | b"/livez" => report(|| health.live(), with_body),
        b"/readyz" => report(|| health.ready(), with_body),
        _ => reply(404, "expected /healthz or /readyz\n"),
    }
}

/// A check that panics has failed.
fn report(run: impl FnOnce() -> HealthReport, with_body: bool) -> String {
    let Ok(report) = catch_unwind(AssertUnwindSafe(run)) else {
        return reply(503, "a check panicked\n");
    };
    let text = if with_body { report.to_string() } else { String::new() };
    reply(if report.is_ok() { 200 } else { 503 }, &text)
}

fn reply(status: u16, body: &str) -> String {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(server: &HealthServer, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    async fn serve(health: &Health) -> HealthServer {
        health.serve("127.0.0.1:0".parse().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn probes_show_the_checks() {
        let health = Health::new();
        health.add_live("workers", || Ok(()));
        health.add_ready("caches", || Err("ConfigMap is not listed".to_owned()));
        let server = serve(&health).await;
        let live = ask(&server, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(live.starts_with("HTTP/1.1 200 OK\r\n"), "{live}");
        assert!(live.ends_with("\r\n\r\n[+]workers ok\nok\n"), "{live}");
        let ready = ask(&server, b"GET /readyz?verbose HTTP/1.1\r\n\r\n").await;
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(ready.contains("[-]caches failed: ConfigMap is not listed\n"), "{ready}");
    }

    #[tokio::test]
    async fn other_requests_are_refused() {
        let server = serve(&Health::new()).await;
        let cases: [(&[u8], &str); 3] = [
            (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            (b"POST /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
            (b"\r\n\r\n", "HTTP/1.1 405 "),
        ];
        for (request, status) in cases {
            let reply = ask(&server, request).await;
            assert!(reply.starts_with(status), "{reply}");
        }
        let long = [b"GET /healthz HTTP/1.1\r\nA: ".as_slice(), &[b'a'; HEAD]].concat();
        let reply = ask(&server, &long[..HEAD]).await;
        assert!(reply.starts_with("HTTP/1.1 431 "), "{reply}");
    }

    #[tokio::test]
    async fn a_check_that_panics_has_failed() {
        let health = Health::new();
        health.add_live("bad", || panic!("a bug in a check"));
        let server = serve(&health).await;
        for _ in 0..2 {
            let reply = ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").await;
            assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
        }
    }

    // A client that sends nothing must not keep its slot.
    #[tokio::test(start_paused = true)]
    async fn silent_connections_do_not_block_probes() {
        let server = serve(&Health::new()).await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(TcpStream::connect(server.local_addr()).await.unwrap());
        }
        let reply = ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
}
