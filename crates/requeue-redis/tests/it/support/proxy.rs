//! A TCP proxy that loses connections in ways that servers and networks do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy forwards for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    Everything,
    /// Replies are kept until everything is forwarded again.
    Requests,
    Nothing,
}

/// Forwards connections to a server on this machine.
pub(crate) struct Proxy {
    pub(crate) url: String,
    target: Arc<AtomicU16>,
    accepted: Arc<AtomicUsize>,
    /// For connections that are accepted from now on.
    next: watch::Sender<watch::Receiver<Forward>>,
    /// For connections since the last change of `next`.
    current: watch::Sender<Forward>,
    /// Keeps the senders of earlier connections, which stay as they are.
    earlier: Vec<watch::Sender<Forward>>,
}

impl Proxy {
    /// Starts a proxy for the server at this address.
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (current, forward) = watch::channel(Forward::Everything);
        let (next, upcoming) = watch::channel(forward);
        let proxy = Self {
            url: format!("redis://127.0.0.1:{own}"),
            target: Arc::new(AtomicU16::new(port_of(url))),
            accepted: Arc::default(),
            next,
            current,
            earlier: Vec::new(),
        };
        let (target, accepted) = (Arc::clone(&proxy.target), Arc::clone(&proxy.accepted));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let forward = upcoming.borrow().clone();
                tokio::spawn(serve(client, target.load(Ordering::SeqCst), forward));
            }
        });
        proxy
    }

    /// Changes what is forwarded for the connections so far. Later connections are forwarded.
    pub(crate) fn set_for_open_connections(&mut self, forward: Forward) {
        self.current.send_replace(forward);
        let (current, receiver) = watch::channel(Forward::Everything);
        self.earlier.push(std::mem::replace(&mut self.current, current));
        self.next.send_replace(receiver);
    }

    /// Changes what is forwarded for all connections, also later ones.
    pub(crate) fn set_for_all(&mut self, forward: Forward) {
        for sender in self.earlier.iter().chain([&self.current]) {
            sender.send_replace(forward);
        }
    }

    /// Connects later connections to another server.
    pub(crate) fn switch_to(&self, url: &str) {
        self.target.store(port_of(url), Ordering::SeqCst);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn serve(client: TcpStream, port: u16, forward: watch::Receiver<Forward>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let replies = copy(from_server, to_client, forward.clone(), |forward| {
        forward == Forward::Everything
    });
    tokio::spawn(replies);
    copy(from_client, to_server, forward, |forward| forward != Forward::Nothing).await;
}

/// Copies bytes while that is allowed. Keeps both sides open while it is not.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut forward: watch::Receiver<Forward>,
    is_allowed: impl Fn(Forward) -> bool,
) {
    let mut buffer = vec![0; 65536];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if forward.wait_for(|forward| is_allowed(*forward)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn port_of(url: &str) -> u16 {
    url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}
