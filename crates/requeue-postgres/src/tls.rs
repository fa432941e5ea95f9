//! TLS connections.

use std::sync::Arc;

use requeue_store::{Error, ErrorKind};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore};
use rustls::{Error as TlsError, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ssl::{Encryption, Identity, Roots, Tls, Verification};

/// Returns the connector for TLS connections.
pub(crate) fn connector(tls: &Tls) -> Result<MakeRustlsConnect, Error> {
    let verification = match tls.encryption {
        Encryption::Required(verification) => verification,
        Encryption::None | Encryption::Preferred => Verification::None,
    };
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(verification, &tls.roots, &provider)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("cannot set up TLS").because(error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read_identity(identity)?;
            config.with_client_auth_cert(chain, key).map_err(|error| {
                let Identity { certificate, key } = identity;
                invalid(format!("sslcert={certificate} and sslkey={key} do not fit"))
                    .because(error)
            })?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Reads the certificates and the private key of the client.
fn read_identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let Identity { certificate, key } = identity;
    let unreadable =
        || invalid(format!("cannot read the certificates in sslcert={certificate}"));
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable().because(error))?;
    if chain.is_empty() {
        return Err(unreadable());
    }
    check_private(key)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        invalid(format!("cannot read the private key in sslkey={key}")).because(error)
    })?;
    Ok((chain, key))
}

/// Fails if others can read a private key. The rule of libpq: only the owner may, or also
/// the group if root is the owner.
#[cfg(unix)]
fn check_private(path: &str) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).map_err(|error| {
        invalid(format!("cannot read the private key in sslkey={path}")).because(error)
    })?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden == 0 {
        return Ok(());
    }
    Err(invalid(format!("other users can read the private key {path}; chmod 600 {path}")))
}

#[cfg(not(unix))]
fn check_private(_: &str) -> Result<(), Error> {
    Ok(())
}

fn verifier(
    verification: Verification,
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let provider = Arc::clone(provider);
    if verification == Verification::None {
        return Ok(Arc::new(LenientVerifier { chain: None, provider }));
    }
    let store = Arc::new(read_roots(roots)?);
    let chain = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider));
    let chain = chain
        .build()
        .map_err(|error| invalid("no certificate authority is trusted").because(error))?;
    if verification == Verification::Authority {
        return Ok(Arc::new(LenientVerifier { chain: Some(chain), provider }));
    }
    Ok(chain)
}

fn read_roots(roots: &Roots) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::Platform => {
            store.add_parsable_certificates(
                rustls_native_certs::load_native_certs().certs,
            );
        }
        Roots::File(path) => {
            let unreadable =
                || invalid(format!("cannot read the certificates in sslrootcert={path}"));
            let file = CertificateDer::pem_file_iter(path);
            for certificate in file.map_err(|error| unreadable().because(error))? {
                let certificate =
                    certificate.map_err(|error| unreadable().because(error))?;
                let added = store.add(certificate);
                added.map_err(|error| unreadable().because(error))?;
            }
        }
    }
    Ok(store)
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, text.into())
}

/// Returns why a certificate was rejected, if that is the cause of an error.
pub(crate) fn refusal<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a TlsError> {
    let io = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let found = match io {
        Some(inner) => inner.downcast_ref(),
        None => error.downcast_ref(),
    };
    let certificate =
        found.filter(|error| matches!(error, TlsError::InvalidCertificate(_)));
    certificate.or_else(|| error.source().and_then(refusal))
}

/// Verifies less than usual about a certificate. It always verifies that the server has the
/// private key.
#[derive(Debug)]
struct LenientVerifier {
    /// Accepts certificates of trusted authorities, for any name. `None` accepts every
    /// certificate: the connection is encrypted, but the server may be an impostor.
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LenientVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The usual check verifies the name last.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
