//! Which store is meant, and opening it.

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use requeue::{Clock, SystemClock};
use requeue_fjall::FjallStore;
use requeue_postgres::PostgresStore;
use requeue_redis::RedisStore;
use requeue_store::Store;

use crate::flags::{QueueFlags, StoreFlags};
use crate::report::{brief, chain};

/// A queue of a store.
#[derive(Clone)]
pub(crate) struct Place {
    address: Address,
    queue: Option<String>,
    partitions: Option<NonZeroUsize>,
}

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
enum Address {
    Folder(PathBuf),
    Redis(String),
    Postgres(String),
}

/// What is done if there is no such queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absence {
    Makes,
    Fails,
}

/// The queue that is meant if none is named.
const QUEUE: &str = "default";

/// How long a store that is away is tried again, and the pause in between.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const PAUSE: Duration = Duration::from_millis(500);

/// What is said before the reason.
const CANNOT: &str = "cannot open the store";

const EXPECTED: &str = "expected a folder such as ./queue.db, or an address that begins \
                        with redis://, redis-cluster://, postgres:// or postgresql://; \
                        with TLS, rediss:// or rediss-cluster://";

impl Place {
    pub(crate) fn of(flags: StoreFlags) -> Result<Self> {
        Self::new(&flags.store, flags.queue)
    }

    /// Reads what was typed. Errors do not repeat an address: it may hold a password.
    pub(crate) fn new(address: &OsStr, flags: QueueFlags) -> Result<Self> {
        let address = Address::read(address)?;
        let queue = flags.queue.or_else(queue_of_environment);
        let place = Self { address, queue, partitions: flags.partitions };
        place.check()?;
        Ok(place)
    }

    fn check(&self) -> Result<()> {
        let partitions = self.partitions.is_some();
        match &self.address {
            Address::Folder(path) if self.queue.is_some() => bail!(
                "--queue and REQUEUE_QUEUE name a queue on a server, and --store {} is a \
                 folder, which holds one queue: use a folder for each",
                path.display()
            ),
            Address::Folder(path) if partitions => bail!(
                "--partitions divides a queue on Redis, and --store {} is a folder",
                path.display()
            ),
            Address::Postgres(_) if partitions => {
                bail!("--partitions divides a queue on Redis, and --store is PostgreSQL")
            }
            _ if self.queue.as_deref() == Some("") => {
                bail!("invalid value '' for '--queue <NAME>': expected a name")
            }
            Address::Folder(_) | Address::Redis(_) | Address::Postgres(_) => Ok(()),
        }
    }

    /// The folder of an embedded store.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.address {
            Address::Folder(path) => Some(path),
            Address::Redis(_) | Address::Postgres(_) => None,
        }
    }

    /// Opens the store, and makes the queue if it is not there.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        self.open_or(Absence::Makes).await
    }

    /// The same with patience for a server that is being started, which `tell` is told of.
    pub(crate) async fn open_patiently(
        &self,
        tell: impl Fn(&str),
    ) -> Result<Arc<dyn Store>> {
        let give_up = SystemClock.now() + PATIENCE;
        let mut told = false;
        loop {
            match self.open().await {
                Err(error) if may_pass(&error) && SystemClock.now() < give_up => {
                    if !std::mem::replace(&mut told, true) {
                        let (time, why) = (brief(PATIENCE), chain(error.as_ref()));
                        tell(&format!("{why}; it is tried again for {time}"));
                    }
                }
                opened => return opened,
            }
            SystemClock.timer(SystemClock.now() + PAUSE).await;
        }
    }

    /// Opens the store. A queue that is not there is a mistyped one, and nobody who only
    /// looks at a queue wants one made.
    pub(crate) async fn open_existing(&self) -> Result<Arc<dyn Store>> {
        self.open_or(Absence::Fails).await
    }

    async fn open_or(&self, absence: Absence) -> Result<Arc<dyn Store>> {
        let queue = self.queue.as_deref().unwrap_or(QUEUE);
        let must_exist = absence == Absence::Fails;
        match &self.address {
            Address::Folder(path) if must_exist && !path.exists() => bail!(
                "no queue at {}: expected a folder that requeue run or requeue add has made",
                path.display()
            ),
            Address::Folder(path) => {
                Ok(Arc::new(FjallStore::builder(path).open().context(CANNOT)?))
            }
            Address::Redis(url) => {
                let mut builder = RedisStore::builder(url).queue(queue);
                if let Some(partitions) = self.partitions {
                    builder = builder.partitions(partitions.get());
                }
                let builder = if must_exist { builder.must_exist() } else { builder };
                Ok(Arc::new(builder.open().await.context(CANNOT)?))
            }
            Address::Postgres(url) => {
                let builder = PostgresStore::builder(url).queue(queue);
                let builder = if must_exist { builder.must_exist() } else { builder };
                Ok(Arc::new(builder.open().await.context(CANNOT)?))
            }
        }
    }
}

/// Not a part of the flags: `--queue` needs a store, and the environment does not.
fn queue_of_environment() -> Option<String> {
    std::env::var("REQUEUE_QUEUE").ok()
}

