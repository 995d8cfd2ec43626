//! What the page shows of names that are hard to see, of locks that cannot be, and of stores that know less.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tenure::Tenure;
use tenure::blocking::block_on;
use tenure_serve::{Access, Limits, Token};

use crate::chromium::{Browser, Page};
use crate::fixture::{Fixture, Options, connect_to};
use crate::{WIDE, address, row};

fn go_to(page: &Page<'_>, name: &str) {
    page.eval(&format!("location.hash = '#/lock/' + encodeURIComponent({})", json!(name)));
}

fn until_title(page: &Page<'_>, text: &str) {
    let text = json!(text);
    page.until(&format!("document.querySelector('#view-lock .title')?.innerText.includes({text})"));
}

#[test]
fn names_that_differ_look_different() {
    let fixture = Fixture::memory();
    let names = [
        ("job", "job"),
        (" job", "\\u{20}job"),
        ("job ", "job\\u{20}"),
        ("a b", "a b"),
        ("a  b", "a\\u{20} b"),
        ("a\u{a0}b", "a\\u{a0}b"),
        ("jo\u{34f}b", "jo\\u{34f}b"),
        ("job\u{fe0f}", "job\\u{fe0f}"),
        ("job\\u{fe0f}", "job\\u{5c}u{fe0f}"),
        ("a\\b", "a\\b"),
    ];
    let guards: Vec<_> =
        names.map(|(name, _)| block_on(fixture.tenure.lock(name).acquire()).unwrap()).into();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    for (name, shown) in names {
        let cell = format!("{}?.querySelector('.c-name').innerText", row(name));
        page.until(&format!("{cell} === {}", json!(shown)));
        go_to(&page, name);
        page.until(&format!(
            "document.querySelector('#view-lock h1')?.innerText === {}",
            json!(shown)
        ));
        page.eval("location.hash = '#/'");
    }
    drop(guards);
}

#[test]
fn a_lock_that_cannot_be_is_refused_and_the_page_lives_on() {
    let fixture = Fixture::memory();
    let browser = Browser::start();
    let page = browser.open(&format!("{}#/lock/", address(&fixture)), WIDE);
    for name in ["", &*"n".repeat(600)] {
        go_to(&page, name);
        page.until("document.querySelector('#view-lock .tag.bad') != null");
        page.until("document.querySelector('#pulse').innerText.includes('live')");
        page.until("document.querySelector('#banner').hidden");
        go_to(&page, "possible");
        until_title(&page, "free");
    }
}

#[test]
fn the_page_of_a_lock_that_cannot_be_read_says_why() {
    let fixture = Fixture::redis();
    let mut connection = fixture.redis.as_ref().unwrap().connect().unwrap();
    connection.command(&["SET", "tenure:{x}", "theirs"]).unwrap();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("{} != null", row("x")));
    go_to(&page, "x");
    until_title(&page, "DAMAGED");
    page.until("document.querySelector('#holders').innerText === 'unknown'");
}

#[test]
fn a_token_that_no_header_can_have_is_refused_by_the_page() {
    let token = Token::new("full-0123456789abcdef").unwrap();
    let access = Access { full: Some(token), ..Access::default() };
    let fixture = Fixture::with(Options { access, ..Options::default() });
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until("document.querySelector('#login').open");
    page.eval("document.querySelector('#login-token').focus()");
    page.type_text("ключ-0123456789abcdef");
    page.press("Enter");
    page.until("document.querySelector('#login-error').innerText.includes('ASCII')");
    assert_eq!(page.eval("document.querySelector('#login').open"), true);
    page.eval(
        "sessionStorage.setItem('tenure-token', 'ключ'); window.is_old = true; location.reload()",
    );
    page.until("!window.is_old && document.querySelector('#login')?.open");
    page.eval("document.querySelector('#login-token').focus()");
    page.type_text("full-0123456789abcdef");
    page.press("Enter");
    page.until("document.querySelector('#pulse').innerText.includes('live')");
}

