//! A TCP proxy that can be cut.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::harness::with_timeout;

/// Forwards connections to a server until it is cut.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
}

#[derive(Default)]
struct ProxyState {
    is_cut: bool,
    refused: usize,
    open: Vec<TcpStream>,
}

impl Proxy {
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<ProxyState>>::default();
        let (shared, server) = (Arc::clone(&state), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = shared.lock().unwrap();
                if state.is_cut {
                    state.refused += 1;
                } else {
                    let server = TcpStream::connect(&server).unwrap();
                    forward(&client, &server);
                    forward(&server, &client);
                    state.open.extend([client, server]);
                }
            }
        });
        Self { address, state }
    }

    /// Closes all connections and refuses new ones.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for stream in state.open.drain(..) {
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// Waits until `count` connections were refused.
    pub(crate) fn until_refused(&self, count: usize) {
        let state = Arc::clone(&self.state);
        with_timeout("waiting for connections", move || {
            while state.lock().unwrap().refused < count {
                thread::yield_now();
            }
        });
    }

    /// Accepts connections again.
    pub(crate) fn restore(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

fn forward(from: &TcpStream, to: &TcpStream) {
    let [mut from, mut to] = [from, to].map(|stream| stream.try_clone().unwrap());
    thread::spawn(move || {
        io::copy(&mut from, &mut to).unwrap_or_default();
        to.shutdown(Shutdown::Write).unwrap_or_default();
    });
}
