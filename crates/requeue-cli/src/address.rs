//! The address of a queue in a store, and opening it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use requeue_fjall::FjallStore;
use requeue_postgres::PostgresStore;
use requeue_redis::RedisStore;
use requeue_store::{Error, ErrorKind, Migration, Store};

use crate::flags::{QueueFlags, StoreFlags};
use crate::hint;
use crate::password;
use crate::report::{brief, chain};
use crate::retry::{PATIENCE, for_a_while, retry};

/// A queue in a store.
#[derive(Clone)]
pub(crate) struct StoreAddress {
    location: Location,
    queue: Option<String>,
    partitions: Option<NonZeroUsize>,
    /// The address was not typed; it comes from `REQUEUE_STORE`.
    from_environment: bool,
}

/// The location of a store.
#[derive(Clone, PartialEq, Eq)]
enum Location {
    Directory(PathBuf),
    Redis(String),
    Postgres(String),
}

/// What to do if the queue does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Create,
    Fail,
}

/// The name of a queue if none is given.
const DEFAULT_QUEUE: &str = "default";

const CANNOT_OPEN: &str = "cannot open the store";

const EXPECTED: &str = "expected a directory such as ./queue.db, or an address that starts \
                        with redis://, redis-cluster://, postgres:// or postgresql://; \
                        with TLS, rediss:// or rediss-cluster://";

impl StoreAddress {
    pub(crate) fn from_flags(flags: StoreFlags) -> Result<Self> {
        Self::new(&flags.store, flags.queue)
    }

    /// Parses an address. Errors do not repeat it, because it may contain a password.
    pub(crate) fn new(address: &OsStr, flags: QueueFlags) -> Result<Self> {
        let location = Location::parse(address)?;
        let queue = flags.queue.or_else(queue_from_environment);
        let from_environment = !password::was_moved() && !is_typed(std::env::args_os());
        let partitions = flags.partitions;
        let address = Self { location, queue, partitions, from_environment };
        address.check()?;
        Ok(address)
    }

    fn check(&self) -> Result<()> {
        let partitions = self.partitions.is_some();
        match &self.location {
            Location::Directory(path) if self.queue.is_some() => bail!(
                "--queue and REQUEUE_QUEUE name a queue on a server, but --store {} is a \
                 directory, which holds one queue; use one directory per queue",
                path.display()
            ),
            Location::Directory(path) if partitions => bail!(
                "--partitions is only for Redis, but --store {} is a directory",
                path.display()
            ),
            Location::Postgres(_) if partitions => {
                bail!("--partitions is only for Redis, but --store is PostgreSQL")
            }
            _ if self.queue.as_deref() == Some("") => {
                bail!("invalid value '' for '--queue <NAME>': expected a name")
            }
            Location::Directory(_) | Location::Redis(_) | Location::Postgres(_) => Ok(()),
        }
    }

