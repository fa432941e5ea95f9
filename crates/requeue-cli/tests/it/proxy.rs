//! A way to a server that can be cut.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::harness::patiently;

/// Passes on what it is sent, in both directions, until it is cut.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    refused: usize,
    open: Vec<TcpStream>,
}

impl Proxy {
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let (shared, server) = (Arc::clone(&state), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = shared.lock().unwrap();
                if state.is_cut {
                    state.refused += 1;
                } else {
                    let server = TcpStream::connect(&server).unwrap();
                    pass(&client, &server);
                    pass(&server, &client);
                    state.open.extend([client, server]);
                }
            }
        });
        Self { address, state }
    }

    /// Ends all connections and takes no new ones.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for stream in state.open.drain(..) {
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// Waits until so many have tried in vain to connect.
    pub(crate) fn until_refused(&self, count: usize) {
        let state = Arc::clone(&self.state);
        patiently("trying to connect", move || {
            while state.lock().unwrap().refused < count {
                thread::yield_now();
            }
        });
    }

    pub(crate) fn mend(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let [mut from, mut to] = [from, to].map(|stream| stream.try_clone().unwrap());
    thread::spawn(move || {
        io::copy(&mut from, &mut to).unwrap_or_default();
        to.shutdown(Shutdown::Write).unwrap_or_default();
    });
}
