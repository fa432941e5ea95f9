//! TLS, with certificates that are made for each test.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use requeue::Finish;
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{Error, ErrorKind, FinishRequest, Finished, Hold, Store};

use crate::server::{self, add, request};

/// A server that speaks nothing but TLS, and a folder with its certificates.
struct Secure {
    port: u16,
    folder: PathBuf,
    child: Child,
}

impl Secure {
    async fn start(options: &[&str]) -> Option<Self> {
        server::url()?;
        let (folder, port) = (folder(), server::free_port());
        make_certificates(&folder);
        let mut server = Command::new("redis-server");
        server.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        server
            .args(["--port", "0", "--tls-port", &port.to_string()])
            .current_dir(&folder);
        server.args(["--tls-ca-cert-file", "ca.pem", "--tls-cert-file", "cert.pem"]);
        server.args(["--tls-key-file", "key.pem"]).args(options);
        let child =
            server.stdout(Stdio::null()).spawn().expect("redis-server can be started");
        let mut secure = Self { port, folder, child };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = secure.child.try_wait().unwrap();
            assert_eq!(ended, None, "redis-server ended; was it built without TLS?");
            tokio::task::yield_now().await;
        }
        Some(secure)
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn builder(&self, scheme: &str, query: &str) -> RedisStoreBuilder {
        RedisStore::builder(format!("{scheme}://localhost:{}{query}", self.port))
    }

    /// The address with the authority that signed the certificates.
    fn trusting(&self, scheme: &str) -> RedisStoreBuilder {
        self.builder(scheme, &format!("?ca={}", self.file("ca.pem")))
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("requeue-tls-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// An authority, and a certificate of it for this machine, be it server or client.
fn make_certificates(folder: &std::path::Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // The usual name is the same for all, and who signs for itself is not trusted.
    authority.distinguished_name.push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).unwrap();
    let authority = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let own = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    for (name, text) in [
        ("ca.pem", certificate.pem()),
        ("cert.pem", own.pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn told(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

/// Adds a key, waits for it, and ends its lease.
async fn works(store: &RedisStore) {
    add(store, &["a"]).await;
    store.wait(Duration::from_secs(5)).await.unwrap();
    let grant = store.lease(&request(1)).await.unwrap().grants.pop().unwrap();
    let hold = Hold { key: grant.key, token: grant.token };
    let ended = store.finish(&[FinishRequest::new(hold, Finish::Succeed)]).await.unwrap();
    assert_eq!(ended, [Finished::Done]);
}

#[tokio::test]
async fn a_queue_works_over_tls_with_an_authority_of_ones_own() {
    let Some(secure) = Secure::start(&["--tls-auth-clients", "no"]).await else { return };
    let store = secure.trusting("rediss").open().await.unwrap();
    works(&store).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_refused_with_what_to_do() {
    let Some(secure) = Secure::start(&["--tls-auth-clients", "no"]).await else { return };
    let error = secure.builder("rediss", "").open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", told(&error));
    let text = error.to_string();
    assert!(text.contains("not trusted") && text.contains("ca=FILE"), "{text}");
    assert!(text.contains(&format!("localhost:{}", secure.port)), "{text}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_given_one() {
    let Some(secure) = Secure::start(&["--tls-auth-clients", "yes"]).await else {
        return;
    };
    secure.trusting("rediss").open().await.unwrap_err();
    let query = format!(
        "?ca={}&cert={}&key={}",
        secure.file("ca.pem"),
        secure.file("cert.pem"),
        secure.file("key.pem")
    );
    works(&secure.builder("rediss", &query).open().await.unwrap()).await;
}

#[tokio::test]
async fn tls_is_not_spoken_to_a_server_without_it() {
    let Some(url) = server::url() else { return };
    let url = url.replacen("redis://", "rediss://", 1);
    let builder = RedisStore::builder(url).timeout(Duration::from_secs(2));
    let error = builder.open().await.unwrap_err();
    assert!(error.to_string().contains("redis at 127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_cluster_works_over_tls() {
    let options =
        ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-auth-clients", "no"];
    let Some(secure) = Secure::start(&options).await else { return };
    let mut slots = Command::new("redis-cli");
    slots.args(["--tls", "--cacert", &secure.file("ca.pem"), "-h", "localhost"]);
    slots.args([
        "-p",
        &secure.port.to_string(),
        "cluster",
        "addslotsrange",
        "0",
        "16383",
    ]);
    assert!(slots.stdout(Stdio::null()).status().unwrap().success());
    let builder = secure.trusting("rediss-cluster").partitions(4).queue("mail");
    let store = loop {
        match builder.clone().open().await {
            Ok(store) => break store,
            // It takes a moment until it knows that it is whole.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => panic!("{}", told(&error)),
        }
    };
    works(&store).await;
}
