//! A server that hangs up right behind bytes that it has sent: both reach the client as one event.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tenure::Tenure;
use tenure_testkit::Server;

use super::fixture::{LONG, ms, pass};

/// Forwards bytes. When it is armed, it forwards one byte of what follows the next request of an owner, and closes the
/// connection: other connections have replies at any time, and a release that failed is sent again in the background. Not all but
/// the last byte: the reply may come together with others, of which the last would be cut.
struct Relay {
    url: String,
    armed_for: Arc<Mutex<Option<String>>>,
}

impl Relay {
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let armed_for = Arc::<Mutex<Option<String>>>::default();
        let (port, armed) = (server.port().unwrap(), armed_for.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, armed) = (client.unwrap(), armed.clone());
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let cuts = Arc::new(AtomicBool::new(false));
                let next = cuts.clone();
                let note = move |bytes: &[u8]| {
                    let is_of = |owner: &mut String| {
                        bytes.windows(owner.len()).any(|part| part == owner.as_bytes())
                    };
                    if armed.lock().unwrap().take_if(is_of).is_some() {
                        next.store(true, SeqCst);
                    }
                    false
                };
                std::thread::spawn(move || forward(from, to, note));
                std::thread::spawn(move || forward(server, client, |_| cuts.swap(false, SeqCst)));
            }
        });
        Self { url, armed_for }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_cut: impl Fn(&[u8]) -> bool) {
    to.set_nodelay(true).unwrap();
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_cut = is_cut(&bytes[..count]);
        let forwarded = if is_cut { 1 } else { count };
        if to.write_all(&bytes[..forwarded]).is_err() || is_cut {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// I7: the end of a connection is noticed at once, also where it comes together with bytes, and whichever thread reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_within_a_reply_is_noticed_at_once() {
    let server = Server::builder().on_port().start();
    for on_this_runtime in [false, true] {
        let relay = Relay::start(&server);
        let builder = Tenure::builder();
        let builder = if on_this_runtime { builder.read_on_this_runtime() } else { builder };
        let tenure = builder.connect(&relay.url).await.unwrap();
        for _ in 0..5 {
            let seen = tokio::time::timeout(LONG, async {
                while !tenure.health().is_well() {
                    pass(ms(5)).await;
                }
            });
            seen.await.expect("connected");
            let guard = tenure.lock("x").acquire().await.unwrap();
            *relay.armed_for.lock().unwrap() = Some(guard.owner().to_string());
            let error = guard.release().await.unwrap_err().to_string();
            // Silence ends a connection after two seconds: then the end was not noticed, but inferred.
            assert!(error.contains("the server closed the connection"), "{error}");
        }
    }
}
