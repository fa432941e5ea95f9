//! TLS connections to a server with a private certificate authority.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use requeue_postgres::PostgresStore;
use requeue_store::{Error, ErrorKind, Store};
use tokio_postgres::Client;

use crate::tools::{block_on, connect, new_name, url};

/// A file with the certificate of the authority, removed on drop.
struct Authority {
    path: PathBuf,
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
    let told = Authority { path };
    while let Err(error) = open(&with(url, "sslmode=require")).await {
        assert!(error.to_string().contains("does not support TLS"), "{error}");
    }
    told
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
        assert!(error.to_string().contains("certificate of PostgreSQL"), "{error}");
    }
    let any_name = with(&elsewhere, &format!("sslmode=verify-ca&{root}"));
    open(&any_name).await.expect("the name is not asked for");
}