    /// Returns the environment variables with the password of the store.
    pub(crate) fn secrets(&self) -> Vec<&'static str> {
        password::variables(matches!(self.location, Location::Postgres(_)))
    }

    /// Returns the directory of an embedded store.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.location {
            Location::Directory(path) => Some(path),
            Location::Redis(_) | Location::Postgres(_) => None,
        }
    }

    /// Opens the store and creates the queue if it does not exist.
    pub(crate) async fn open(&self, note: impl Fn(&str)) -> Result<Arc<dyn Store>> {
        let opened =
            self.open_noting(&note).await.map_err(|error| self.explain(&error))?;
        self.note_source(&*opened, note);
        Ok(opened)
    }

    /// Opens the store, and reports that a named queue is created.
    async fn open_noting(&self, note: &impl Fn(&str)) -> Result<Arc<dyn Store>, Error> {
        let Some(name) = &self.queue else {
            return self.open_or(IfMissing::Create).await;
        };
        match self.open_or(IfMissing::Fail).await {
            Err(error) if is_missing(&error) => {
                let opened = self.open_or(IfMissing::Create).await?;
                note(&format!("created the new queue {name:?}"));
                Ok(opened)
            }
            opened => opened,
        }
    }

    /// Reports which store is used, if its address was not typed.
    pub(crate) fn note_source(&self, store: &dyn Store, note: impl Fn(&str)) {
        if self.from_environment {
            note(&format!("using {} (REQUEUE_STORE)", store.describe()));
        }
    }

    /// Formats an error of opening, with advice.
    fn explain(&self, error: &Error) -> anyhow::Error {
        let text = chain(error);
        match hint::about_store(self.location.scheme(), &text) {
            Some(hint) => anyhow!("{CANNOT_OPEN}: {}; {hint}", text.trim_end()),
            None => anyhow!("{CANNOT_OPEN}: {text}"),
        }
    }

    /// Like [`open`](Self::open), but waits a while for a server that is starting. Passes a
    /// message to `note` if it has to wait.
    pub(crate) async fn open_patiently(
        &self,
        note: impl Fn(&str),
    ) -> Result<Arc<dyn Store>> {
        let mut noted = false;
        let mut for_a_while = for_a_while();
        let opened = retry(
            || self.open_noting(&note),
            |error| {
                // A wrong password is reported at once.
                let keep_trying = error.kind() != ErrorKind::Denied && for_a_while(error);
                if keep_trying && !std::mem::replace(&mut noted, true) {
                    let (why, time) = (chain(error), brief(PATIENCE));
                    note(&format!("{CANNOT_OPEN}, retrying for {time}: {why}"));
                }
                keep_trying
            },
        );
        let opened = opened.await.map_err(|error| self.explain(&error))?;
        self.note_source(&*opened, note);
        Ok(opened)
    }

    /// Opens the store. Fails if the queue does not exist, so that a mistyped name creates
    /// nothing.
    pub(crate) async fn open_existing(&self) -> Result<Arc<dyn Store>> {
        self.open_or(IfMissing::Fail).await.map_err(|error| self.explain(&error))
    }

    /// Brings the stored data to the version of this program, or lists the steps.
    pub(crate) async fn migrate(&self, dry_run: bool) -> Result<Migration> {
        let queue = self.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
        let done = match &self.location {
            Location::Directory(path) if !path.exists() => Err(no_directory(path)),
            Location::Directory(path) => FjallStore::builder(path).migrate(dry_run).await,
            Location::Redis(url) => {
                RedisStore::builder(url).queue(queue).migrate(dry_run).await
            }
            Location::Postgres(url) => {
                PostgresStore::builder(url).queue(queue).migrate(dry_run).await
            }
        };
        done.map_err(|error| self.explain(&error))
    }

    async fn open_or(&self, if_missing: IfMissing) -> Result<Arc<dyn Store>, Error> {
        let queue = self.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
        let must_exist = if_missing == IfMissing::Fail;
        match &self.location {
            Location::Directory(path) if must_exist && !path.exists() => {
                Err(no_directory(path))
            }
            Location::Directory(path) => Ok(Arc::new(FjallStore::builder(path).open()?)),
            Location::Redis(url) => {
                let mut builder = RedisStore::builder(url).queue(queue);
                if let Some(partitions) = self.partitions {
                    builder = builder.partitions(partitions.get());
                }
                let builder = if must_exist { builder.must_exist() } else { builder };
                Ok(Arc::new(builder.open().await?))
            }
            Location::Postgres(url) => {
                let builder = PostgresStore::builder(url).queue(queue);
                let builder = if must_exist { builder.must_exist() } else { builder };
                Ok(Arc::new(builder.open().await?))
            }
        }
    }
}

fn no_directory(path: &Path) -> Error {
    let text = format!("{} does not exist; requeue add creates it", path.display());
    Error::new(ErrorKind::Invalid, text)
}

/// Returns whether a queue does not exist, but can be created.
fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::Invalid && error.to_string().ends_with("creates it")
}

/// Returns whether the command line contains `--store`.
fn is_typed(words: impl Iterator<Item = OsString>) -> bool {
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    words.any(|word| word == "--store" || word.starts_with("--store="))
}

