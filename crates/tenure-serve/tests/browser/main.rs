//! The dashboard (R29) in a real browser, on a real store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chromium;
#[path = "../door/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the interface")]
mod fixture;
mod looks;
mod speed;
mod unusual;

use std::time::Duration;

use serde_json::json;
use tenure::blocking::block_on;
use tenure_serve::{Access, Token};

use chromium::{Browser, Page, now};
use fixture::{Fixture, Options};

const WIDE: (u32, u32) = (1280, 800);

fn address(fixture: &Fixture) -> String {
    format!("http://{}/", fixture.address)
}

/// The text of the table's row of a lock, or null.
fn row(name: &str) -> String {
    let selector = format!(
        "[...document.querySelectorAll('#runway .row:not([hidden])')].find((row) => row.dataset.name === {})",
        json!(name)
    );
    format!("({selector})")
}

/// Nothing has failed in the page, and nothing was asked of another server.
fn is_clean(page: &Page<'_>, fixture: &Fixture) {
    for event in ["Runtime.exceptionThrown", "Log.entryAdded"] {
        assert_eq!(page.events(event), [] as [serde_json::Value; 0]);
    }
    let own = address(fixture);
    let requests = page.events("Network.requestWillBeSent");
    assert!(requests.len() > 10, "{}", requests.len());
    for request in requests {
        let url = request["request"]["url"].as_str().unwrap();
        assert!(url.starts_with(&own), "{url}");
    }
}

#[test]
fn the_page_shows_a_lock_and_follows_its_hand_over_within_a_second() {
    let fixture = Fixture::redis();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until("document.body.innerText.includes('No lock is held or wanted')");
    let lock = fixture.tenure.lock("orders/42");
    let guard = block_on(lock.clone().note("first").acquire()).unwrap();
    page.until(&format!("{}?.innerText.includes('first')", row("orders/42")));
    let fence = guard.fence().to_string();
    page.until(&format!("{}.innerText.includes('{fence}')", row("orders/42")));
    let second = lock.note("second");
    let waiter = std::thread::spawn(move || block_on(second.acquire()).unwrap());
    page.until(&format!("{}.querySelector('.c-wait').innerText === '1'", row("orders/42")));
    block_on(guard.release()).unwrap();
    let released = now();
    let guard = waiter.join().unwrap();
    page.until(&format!("{}.innerText.includes('second')", row("orders/42")));
    assert!(released.elapsed() < Duration::from_secs(1), "{:?}", released.elapsed());
    block_on(guard.release()).unwrap();
    page.until(&format!("{} == null", row("orders/42")));
    is_clean(&page, &fixture);
}

#[test]
fn the_page_of_a_lock_shows_holders_queue_and_timeline_and_forces_a_release() {
    let fixture = Fixture::redis();
    let lock = fixture.tenure.lock("deploy");
    let guard = block_on(lock.clone().note("a long deployment").acquire()).unwrap();
    let tenure = fixture.tenure.clone();
    let waiter = std::thread::spawn(move || {
        block_on(tenure.lock("deploy").note("the next one").acquire()).unwrap()
    });
    fixture::until("it waits", || fixture.waiting("deploy") == 1);
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("{} != null", row("deploy")));
    // By keyboard: the search, the first row, its page.
    page.press("/");
    page.type_text("depl");
    page.press("Enter");
    page.until("document.activeElement.dataset.name === 'deploy'");
    page.press("Enter");
    page.until("location.hash === '#/lock/deploy'");
    page.until("document.querySelector('#holders')?.innerText.includes('a long deployment')");
    page.until("document.querySelector('#queue').innerText.includes('1.')");
    page.until("document.querySelector('#queue').innerText.includes('the next one')");
    page.click("#view-lock button.danger");
    page.until("document.querySelector('#force').open");
    page.until("document.querySelector('#force-go').disabled");
    page.type_text("it hangs <b>");
    page.eval("document.querySelector('#force-name').focus()");
    page.type_text("deplo");
    page.until("document.querySelector('#force-go').disabled");
    page.type_text("y");
    page.until("!document.querySelector('#force-go').disabled");
    page.click("#force-go");
    page.until("!document.querySelector('#force').open");
    block_on(guard.lost());
    let second = waiter.join().unwrap();
    page.until("document.querySelector('#holders').innerText.includes('the next one')");
    page.until("document.querySelector('.log').innerText.includes('it hangs <b>')");
    page.until("document.querySelector('.plot .hold.forced') != null");
    let recorded = block_on(fixture.tenure.lock("deploy").inspect()).unwrap().forced.unwrap();
    assert_eq!(&*recorded.reason, "it hangs <b>");
    drop(second);
    page.until("document.querySelector('#holders').innerText.includes('not held')");
    page.press("Escape");
    page.until("location.hash === '#/'");
    is_clean(&page, &fixture);
}

