//! Connections by TLS: what an address asks for, and what that takes.

use std::sync::Arc;

use requeue_store::{Error, ErrorKind};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore};
use rustls::{Error as TlsError, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ssl::{Check, Roots};

/// What makes the connections of an address.
pub(crate) fn connector(check: Check, roots: &Roots) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(check, roots, &provider)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS cannot be set up").because(error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(
    check: Check,
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    if check == Check::Nothing {
        return Ok(Arc::new(Unchecked(Arc::clone(provider))));
    }
    let store = Arc::new(read_roots(roots)?);
    let chain = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider));
    let chain = chain
        .build()
        .map_err(|error| invalid("no certificate authority is trusted").because(error))?;
    if check == Check::Authority { Ok(Arc::new(AnyName(chain))) } else { Ok(chain) }
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
            let unreadable = || {
                invalid(format!("the certificates in sslrootcert={path} cannot be read"))
            };
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

/// Why a certificate was refused, if that is what an error of the driver is about.
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

/// Accepts any certificate: what is sent cannot be read on its way, but whoever answers may
/// be somebody else. That the key belongs to the certificate is checked.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts a certificate of a trusted authority, for whatever name. The name is the last
/// thing that the usual check looks at.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self.0.verify_server_cert(
            certificate,
            intermediates,
            name,
            ocsp_response,
            now,
        );
        match verified {
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
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
