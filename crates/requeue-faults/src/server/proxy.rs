//! A proxy between the clients and a server that can inject connection faults.
//!
//! # Invariants
//!
//! 1. Dropped data is never delivered later. A connection that dropped data forwards nothing
//!    more in that direction, and is cut when the fault ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::time::sleep_blocking;

/// How long `ConnectionFault::Delay` holds back each read.
const DELAY: Duration = Duration::from_millis(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    None,
    /// Data arrives late.
    Delay,
    /// Connections stay open, but nothing arrives.
    HalfOpen,
    /// Requests arrive, replies do not.
    DropReplies,
}

/// A proxy. It runs until the process exits.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fault: AtomicU8,
    links: Mutex<Vec<Arc<Link>>>,
}

/// One client connection and its connection to the server.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Whether data was dropped, by direction: invariant 1.
    broken: [AtomicBool; 2],
}

#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

impl Proxy {
    /// Listens on a free port and forwards to the server's port.
    pub(crate) fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let shared =
            Arc::new(Shared { fault: AtomicU8::new(0), links: Mutex::default() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.connect(client, server);
            }
        });
        Ok(Self { port, shared })
    }

    pub(crate) fn inject(&self, fault: ConnectionFault) {
        self.shared.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Ends the fault and cuts the connections that dropped data.
    pub(crate) fn heal(&self) {
        self.inject(ConnectionFault::None);
        self.cut_if(|link| {
            link.broken.iter().any(|broken| broken.load(Ordering::Relaxed))
        });
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.shared.links().len()
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.cut_if(|_| true);
    }

    fn cut_if(&self, selected: impl Fn(&Link) -> bool) {
        self.shared.links().retain(|link| {
            let cut = selected(link);
            if cut {
                link.close();
            }
            !cut
        });
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, fault: ConnectionFault) -> bool {
        self.fault.load(Ordering::Relaxed) == fault as u8
    }

    /// Connects a client to the server. Without a server, drops the client's connection.
    fn connect(self: &Arc<Self>, client: TcpStream, server: u16) {
        let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server)))
        else {
            return;
        };
        drop((client.set_nodelay(true), server.set_nodelay(true)));
        let link = Arc::new(Link { client, server, broken: Default::default() });
        self.links().push(Arc::clone(&link));
        for direction in [Direction::ToServer, Direction::ToClient] {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            std::thread::spawn(move || {
                // Closing the link also ends the thread of the other direction.
                drop(shared.forward(&link, direction));
                link.close();
                shared.links().retain(|other| !Arc::ptr_eq(other, &link));
            });
        }
    }

    fn forward(&self, link: &Link, direction: Direction) -> std::io::Result<()> {
        let (mut from, mut to) = match direction {
            Direction::ToServer => (&link.client, &link.server),
            Direction::ToClient => (&link.server, &link.client),
        };
        let broken = &link.broken[direction as usize];
        let mut buffer = [0; 16 * 1024];
        loop {
            let size = from.read(&mut buffer)?;
            if size == 0 {
                return Ok(());
            }
            if self.drops(direction) {
                broken.store(true, Ordering::Relaxed);
            }
            if broken.load(Ordering::Relaxed) {
                continue;
            }
            if self.has(ConnectionFault::Delay) {
                sleep_blocking(DELAY);
            }
            to.write_all(&buffer[..size])?;
        }
    }

    fn drops(&self, direction: Direction) -> bool {
        self.has(ConnectionFault::HalfOpen)
            || matches!(direction, Direction::ToClient)
                && self.has(ConnectionFault::DropReplies)
    }
}

impl Link {
    fn close(&self) {
        drop(self.client.shutdown(Shutdown::Both));
        drop(self.server.shutdown(Shutdown::Both));
    }
}
