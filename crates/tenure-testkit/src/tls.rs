//! TLS for a server of a test: an authority and its certificates, made by the test.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// How a server speaks TLS. By default its certificate is good for `localhost` and for 127.0.0.1, and
/// it takes clients without one.
///
/// The certificates lie in the server's folder, as PEM: `ca.pem` is the authority that signed them,
/// `server.pem` and `server.key` are the server's, `client.pem` and `client.key` are for a client, and
/// `stranger.pem` is an authority that signed nothing.
#[derive(Clone, Debug)]
pub struct Tls {
    names: Vec<String>,
    is_expired: bool,
    is_authority: bool,
    asks_clients: bool,
}

impl Default for Tls {
    fn default() -> Self {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        Self { names: names.into(), is_expired: false, is_authority: false, asks_clients: false }
    }
}

impl Tls {
    /// Gives the server a certificate for this name alone.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.names = vec![name.to_owned()];
        self
    }

    /// Gives the server a certificate that has expired.
    #[must_use]
    pub fn expired(mut self) -> Self {
        self.is_expired = true;
        self
    }

    /// Gives the server the certificate of an authority, as a careless setup with OpenSSL does.
    #[must_use]
    pub fn of_authority(mut self) -> Self {
        self.is_authority = true;
        self
    }

    /// Lets the server ask every client for a certificate.
    #[must_use]
    pub fn asks_clients(mut self) -> Self {
        self.asks_clients = true;
        self
    }

    /// Makes the certificates, as files in this folder.
    ///
    /// # Panics
    ///
    /// If the folder cannot be written to.
    pub fn write(&self, folder: &Path) {
        let write = |name: &str, text: String| {
            fs::write(folder.join(name), text).expect("a test can write to its own folder");
        };
        let (ca, issuer) = authority("an authority");
        write("ca.pem", ca);
        write("stranger.pem", authority("a stranger").0);
        for (role, names) in [("server", self.names.clone()), ("client", vec!["client".into()])] {
            let mut params = CertificateParams::new(names).expect("names of a test are proper");
            if role == "server" && self.is_expired {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2021, 1, 1);
            }
            if role == "server" && self.is_authority {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }
            let key = new_key();
            let certificate = params.signed_by(&key, &issuer).expect("an authority can sign");
            write(&format!("{role}.pem"), certificate.pem());
            write(&format!("{role}.key"), key.serialize_pem());
        }
    }

    /// The settings that make a server speak TLS with the certificates in this folder.
    pub(crate) fn settings(&self, folder: &Path) -> Vec<OsString> {
        let file = |name: &str| folder.join(name).into_os_string();
        let asks = if self.asks_clients { "yes" } else { "no" };
        [
            ("--tls-cert-file", file("server.pem")),
            ("--tls-key-file", file("server.key")),
            ("--tls-ca-cert-file", file("ca.pem")),
            ("--tls-auth-clients", asks.into()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.into(), value])
        .collect()
    }
}

/// A new authority, and its certificate.
fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = new_key();
    let certificate = params.self_signed(&key).expect("an authority can sign for itself");
    (certificate.pem(), Issuer::new(params, key))
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("there is randomness for a key")
}
