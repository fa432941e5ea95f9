//! TLS, with certificates that each test creates.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use requeue::Finish;
use requeue_redis::{RedisStore, RedisStoreBuilder};
use requeue_store::{ErrorKind, FinishRequest, Finished, RepliesExt, Store};

use crate::support::{self, add, error_text, free_port, lease};

/// A server that accepts only TLS, and a folder with its certificates.
struct TlsServer {
    port: u16,
    folder: PathBuf,
    child: Child,
}

impl TlsServer {
    async fn start(options: &[&str]) -> Option<Self> {
        support::url()?;
        let (folder, port) = (folder(), free_port());
        create_certificates(&folder);
        let mut server = Command::new("redis-server");
        server.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        server
            .args(["--port", "0", "--tls-port", &port.to_string()])
            .current_dir(&folder);
        server.args(["--tls-ca-cert-file", "ca.pem", "--tls-cert-file", "cert.pem"]);
        server.args(["--tls-key-file", "key.pem"]).args(options);
        let child =
            server.stdout(Stdio::null()).spawn().expect("redis-server can be started");
        let mut server = Self { port, folder, child };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert_eq!(ended, None, "redis-server ended; was it built without TLS?");
            tokio::task::yield_now().await;
        }
        Some(server)
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn builder(&self, scheme: &str, query: &str) -> RedisStoreBuilder {
        RedisStore::builder(format!("{scheme}://localhost:{}{query}", self.port))
    }

    /// Returns a builder that trusts the authority of the certificates.
    fn trusting(&self, scheme: &str) -> RedisStoreBuilder {
        self.builder(scheme, &format!("?ca={}", self.file("ca.pem")))
    }
}

impl Drop for TlsServer {
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

/// Creates an authority and a certificate for both the server and clients.
fn create_certificates(folder: &std::path::Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // With the default name it would look like a self-signed certificate.
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

/// Adds a key, waits for it, and ends its lease.
async fn check_works(store: &RedisStore) {
    add(store, &["a"]).await;
    store.wait(Duration::from_secs(5)).await.unwrap();
    let hold = lease(store, 1).await.remove(0);
    let request = FinishRequest::new(hold, Finish::Succeed);
    assert_eq!(store.finish(&[request]).all().await.unwrap(), [Finished::Done]);
}

#[tokio::test]
async fn a_queue_works_over_tls_with_a_private_authority() {
    let Some(server) = TlsServer::start(&["--tls-auth-clients", "no"]).await else {
        return;
    };
    let store = server.trusting("rediss").open().await.unwrap();
    check_works(&store).await;
}

#[tokio::test]
async fn the_error_for_an_untrusted_certificate_suggests_a_fix() {
    let Some(server) = TlsServer::start(&["--tls-auth-clients", "no"]).await else {
        return;
    };
    let error = server.builder("rediss", "").open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error_text(&error));
    let text = error.to_string();
    assert!(text.contains("not trusted") && text.contains("ca=FILE"), "{text}");
    assert!(text.contains(&format!("localhost:{}", server.port)), "{text}");
}

#[tokio::test]
async fn a_client_certificate_is_sent_if_the_server_asks() {
    let Some(server) = TlsServer::start(&["--tls-auth-clients", "yes"]).await else {
        return;
    };
    server.trusting("rediss").open().await.unwrap_err();
    let query = format!(
        "?ca={}&cert={}&key={}",
        server.file("ca.pem"),
        server.file("cert.pem"),
        server.file("key.pem")
    );
    check_works(&server.builder("rediss", &query).open().await.unwrap()).await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let Some(url) = support::url() else { return };
    let url = url.replacen("redis://", "rediss://", 1);
    let builder = RedisStore::builder(url).timeout(Duration::from_secs(2));
    let error = builder.open().await.unwrap_err();
    assert!(error.to_string().contains("redis at 127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_cluster_works_over_tls() {
    let options =
        ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-auth-clients", "no"];
    let Some(server) = TlsServer::start(&options).await else { return };
    let mut slots = Command::new("redis-cli");
    slots.args(["--tls", "--cacert", &server.file("ca.pem"), "-h", "localhost"]);
    slots.args([
        "-p",
        &server.port.to_string(),
        "cluster",
        "addslotsrange",
        "0",
        "16383",
    ]);
    assert!(slots.stdout(Stdio::null()).status().unwrap().success());
    let builder = server.trusting("rediss-cluster").partitions(4).queue("mail");
    let store = loop {
        match builder.clone().open().await {
            Ok(store) => break store,
            // It takes a moment until the node knows all slots.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => panic!("{}", error_text(&error)),
        }
    };
    check_works(&store).await;
}