/// Redisson's format has no fences, and does not say since when a lock is held.
#[test]
fn what_a_store_does_not_know_is_not_shown() {
    let redis = tenure_testkit::Server::builder().on_port().start();
    let url = format!("{}?protocol=redisson", redis.url());
    let tenure = block_on(Tenure::connect(&url)).unwrap();
    let fixture = Fixture::start(connect_to(url), tenure, Some(redis), Options::default());
    let _guard = block_on(fixture.tenure.lock("job").acquire()).unwrap();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("{}?.querySelector('.c-held').innerText === '–'", row("job")));
    assert_eq!(page.eval(&format!("{}.querySelector('.c-fence').innerText", row("job"))), "–");
    go_to(&page, "job");
    page.until("document.querySelector('#holders')?.innerText.includes('owner')");
    let shown = page.text();
    for unknown in ["fence", "null", "NaN", "1970"] {
        assert!(!shown.contains(unknown), "{shown}");
    }
}

/// Forwards connections to a server until it is frozen: then nothing passes, and no connection ends.
fn relay(server: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_frozen = Arc::new(AtomicBool::new(false));
    let flag = is_frozen.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let copies = [client.try_clone().unwrap(), upstream.try_clone().unwrap()];
            for (from, to) in copies.into_iter().zip([upstream, client]) {
                let is_frozen = flag.clone();
                std::thread::spawn(move || copy(from, to, &is_frozen));
            }
        }
    });
    (address, is_frozen)
}

fn copy(mut from: TcpStream, mut to: TcpStream, is_frozen: &AtomicBool) {
    let mut some = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut some) {
        if !is_frozen.load(Ordering::SeqCst) && to.write_all(&some[..count]).is_err() {
            break;
        }
    }
    // The server closes connections that are idle; the browser would send requests on them.
    let _ = to.shutdown(Shutdown::Both);
}

/// A server that is stopped, or behind a network that is gone, ends no connection.
#[test]
fn a_server_that_falls_silent_is_noticed() {
    let fixture = Fixture::memory();
    let (address, is_frozen) = relay(fixture.address);
    let browser = Browser::start();
    let page = browser.open(&format!("http://{address}/"), WIDE);
    page.until("document.querySelector('#pulse').innerText.includes('live')");
    is_frozen.store(true, Ordering::SeqCst);
    // Another stream is opened for a lock, and takes the place of the one before.
    go_to(&page, "job");
    page.until("document.querySelector('#banner').innerText.includes('does not answer')");
    is_frozen.store(false, Ordering::SeqCst);
    page.until("document.querySelector('#pulse').innerText.includes('live')");
}

/// Nothing changes but the time.
#[test]
fn a_lock_is_found_once_it_is_stuck() {
    let fixture = Fixture::memory();
    let guard = block_on(fixture.tenure.lock("job").acquire()).unwrap();
    let tenure = fixture.tenure.clone();
    let waiter = std::thread::spawn(move || block_on(tenure.lock("job").acquire()).unwrap());
    crate::fixture::until("it waits", || fixture.waiting("job") == 1);
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("{}?.querySelector('.c-wait').innerText === '1'", row("job")));
    page.eval("const which = document.querySelector('#which'); which.value = 'stuck'; which.dispatchEvent(new Event('input', { bubbles: true }))");
    page.until("document.querySelector('#empty').innerText.includes('No lock fits')");
    // Two minutes later.
    page.eval("tenure.model.skew += 120_000");
    page.until("document.querySelector('#count').innerText.startsWith('1 ')");
    assert_eq!(page.eval(&format!("{}.hidden", row("job"))), false);
    drop(guard);
    drop(waiter.join().unwrap());
}

/// A server that answers, and refuses, is not one that is away.
#[test]
fn the_page_says_why_its_server_refuses() {
    let limits = Limits { streams: 1, ..Limits::default() };
    let fixture = Fixture::with(Options { limits, ..Options::default() });
    let stream = fixture.send("GET", "/v1/events", &[], "");
    (&stream).read_exact(&mut [0; 12]).unwrap();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until("document.querySelector('#banner').innerText.includes('too many event streams')");
    drop(stream);
    page.until("document.querySelector('#pulse').innerText.includes('live')");
}
