//! Trusted authorities and the client's certificate: their files, and the TLS configuration from them.
//!
//! The files are read for every connection, so a renewed certificate is used from the next one on, without a
//! restart. Verification cannot be switched off.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::Invalid;

/// The trusted authorities, and the client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::redis) struct Trust {
    /// The authorities for server certificates, instead of the system's.
    ca: Option<PathBuf>,
    /// This client's certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

impl Trust {
    /// From the parameters of a URL.
    pub(in crate::engine::redis) fn new(
        ca: Option<PathBuf>,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Self, Invalid> {
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return Err(Invalid::new("it names cert without its key")),
            (None, Some(_)) => return Err(Invalid::new("it names key without its cert")),
        };
        Ok(Self { ca, identity })
    }

    /// The configuration of a new connection.
    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, String> {
        // The disk may be slow, and the I/O thread has renewals to send meanwhile.
        let trust = self.clone();
        let reading = tokio::task::spawn_blocking(move || trust.read());
        reading.await.unwrap_or_else(|error| Err(error.to_string())).map(Arc::new)
    }

    fn read(&self) -> Result<ClientConfig, String> {
        // Explicit, because the default for the whole process is the application's choice.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let builder = builder.with_root_certificates(self.roots()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let made = builder.with_client_auth_cert(certificates(cert)?, private_key(key)?);
                made.map_err(|error| mismatch(cert, key, &error))?
            }
        };
        // Each connection has a configuration of its own, so no ticket would ever be used.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let Some(ca) = &self.ca else { return system_roots() };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| {
                format!("{} contains a certificate that cannot be used: {error}", ca.display())
            })?;
        }
        Ok(roots)
    }
}

/// The authorities that this machine trusts.
fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's list may contain certificates that cannot be parsed: the others are used.
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    Err(format!(
        "this system has no trusted certificate authorities{why}: name the server's as ?ca=FILE in \
         the URL"
    ))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(format!("{} contains no certificate in PEM format", file.display())),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|_| {
        format!("{} contains no private key in PEM format without a password", file.display())
    })
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let failed = |error| format!("the URL names {}, which cannot be read: {error}", file.display());
    fs::read(file).map_err(failed)
}

fn mismatch(cert: &Path, key: &Path, error: &rustls::Error) -> String {
    let (cert, key) = (cert.display(), key.display());
    format!("the key in {key} cannot be used with the certificate in {cert}: {error}")
}
