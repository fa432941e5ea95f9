//! TLS connections to a server with a private certificate authority.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use requeue_postgres::PostgresStore;
use requeue_store::{Error, ErrorKind, Store};
use tokio_postgres::Client;

use crate::tools::{block_on, connect, new_name, url};

/// Held by each test: all of them replace the certificate of the same server.
static SERVER: Mutex<()> = Mutex::new(());

/// An authority, and a file with its certificate, removed on drop.
struct Authority {
    path: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Gives the server a certificate for `127.0.0.1`, and waits until it uses it.
async fn certify(client: &Client, url: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();

    let row = client.query_one("show data_directory", &[]).await.unwrap();
    let folder: String = row.get(0);
    write(client, &format!("{folder}/server.crt"), &certificate.pem()).await;
    write(client, &format!("{folder}/server.key"), &key.serialize_pem()).await;
    client.batch_execute("alter system set ssl = on").await.unwrap();
    client.batch_execute("select pg_reload_conf()").await.unwrap();

    let path = std::env::temp_dir().join(format!("{}.pem", new_name()));
    std::fs::write(&path, authority.pem()).unwrap();
    let authority = Authority { path, issuer: authority };
    while let Err(error) = open(&with(url, "sslmode=require")).await {
        assert!(error.to_string().contains("does not support TLS"), "{error}");
    }
    authority
}

/// Makes the server write a file, so that it owns the file and no other user can read it.
async fn write(client: &Client, path: &str, text: &str) {
    let lines = text.lines().map(|line| format!("('{line}')")).collect::<Vec<_>>();
    let rows = lines.join(", ");
    let copy = format!("copy (values {rows}) to program 'umask 077; cat >\"{path}\"'");
    client.batch_execute(&copy).await.unwrap();
}

fn with(url: &str, settings: &str) -> String {
    format!("{url}?{settings}")
}

async fn open(url: &str) -> Result<PostgresStore, Error> {
    PostgresStore::builder(url).queue("tls").open().await
}

/// Counts the connections of a name, and the encrypted ones among them.
async fn encrypted(client: &Client, name: &str) -> (i64, i64) {
    let text = "select count(*), count(*) filter (where s.ssl)
        from pg_stat_activity a join pg_stat_ssl s using (pid)
        where a.application_name = $1";
    let row = client.query_one(text, &[&name]).await.unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn sslmode_decides_encryption_and_verification() {
    let Some(url) = url() else { return };
    let _server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    block_on(async {
        let client = connect(&url).await;
        let authority = certify(&client, &url).await;
        let root = format!("sslrootcert={}", authority.path.display());
        let modes = [
            ("disable", false),
            ("prefer", true),
            ("require", true),
            ("verify-ca", true),
            ("verify-full", true),
        ];
        for (mode, by_tls) in modes {
            let name = new_name();
            let settings = format!("sslmode={mode}&{root}&application_name={name}");
            let store = open(&with(&url, &settings)).await.expect(mode);
            assert_eq!(store.stats().await.unwrap().dead, 0);
            let expected = (1, i64::from(by_tls));
            assert_eq!(encrypted(&client, &name).await, expected, "{mode}");
        }
        rejects_untrusted_certificates(&url, &root).await;
    });
}

async fn rejects_untrusted_certificates(url: &str, root: &str) {
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let refused = [
        with(url, "sslmode=verify-ca"),
        with(url, "sslmode=verify-full"),
        with(url, "sslmode=require&sslrootcert=system"),
        with(&elsewhere, &format!("sslmode=verify-full&{root}")),
    ];
    for url in refused {
        let error = open(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let any_name = with(&elsewhere, &format!("sslmode=verify-ca&{root}"));
    open(&any_name).await.expect("verify-ca ignores the name");
}

/// Returns the address as a list of `key=value`.
fn list(url: &str, settings: &str) -> String {
    let rest = url.strip_prefix("postgres://").expect("the address is a URL");
    let (user, rest) = rest.split_once(':').expect("it has a user");
    let (password, rest) = rest.split_once('@').expect("it has a password");
    let (host, rest) = rest.split_once(':').expect("it has a host");
    let (port, database) = rest.split_once('/').expect("it has a port");
    format!(
        "host={host} port={port} dbname={database} user={user} password={password} {settings}"
    )
}

/// Spaces around `=`, or an escaped quote before `sslmode`, turned TLS off silently.
#[test]
fn list_with_sslmode_is_encrypted_however_it_is_written() {
    let Some(url) = url() else { return };
    let _server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    block_on(async {
        let client = connect(&url).await;
        let _authority = certify(&client, &url).await;
        let modes = ["sslmode = require", "options='-c a.b=it\\\'s' sslmode=require"];
        for mode in modes {
            let name = new_name();
            let settings = format!("application_name={name} {mode}");
            let store = open(&list(&url, &settings)).await.expect(mode);
            assert_eq!(store.stats().await.unwrap().dead, 0);
            assert_eq!(encrypted(&client, &name).await, (1, 1), "{mode}");
        }
    });
}

/// Writes a file that only this user can read, unless `mode` says otherwise.
fn write_private(path: &std::path::Path, text: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A client certificate was rejected as an unknown parameter.
#[test]
fn client_certificate_replaces_the_password() {
    let Some(url) = url() else { return };
    let _server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    block_on(async {
        let client = connect(&url).await;
        let authority = certify(&client, &url).await;
        let user = new_name();
        let folder: String =
            client.query_one("show data_directory", &[]).await.unwrap().get(0);
        let root = std::fs::read_to_string(&authority.path).unwrap();
        write(&client, &format!("{folder}/root.crt"), &root).await;
        let rule = format!(
            "create role {user} login; grant create on database requeue to {user};
             alter system set ssl_ca_file = 'root.crt';
             copy (select 'hostssl all {user} all cert') to program
             'cat - \"{folder}/pg_hba.conf\" >\"{folder}/new\" && mv \"{folder}/new\" \"{folder}/pg_hba.conf\"'"
        );
        for statement in rule.split(';') {
            client.batch_execute(statement).await.unwrap();
        }
        client.batch_execute("select pg_reload_conf()").await.unwrap();

        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, &*user);
        let certificate = params.signed_by(&key, &authority.issuer).unwrap();
        let folder = std::env::temp_dir();
        let (cert, private) = (folder.join(format!("{user}.crt")), folder.join(&user));
        write_private(&cert, &certificate.pem(), 0o644);
        write_private(&private, &key.serialize_pem(), 0o644);

        let (_, place) = url.split_once('@').unwrap();
        let address = format!(
            "postgres://{user}@{place}?sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
            authority.path.display(),
            cert.display(),
            private.display(),
        );
        let builder = || PostgresStore::builder(&*address).schema(&*user);
        let error = builder().open().await.unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        write_private(&private, &key.serialize_pem(), 0o600);
        // The server may not have read its files yet.
        let store = loop {
            match builder().open().await {
                Ok(store) => break store,
                Err(error) => assert_ne!(error.kind(), ErrorKind::Invalid, "{error}"),
            }
        };
        assert_eq!(store.stats().await.unwrap().dead, 0);
        drop(store);
        std::fs::remove_file(cert).unwrap();
        std::fs::remove_file(private).unwrap();
        let drop =
            format!("drop schema {user} cascade; drop owned by {user}; drop role {user}");
        client.batch_execute(&drop).await.unwrap();
    });
}
