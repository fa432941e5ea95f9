//! A proxy on the loopback between the clients and the engine, which can be told to fail.
//!
//! # Invariants
//!
//! 1. What a connection was made to drop is never sent later: such a connection forwards
//!    nothing more in that direction, and is cut when the fault ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use requeue::{Clock, SystemClock};

use crate::shortcuts::{Counter, Shortcuts};

/// By how much each piece is held up.
const HELD_UP: Duration = Duration::from_millis(60);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Everything takes longer.
    Delay,
    /// Nothing arrives any more, on connections that seem to be open.
    HalfOpen,
    /// Requests arrive, answers do not.
    DropReplies,
}

/// A proxy that runs for as long as the process.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    trouble: AtomicU8,
    links: Mutex<Vec<Arc<Link>>>,
    counter: Counter,
}

/// One connection, both halves.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    engine: TcpStream,
    /// Something was dropped: invariant 1.
    doomed: [AtomicBool; 2],
}

#[derive(Clone, Copy)]
enum Way {
    There,
    Back,
}

impl Proxy {
    /// Listens on a free port and forwards to the engine's.
    pub(crate) fn start(engine: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            trouble: AtomicU8::new(0),
            links: Mutex::default(),
            counter: Counter::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.connect(client, engine);
            }
        });
        Ok(Self { port, shared })
    }

    pub(crate) fn make(&self, trouble: Trouble) {
        self.shared.trouble.store(trouble as u8, Ordering::Relaxed);
    }

    /// Ends all trouble, and cuts what it has touched.
    pub(crate) fn heal(&self) {
        self.make(Trouble::None);
        self.cut_if(|link| {
            link.doomed.iter().any(|doomed| doomed.load(Ordering::Relaxed))
        });
    }

    /// How often the short scripts were used.
    pub(crate) fn shortcuts(&self) -> Shortcuts {
        self.shared.counter.read()
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.cut_if(|_| true);
    }

    fn cut_if(&self, chosen: impl Fn(&Link) -> bool) {
        self.shared.links().retain(|link| {
            let cut = chosen(link);
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

    fn has(&self, trouble: Trouble) -> bool {
        self.trouble.load(Ordering::Relaxed) == trouble as u8
    }

    /// A client whose engine is not there is turned away.
    fn connect(self: &Arc<Self>, client: TcpStream, engine: u16) {
        let Ok(engine) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], engine)))
        else {
            return;
        };
        drop((client.set_nodelay(true), engine.set_nodelay(true)));
        let link = Arc::new(Link { client, engine, doomed: Default::default() });
        self.links().push(Arc::clone(&link));
        for way in [Way::There, Way::Back] {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            std::thread::spawn(move || {
                // However it ends: the other half must end too.
                drop(shared.pump(&link, way));
                link.close();
            });
        }
    }

    fn pump(&self, link: &Link, way: Way) -> std::io::Result<()> {
        let (mut from, mut to) = match way {
            Way::There => (&link.client, &link.engine),
            Way::Back => (&link.engine, &link.client),
        };
        let doomed = &link.doomed[way as usize];
        let mut piece = [0; 16 * 1024];
        loop {
            let size = from.read(&mut piece)?;
            if size == 0 {
                return Ok(());
            }
            if self.drops(way) {
                doomed.store(true, Ordering::Relaxed);
            }
            if doomed.load(Ordering::Relaxed) {
                continue;
            }
            if self.has(Trouble::Delay) {
                park(HELD_UP);
            }
            match way {
                Way::There => self.counter.read_request(&piece[..size]),
                Way::Back => self.counter.read_answer(&piece[..size]),
            }
            to.write_all(&piece[..size])?;
        }
    }

    fn drops(&self, way: Way) -> bool {
        self.has(Trouble::HalfOpen)
            || matches!(way, Way::Back) && self.has(Trouble::DropReplies)
    }
}

impl Link {
    fn close(&self) {
        drop(self.client.shutdown(Shutdown::Both));
        drop(self.engine.shutdown(Shutdown::Both));
    }
}

/// Blocks this thread for so long.
pub(crate) fn park(delay: Duration) {
    let end = SystemClock.now() + delay;
    while SystemClock.now() < end {
        SystemClock.park_until(end);
    }
}
