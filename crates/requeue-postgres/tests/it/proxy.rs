//! A proxy in front of the server that can stop forwarding without closing connections.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a server.
pub(crate) struct Proxy {
    /// The address of the database through the proxy.
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    server: String,
    accepted: AtomicUsize,
    silent: AtomicBool,
    hang: watch::Sender<()>,
}

impl Proxy {
    pub(crate) async fn start(url: &str) -> Self {
        let (user, rest) = url.split_once('@').expect("the address has a password");
        let (server, database) = rest.split_once('/').expect("it has a database");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let place = listener.local_addr().expect("it has a port");
        let state = Arc::new(State {
            server: server.to_owned(),
            accepted: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            hang: watch::Sender::new(()),
        });
        tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { url: format!("{user}@{place}/{database}"), state }
    }

    /// Stops forwarding on all connections so far. They stay open.
    pub(crate) fn hang(&self) {
        self.state.hang.send_replace(());
    }

    /// Accepts new connections from now on, but does not forward them.
    pub(crate) fn silence(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    /// Returns how many connections were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        let hang = state.hang.subscribe();
        state.accepted.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(forward(client, Arc::clone(&state), hang));
    }
}

async fn forward(
    mut client: TcpStream,
    state: Arc<State>,
    mut hang: watch::Receiver<()>,
) {
    if state.silent.load(Ordering::SeqCst) {
        pending::<()>().await;
    }
    let mut server = TcpStream::connect(&state.server).await.expect("the server listens");
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = hang.changed() => pending().await,
    }
}
