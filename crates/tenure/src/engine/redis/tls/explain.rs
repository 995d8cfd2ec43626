//! Messages for TLS errors: the error, the server, and the remedy.

use std::io;

use rustls::{AlertDescription as Alert, CertificateError, Error};

use crate::engine::redis::address::Endpoint;

/// How many of a certificate's names are shown.
const NAMES_SHOWN: usize = 5;

/// The verifier's error for a self-signed certificate with OpenSSL's defaults. It has no variant for it.
const SELF_SIGNED: &str = "CaUsedAsEndEntity";

/// Why the connection could not be established.
pub(super) fn failure(error: &io::Error, endpoint: &Endpoint) -> String {
    match tls_error(error) {
        Some(error) => sentence(error, endpoint),
        None if error.kind() == io::ErrorKind::UnexpectedEof => format!(
            "{endpoint} closed the connection during the TLS handshake: if it does not speak TLS, \
             write redis:// for rediss://"
        ),
        None => format!("could not connect to {endpoint}: {error}"),
    }
}

/// The same, for an established connection.
pub(super) fn loss(error: io::Error, endpoint: &Endpoint) -> io::Error {
    let sentence = tls_error(&error).map(|error| sentence(error, endpoint));
    sentence.map_or(error, io::Error::other)
}

/// Whether one side refused the other, rather than a failure of the socket.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    tls_error(error).is_some()
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn sentence(error: &Error, endpoint: &Endpoint) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error, endpoint),
        Error::AlertReceived(alert) => of_alert(*alert, endpoint),
        Error::InvalidMessage(_) => format!(
            "{endpoint} does not speak TLS: write redis:// for rediss://, or name its port for TLS"
        ),
        Error::PeerIncompatible(_) => format!(
            "{endpoint} and this client have no version or cipher of TLS in common ({error}): let it \
             speak TLS 1.2 or 1.3"
        ),
        error => format!("the TLS connection to {endpoint} failed: {error}"),
    }
}

fn of_certificate(error: &CertificateError, endpoint: &Endpoint) -> String {
    use CertificateError as It;
    match error {
        It::UnknownIssuer => format!(
            "the certificate of {endpoint} is not signed by an authority that is trusted here: name \
             the file with that authority as ?ca=FILE in the URL"
        ),
        It::NotValidForName | It::NotValidForNameContext { .. } => format!(
            "the certificate of {endpoint} is for {}: connect to the server by a name in its \
             certificate, or add the name to it",
            names(error)
        ),
        It::Expired | It::ExpiredContext { .. } => format!(
            "the certificate of {endpoint} has expired: renew it, or correct this machine's clock"
        ),
        It::NotValidYet | It::NotValidYetContext { .. } => {
            format!("the certificate of {endpoint} is not valid yet: correct this machine's clock")
        }
        It::Other(other) if other.to_string() == SELF_SIGNED => format!(
            "the certificate of {endpoint} is that of an authority, not of a server: let an authority \
             sign one for the server"
        ),
        error => format!("the certificate of {endpoint} is refused: {error}; give it another one"),
    }
}

/// The names that a certificate is valid for, escaped, because the text is untrusted.
fn names(error: &CertificateError) -> String {
    let CertificateError::NotValidForNameContext { presented, .. } = error else {
        return "another name".to_owned();
    };
    if presented.is_empty() {
        return "no name at all".to_owned();
    }
    let shown: Vec<_> = presented.iter().take(NAMES_SHOWN).map(|name| bare(name)).collect();
    format!("another name: {}", shown.join(", "))
}

/// `localhost`, where the verifier says `DnsName("localhost")`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"').escape_debug().to_string()
}

/// The message for an alert from the server.
fn of_alert(alert: Alert, endpoint: &Endpoint) -> String {
    match alert {
        Alert::CertificateRequired => format!(
            "{endpoint} requires a client certificate: name its files as ?cert=FILE&key=FILE in the \
             URL"
        ),
        // The alert of a server with TLS 1.2 in the same case, and in others.
        Alert::HandshakeFailure => format!(
            "{endpoint} refused the TLS handshake: it may require a client certificate \
             (?cert=FILE&key=FILE in the URL), or have no cipher in common with this client"
        ),
        Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::DecryptError
        | Alert::UnknownCA
        | Alert::UnsupportedCertificate => format!(
            "{endpoint} does not accept this client's certificate ({alert:?}): name one that it \
             trusts as ?cert=FILE&key=FILE in the URL"
        ),
        Alert::ProtocolVersion => format!(
            "{endpoint} and this client have no version of TLS in common: let it speak TLS 1.2 or 1.3"
        ),
        alert => format!("{endpoint} closed the TLS connection with the alert {alert:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    fn message(error: impl Into<Error>) -> String {
        let endpoint = Endpoint::Tcp("host".into(), 7000);
        failure(&io::Error::other(error.into()), &endpoint)
    }

    #[test]
    fn untrusted_names_are_bare_and_escaped() {
        assert_eq!(bare("DnsName(\"localhost\")"), "localhost");
        assert_eq!(bare("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(bare("Other(\"a\u{1b}[2J\nb\")"), "a\\u{1b}[2J\\nb");
    }

    #[test]
    fn every_sentence_names_the_server() {
        let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
        let endpoint = Endpoint::Tcp("host".into(), 7000);
        for sentence in [
            message(CertificateError::UnknownIssuer),
            message(CertificateError::NotValidForName),
            message(CertificateError::NotValidYet),
            message(CertificateError::BadSignature),
            message(CertificateError::Other(OtherError(Arc::new(io::Error::other(SELF_SIGNED))))),
            message(Error::AlertReceived(Alert::ProtocolVersion)),
            message(Error::AlertReceived(Alert::InternalError)),
            message(Error::DecryptError),
            failure(&ended, &endpoint),
            failure(&io::ErrorKind::ConnectionReset.into(), &endpoint),
        ] {
            assert!(sentence.contains("host:7000"), "{sentence}");
        }
        assert!(loss(ended, &endpoint).get_ref().is_none(), "left as it was");
    }
}