/// Not an `env` of the flag: `--queue` requires `--store`, the variable does not.
fn queue_from_environment() -> Option<String> {
    std::env::var("REQUEUE_QUEUE").ok()
}

/// Leaves out the location, which may contain a password.
impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAddress").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Location {
    /// Returns the scheme of the address in lower case, or nothing for a directory.
    fn scheme(&self) -> &str {
        match self {
            Self::Directory(_) => "",
            Self::Redis(url) => match url.split_once("://") {
                Some((scheme, _)) => scheme,
                None => "redis",
            },
            Self::Postgres(_) => "postgres",
        }
    }

    fn parse(text: &OsStr) -> Result<Self> {
        if text.is_empty() {
            bail!("--store is empty: {EXPECTED}");
        }
        let shown = text.to_string_lossy();
        let Some((scheme, _)) = shown.split_once("://") else {
            if resembles_address(&shown) {
                bail!(
                    "--store looks like the address of a server but has no ://: {EXPECTED}; \
                     write ./ before a directory with such a name"
                );
            }
            return Ok(Self::Directory(PathBuf::from(text)));
        };
        let Some(url) = text.to_str().map(str::to_owned) else {
            bail!(
                "--store is not UTF-8; write other bytes of an address as %FF: {EXPECTED}"
            );
        };
        match scheme.to_ascii_lowercase().as_str() {
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => {
                Ok(Self::Redis(url))
            }
            "postgres" | "postgresql" => Ok(Self::Postgres(url)),
            unknown if is_scheme(unknown) => {
                bail!("unknown scheme '{unknown}://' in --store: {EXPECTED}")
            }
            _ => bail!("invalid scheme before the :// of --store: {EXPECTED}"),
        }
    }
}

/// Returns whether an error may repeat this text. Other text before a `://` may contain a
/// password.
fn is_scheme(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Returns whether this was meant as a server rather than a directory: `redis:/host`,
/// `host:6379`, `user:password@host`, or a `key=value` list as in libpq.
fn resembles_address(text: &str) -> bool {
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
    fn path_without_a_scheme_is_a_directory() {
        let read = |text: &str| Location::parse(OsStr::new(text)).unwrap();
        assert!(read("./queue.db") == Location::Directory("./queue.db".into()));
        assert!(read("C:/x") == Location::Directory("C:/x".into()));
        for path in ["./host:1", "../a@b", "/a:b@c/d", "./user=x", "a=b", "host", "~/a@b"]
        {
            assert!(read(path) == Location::Directory(path.into()), "{path}");
        }
        assert!(read("REDISS://h") == Location::Redis("REDISS://h".into()));
        assert!(read("redis://h") == Location::Redis("redis://h".into()));
        assert!(
            read("postgresql://h/d") == Location::Postgres("postgresql://h/d".into())
        );
    }

    /// `redis:/host` once created a directory `redis:`, and a libpq list created one with the
    /// password in its name.
    #[test]
    fn malformed_address_is_not_a_directory() {
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
            let text = Location::parse(OsStr::new(text)).err().unwrap().to_string();
            assert!(text.contains("no ://") && !text.contains("secret"), "{text}");
        }
    }

    /// An address that was not UTF-8 once created a directory with the password in its name.
    #[test]
    fn address_that_is_not_utf8_is_not_a_directory() {
        use std::os::unix::ffi::OsStrExt;
        let refusal = |bytes| Location::parse(OsStr::from_bytes(bytes)).err().unwrap();
        let text = refusal(b"redis://me:secret\xff@h").to_string();
        assert!(text.contains("%FF") && !text.contains("secret"), "{text}");
        let text = refusal(b"me:secret\xff@h").to_string();
        assert!(text.contains("no ://") && !text.contains("secret"), "{text}");
        assert!(Location::parse(OsStr::from_bytes(b"./\xff")).is_ok());
    }

    #[test]
    fn unknown_scheme_error_does_not_repeat_the_address() {
        let error =
            Location::parse(OsStr::new("mysql://me:secret@host/db")).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("'mysql://'") && text.contains("redis://"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let error = Location::parse(OsStr::new("me:secret@h://x")).err().unwrap();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