#[test]
fn the_page_survives_a_restart_of_the_store() {
    let mut fixture = Fixture::redis();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    fixture.post("/v1/locks/before/acquire", &json!({})).ok();
    page.until(&format!("{} != null", row("before")));
    fixture.redis.as_mut().unwrap().kill();
    page.until("!document.querySelector('#banner').hidden");
    page.until("document.querySelector('#banner').innerText.includes('cannot be read')");
    page.until(&format!("{} != null", row("before")));
    fixture.redis.as_mut().unwrap().restart();
    page.until("document.querySelector('#banner').hidden");
    fixture::until("it works again", || {
        fixture.post("/v1/locks/after/acquire", &json!({ "wait_ms": 0 })).status == 200
    });
    page.until(&format!("{} != null", row("after")));
}

#[test]
fn the_page_says_that_its_server_is_away() {
    let mut fixture = Fixture::redis();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until("document.querySelector('#pulse').innerText.includes('live')");
    fixture.stop();
    page.until("document.querySelector('#banner').innerText.includes('does not answer')");
}

#[test]
fn hostile_names_and_notes_are_shown_as_text() {
    let fixture = Fixture::redis();
    let script = "<script>window.hacked = 1</script>";
    let image = "<img src=x onerror='window.hacked = 2'>";
    let reordered = "\u{202e}gnp.exe";
    let long = "é".repeat(256);
    let names = [script, image, reordered, &*long, "{{7*7}}", "a\nb\u{7}c", "javascript:alert(1)"];
    let guards: Vec<_> = names
        .iter()
        .map(|name| {
            block_on(fixture.tenure.lock(*name).note(format!("{image}{reordered}")).acquire())
        })
        .collect();
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    for name in names {
        page.until(&format!("{} != null", row(name)));
    }
    let shown = page.text();
    assert!(shown.contains(script) && shown.contains(image), "{shown}");
    assert!(shown.contains("\\u{202e}gnp.exe") && !shown.contains('\u{202e}'), "{shown}");
    assert!(shown.contains("a\\u{a}b\\u{7}c"), "{shown}");
    // The page of each, too; and a release whose name cannot be typed is confirmed as it is shown.
    for name in names {
        page.eval(&format!("location.hash = '#/lock/' + encodeURIComponent({})", json!(name)));
        page.until("document.querySelector('#holders')?.innerText.includes('fence')");
    }
    page.eval(&format!("location.hash = '#/lock/' + encodeURIComponent({})", json!(reordered)));
    page.until("document.querySelector('#holders')?.innerText.includes('fence') && !document.querySelector('#view-lock button.danger').hidden");
    page.click("#view-lock button.danger");
    page.type_text("hostile");
    page.eval("document.querySelector('#force-name').focus()");
    page.type_text("\\u{202e}gnp.exe");
    page.click("#force-go");
    block_on(guards[2].lost());
    assert_eq!(page.eval("window.hacked === undefined && document.scripts.length"), 1);
    assert_eq!(page.eval("document.querySelectorAll('img').length"), 1);
    is_clean(&page, &fixture);
}

#[test]
fn the_page_asks_for_a_token_and_offers_what_it_allows() {
    let token = |text| Some(Token::new(text).unwrap());
    let access = Access {
        full: token("full-0123456789abcdef"),
        read: token("read-0123456789abcdef"),
        is_read_only: false,
    };
    let fixture = Fixture::with(Options { access, ..Options::default() });
    let guard = block_on(fixture.tenure.lock("secret-name").acquire()).unwrap();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until("document.querySelector('#login').open");
    for _ in 0..3 {
        page.press("Escape");
    }
    page.until("document.querySelector('#login').open");
    assert!(!page.text().contains("secret-name"));
    let enter = |text: &str| {
        page.eval("document.querySelector('#login-token').focus()");
        page.type_text(text);
        page.press("Enter");
    };
    enter("wrong-0123456789abcdef");
    page.until(
        "document.querySelector('#login').open && !document.querySelector('#login-error').hidden",
    );
    enter("read-0123456789abcdef");
    page.until(&format!("{} != null", row("secret-name")));
    page.eval("location.hash = '#/lock/secret-name'");
    page.until("document.querySelector('#holders')?.innerText.includes('fence')");
    assert_eq!(page.eval("document.querySelector('#view-lock button.danger').hidden"), true);
    page.eval("sessionStorage.setItem('tenure-token', 'full-0123456789abcdef'); location.reload()");
    page.until("document.querySelector('#view-lock button.danger')?.hidden === false");
    assert!(!page.eval("location.href").as_str().unwrap().contains("0123456789"));
    drop(guard);
}
