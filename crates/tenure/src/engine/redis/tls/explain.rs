//! What went wrong with TLS, at which server, and what to do about it.

use std::io;

use rustls::{AlertDescription as Alert, CertificateError, Error};

use crate::engine::redis::address::Endpoint;

/// How many of a certificate's names are told.
const NAMES_TOLD: usize = 5;

/// What the verifier calls a certificate that OpenSSL made with its defaults. It has no type for it.
const SELF_SIGNED: &str = "CaUsedAsEndEntity";

/// Why there is no connection.
pub(super) fn failure(error: &io::Error, place: &Endpoint) -> String {
    match tls_error(error) {
        Some(error) => sentence(error, place),
        None if error.kind() == io::ErrorKind::UnexpectedEof => format!(
            "{place} hung up instead of speaking TLS: if that is all it does, write redis:// for \
             rediss://"
        ),
        None => format!("could not connect to {place}: {error}"),
    }
}

/// The same, for a connection that was there.
pub(super) fn loss(error: io::Error, place: &Endpoint) -> io::Error {
    let sentence = tls_error(&error).map(|error| sentence(error, place));
    sentence.map_or(error, io::Error::other)
}

/// Whether one side refuses the other, rather than that the socket failed.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    tls_error(error).is_some()
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn sentence(error: &Error, place: &Endpoint) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error, place),
        Error::AlertReceived(alert) => of_alert(*alert, place),
        Error::InvalidMessage(_) => format!(
            "{place} does not speak TLS: write redis:// for rediss://, or name its port for TLS"
        ),
        Error::PeerIncompatible(_) => format!(
            "{place} and this client have no version or method of TLS in common ({error}): let it \
             speak TLS 1.2 or 1.3"
        ),
        error => format!("the TLS connection to {place} failed: {error}"),
    }
}

fn of_certificate(error: &CertificateError, place: &Endpoint) -> String {
    use CertificateError as It;
    match error {
        It::UnknownIssuer => format!(
            "the certificate of {place} is not signed by an authority that is trusted here: name \
             the file with its authority as ?ca=FILE in the URL"
        ),
        It::NotValidForName | It::NotValidForNameContext { .. } => format!(
            "the certificate of {place} is for {}: connect to the server by a name in its \
             certificate, or add the name to it",
            names(error)
        ),
        It::Expired | It::ExpiredContext { .. } => format!(
            "the certificate of {place} has expired: renew it, or correct this machine's clock"
        ),
        It::NotValidYet | It::NotValidYetContext { .. } => {
            format!("the certificate of {place} is not valid yet: correct this machine's clock")
        }
        It::Other(other) if other.to_string() == SELF_SIGNED => format!(
            "the certificate of {place} is one of an authority, not of a server: let an authority \
             sign one for the server"
        ),
        error => format!("the certificate of {place} is refused: {error}; give it another one"),
    }
}

/// The names that a certificate is for. They come from a stranger, and so are escaped.
fn names(error: &CertificateError) -> String {
    let CertificateError::NotValidForNameContext { presented, .. } = error else {
        return "another name".to_owned();
    };
    if presented.is_empty() {
        return "no name at all".to_owned();
    }
    let told: Vec<_> = presented.iter().take(NAMES_TOLD).map(|name| bare(name)).collect();
    format!("another name: {}", told.join(", "))
}

/// `localhost`, where the verifier says `DnsName("localhost")`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"').escape_debug().to_string()
}

/// What the server says of this client.
fn of_alert(alert: Alert, place: &Endpoint) -> String {
    match alert {
        Alert::CertificateRequired => format!(
            "{place} asks for a client's certificate: name its files as ?cert=FILE&key=FILE in the \
             URL"
        ),
        // What a server with TLS 1.2 says in the same case, and in others.
        Alert::HandshakeFailure => format!(
            "{place} refused the TLS handshake: it may ask for a client's certificate \
             (?cert=FILE&key=FILE in the URL), or have no method in common with this client"
        ),
        Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::DecryptError
        | Alert::UnknownCA
        | Alert::UnsupportedCertificate => format!(
            "{place} does not accept this client's certificate ({alert:?}): name one that it \
             trusts as ?cert=FILE&key=FILE in the URL"
        ),
        Alert::ProtocolVersion => format!(
            "{place} and this client have no version of TLS in common: let it speak TLS 1.2 or 1.3"
        ),
        alert => format!("{place} ended the TLS connection: it said {alert:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    fn told(error: impl Into<Error>) -> String {
        let place = Endpoint::Tcp("host".into(), 7000);
        failure(&io::Error::other(error.into()), &place)
    }

    #[test]
    fn names_of_strangers_are_bare_and_escaped() {
        assert_eq!(bare("DnsName(\"localhost\")"), "localhost");
        assert_eq!(bare("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(bare("Other(\"a\u{1b}[2J\nb\")"), "a\\u{1b}[2J\\nb");
    }

    #[test]
    fn every_sentence_names_the_server() {
        let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
        let place = Endpoint::Tcp("host".into(), 7000);
        for sentence in [
            told(CertificateError::UnknownIssuer),
            told(CertificateError::NotValidForName),
            told(CertificateError::NotValidYet),
            told(CertificateError::BadSignature),
            told(CertificateError::Other(OtherError(Arc::new(io::Error::other(SELF_SIGNED))))),
            told(Error::AlertReceived(Alert::ProtocolVersion)),
            told(Error::AlertReceived(Alert::InternalError)),
            told(Error::DecryptError),
            failure(&ended, &place),
            failure(&io::ErrorKind::ConnectionReset.into(), &place),
        ] {
            assert!(sentence.contains("host:7000"), "{sentence}");
        }
        assert!(loss(ended, &place).get_ref().is_none(), "left as it was");
    }
}