/// Whether a store may be opened a little later.
fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(requeue_store::Error::is_transient)
}

/// Without the address, which may hold a password.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Address {
    fn read(text: &OsStr) -> Result<Self> {
        if text.is_empty() {
            bail!("--store is empty: {EXPECTED}");
        }
        let shown = text.to_string_lossy();
        let Some((scheme, _)) = shown.split_once("://") else {
            if is_half_an_address(&shown) {
                bail!(
                    "--store looks like a server's address but has no ://: {EXPECTED}; a \
                     folder of such a name is written with ./ before it"
                );
            }
            return Ok(Self::Folder(PathBuf::from(text)));
        };
        let Some(url) = text.to_str().map(str::to_owned) else {
            bail!(
                "--store is no UTF-8; in an address, write such a byte as %FF: {EXPECTED}"
            );
        };
        match scheme.to_ascii_lowercase().as_str() {
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => {
                Ok(Self::Redis(url))
            }
            "postgres" | "postgresql" => Ok(Self::Postgres(url)),
            unknown if is_a_scheme(unknown) => {
                bail!("unknown scheme '{unknown}://' of --store: {EXPECTED}")
            }
            _ => bail!("what is before the :// of --store is no scheme: {EXPECTED}"),
        }
    }
}

/// Whether this can be told: anything else before a `://` may hold a password.
fn is_a_scheme(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Whether somebody means a server and not a folder of this name: `redis:/host`,
/// `host:6379`, `user:password@host`, or the words that PostgreSQL's own programs take.
fn is_half_an_address(text: &str) -> bool {
    if ["./", "../", "~/"].iter().any(|start| text.starts_with(start)) {
        return false;
    }
    let is_path = text.starts_with('/') && !text.starts_with("//");
    !is_path
        && (text.contains('@') || has_scheme(text) || has_port(text) || is_list(text))
}

fn has_scheme(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let scheme = scheme.to_ascii_lowercase();
    scheme.starts_with("redis") || scheme.starts_with("postgres")
}

fn has_port(text: &str) -> bool {
    let Some((host, rest)) = text.split_once(':') else { return false };
    let port = rest.split('/').next().unwrap_or_default();
    !host.contains('/') && port.parse::<u16>().is_ok()
}

/// `host=... user=... password=...`
fn is_list(text: &str) -> bool {
    const NAMES: [&str; 9] = [
        "host", "hostaddr", "port", "user", "password", "dbname", "service", "passfile",
        "sslmode",
    ];
    let words = text.split('=').rev().skip(1);
    words
        .filter_map(|before| before.split_whitespace().last())
        .any(|name| NAMES.contains(&name.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_scheme_is_a_folder() {
        let read = |text: &str| Address::read(OsStr::new(text)).unwrap();
        assert!(read("./queue.db") == Address::Folder("./queue.db".into()));
        assert!(read("C:/x") == Address::Folder("C:/x".into()));
        for folder in
            ["./host:1", "../a@b", "/a:b@c/d", "./user=x", "a=b", "host", "~/a@b"]
        {
            assert!(read(folder) == Address::Folder(folder.into()), "{folder}");
        }
        assert!(read("REDISS://h") == Address::Redis("REDISS://h".into()));
        assert!(read("redis://h") == Address::Redis("redis://h".into()));
        assert!(read("postgresql://h/d") == Address::Postgres("postgresql://h/d".into()));
    }

    /// A folder was made that was called `redis:`, with one called `host` in it; others
    /// were called by a list of words with the password among them.
    #[test]
    fn half_an_address_is_no_folder() {
        for text in [
            "redis:/me:secret@h",
            "redis:h",
            "Postgres:h/d",
            "h:6379",
            "h:5432/d",
            "me:secret@h:5432",
            ":secret@h",
            "//me:secret@h/d",
            "host=h user=me password=secret dbname=d",
            "password = secret",
            "user='me' password='a secret'",
        ] {
            let text = Address::read(OsStr::new(text)).err().unwrap().to_string();
            assert!(text.contains("no ://") && !text.contains("secret"), "{text}");
        }
    }

    /// A folder was made that was called `redis:`, with the password in it.
    #[test]
    fn an_address_that_is_no_text_is_no_folder() {
        use std::os::unix::ffi::OsStrExt;
        let refusal = |bytes| Address::read(OsStr::from_bytes(bytes)).err().unwrap();
        let text = refusal(b"redis://me:secret\xff@h").to_string();
        assert!(text.contains("%FF") && !text.contains("secret"), "{text}");
        let text = refusal(b"me:secret\xff@h").to_string();
        assert!(text.contains("no ://") && !text.contains("secret"), "{text}");
        assert!(Address::read(OsStr::from_bytes(b"./\xff")).is_ok());
    }

    #[test]
    fn an_unknown_scheme_is_told_without_the_rest() {
        let error = Address::read(OsStr::new("mysql://me:secret@host/db")).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("'mysql://'") && text.contains("redis://"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let error = Address::read(OsStr::new("me:secret@h://x")).err().unwrap();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
