//! A session with a peer that reads slowly and changes its keys, as real servers seldom do.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream as Plain};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::engine::redis::address::Address;
use crate::engine::redis::stream::{self, Stream};

/// More than all buffers hold, and a multiple of no buffer size.
const LENGTH: usize = 3_000_017;

type Peer = StreamOwned<ServerConnection, Plain>;

/// Connects to a peer that runs `act`.
async fn with_peer<T: Send + 'static>(
    act: impl FnOnce(Peer) -> T + Send + 'static,
) -> (Tls, JoinHandle<T>) {
    let folder = tempfile::tempdir().unwrap();
    tenure_testkit::Tls::default().write(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, ca) = (listener.local_addr().unwrap().port(), folder.path().join("ca.pem"));
    let config = Arc::new(server_config(folder.path()));
    let peer = std::thread::spawn(move || {
        let socket = listener.accept().unwrap().0;
        act(StreamOwned::new(ServerConnection::new(config).unwrap(), socket))
    });
    let url = format!("rediss://127.0.0.1:{port}?ca={}", ca.display());
    match stream::open(
        &Address::parse(&url).unwrap().master.locate(&Default::default()).await.unwrap(),
    )
    .await
    .unwrap()
    {
        Stream::Tls(tls) => {
            // The smallest buffer, so that it is full within a record.
            sockopt::set_socket_send_buffer_size(&tls.socket, 1).unwrap();
            (*tls, peer)
        }
        _ => panic!("without TLS"),
    }
}

fn server_config(folder: &std::path::Path) -> ServerConfig {
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let certificate = CertificateDer::from_pem_slice(&read("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&read("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()
}

fn bytes() -> Vec<u8> {
    (0..LENGTH).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

/// Writes all bytes; returns how often the socket was full.
async fn write(tls: &Tls, mut bytes: &[u8]) -> usize {
    let mut full = 0;
    while !bytes.is_empty() {
        match tls.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                assert!(lock(&tls.session).encrypted <= AT_ONCE, "too much is kept");
                full += 1;
                tls.socket.writable().await.unwrap();
            }
        }
    }
    full
}

/// Reads as the I/O thread does.
async fn read(tls: &Tls, into: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match tls.try_read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tls.socket.readable().await?
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            taken => return taken.map(|taken| taken.bytes),
        }
    }
}

#[tokio::test]
async fn a_full_socket_loses_and_repeats_nothing() {
    let (tls, peer) = with_peer(|mut peer| {
        let mut received = vec![0; LENGTH];
        peer.read_exact(&mut received).unwrap();
        received
    })
    .await;
    let full = write(&tls, &bytes()).await;
    assert!(full > 0, "the socket was never full");
    assert!(peer.join().unwrap() == bytes(), "different bytes arrived");
}

#[tokio::test]
async fn both_directions_work_while_the_peer_changes_its_keys() {
    let (tls, peer) = with_peer(|mut peer| {
        let mut received = vec![0; LENGTH];
        for part in received.chunks_mut(100_000) {
            peer.read_exact(part).unwrap();
            peer.conn.refresh_traffic_keys().unwrap();
            peer.write_all(part).unwrap();
        }
        received
    })
    .await;
    let (mut received, sent) = (Vec::new(), bytes());
    let reading = async {
        while received.len() < LENGTH {
            assert_ne!(read(&tls, &mut received).await.unwrap(), 0, "closed");
        }
    };
    tokio::join!(reading, write(&tls, &sent));
    assert!(received == sent && peer.join().unwrap() == sent, "different bytes arrived");
}

#[tokio::test]
async fn bytes_before_the_end_are_received() {
    let (tls, peer) = with_peer(|mut peer| {
        // With the end of the handshake, and so before the client's first request.
        peer.write_all(b"first").unwrap();
        peer.conn.send_close_notify();
        peer.flush().unwrap();
        // The socket stays open: the alert alone must end the stream.
        peer
    })
    .await;
    let mut received = Vec::new();
    while read(&tls, &mut received).await.unwrap() > 0 {}
    assert_eq!(received, b"first");
    drop(peer.join().unwrap());
}
