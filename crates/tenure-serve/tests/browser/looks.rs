//! How the page looks: from a telephone to a wall screen, in light and dark, for a screen reader; and the pictures of it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::blocking::block_on;
use tenure::engine::QuorumEngine;
use tenure::{About, Guard, Tenure};
use tenure_testkit::{Cluster, Flavor, Sentinels, Server};

use crate::chromium::{Browser, Page};
use crate::fixture::{self, Fixture};
use crate::{WIDE, address, row};

/// Locks as a shop might have them, each held by a client of its own machine.
fn shop(fixture: &Fixture) -> Vec<Guard> {
    let url = fixture.redis.as_ref().unwrap().url();
    let client = |host: &str, program: &str, pid: u32| {
        let mut about = About::this_process();
        (about.host, about.program, about.pid) = (host.into(), program.into(), pid);
        block_on(Tenure::builder().about(about).connect(&url)).unwrap()
    };
    let (web, batch) = (client("web-2", "checkout", 2214), client("batch-1", "reports", 871));
    let (ci, media) = (client("ci-7", "deploy.sh", 40_112), client("media-3", "encoder", 1509));
    let held = |tenure: &Tenure, name: &str, note: &str| {
        block_on(tenure.lock(name).note(note).acquire()).unwrap()
    };
    let mut guards = vec![
        held(&batch, "billing/invoices/2024-11", "closing the month"),
        held(&ci, "deploy/eu-west", "release 4.18.2 by Ann"),
        held(&batch, "search/reindex", "full rebuild"),
        held(&batch, "reports/nightly", "run 7"),
    ];
    for number in 1..=24 {
        let name = format!("orders/{:05}", 41_870 + number * 13);
        let lease = Duration::from_secs(12 + number * 7 % 40);
        let lock = web.lock(name.as_str()).lease(lease).note("charging the card");
        guards.push(block_on(lock.acquire()).unwrap());
    }
    for number in 1..=3 {
        let slot = media.semaphore("encoder/slots", 4).note(&format!("video {number}"));
        guards.push(block_on(slot.acquire()).unwrap());
    }
    for _ in 0..2 {
        guards.push(block_on(web.rwlock("catalogue").read()).unwrap());
    }
    guards
}

/// Where pictures go: to a folder that is kept, if one is named.
fn pictures() -> PathBuf {
    let folder = std::env::var_os("TENURE_PICTURES").map(PathBuf::from);
    folder.unwrap_or_else(|| std::env::temp_dir().join("tenure-pictures"))
}

fn take(page: &Page<'_>, name: &str) {
    std::fs::create_dir_all(pictures()).unwrap();
    page.picture(&pictures().join(format!("{name}.png")));
}

/// No part is cut off at the side, and every text has enough contrast.
fn fits(page: &Page<'_>, what: &str) {
    let overflow = "[...document.querySelectorAll('body, header, main, .sheet, .tools, .summary, .grid, .card, dialog[open]')]
        .filter((it) => it.offsetParent !== null && it.scrollWidth > it.clientWidth + 1).map((it) => it.className || it.tagName)";
    assert_eq!(page.eval(overflow), json!([]), "{what}");
    assert_eq!(page.eval(CONTRAST), json!([]), "{what}");
}

/// The texts whose contrast with their background is below 4.5, as WCAG computes it.
const CONTRAST: &str = r"(() => {
  const light = (color) => {
    const parts = color.match(/[\d.]+/g).slice(0, 3).map((it) => it / 255)
      .map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const back = (it) => {
    for (; it; it = it.parentElement) {
      const color = getComputedStyle(it).backgroundColor;
      if (!/, 0\)|transparent/.test(color)) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const bad = new Set();
  for (const it of document.querySelectorAll('body *')) {
    const own = [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !it.checkVisibility({ visibilityProperty: true }) || it.closest('svg, option, .hidden, :disabled')) continue;
    const [a, b] = [light(getComputedStyle(it).color), light(back(it))].sort((a, b) => b - a);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) bad.add(`${it.tagName}.${it.className}: ${contrast.toFixed(2)}`);
  }
  return [...bad];
})()";

#[test]
fn the_page_fits_every_screen_in_light_and_dark() {
    let fixture = Fixture::redis();
    let _guards = shop(&fixture);
    let _reports =
        fixture.send("POST", "/v1/locks/reports/nightly/acquire", &[], r#"{"wait_ms":200000}"#);
    let waiters: Vec<_> = ["the next release", "a rollback", "release 4.18.3"]
        .map(|note| {
            fixture.send(
                "POST",
                "/v1/locks/deploy/eu-west/acquire",
                &[],
                &json!({ "note": note, "wait_ms": 200_000 }).to_string(),
            )
        })
        .into();
    fixture::until("they wait", || fixture.waiting("deploy/eu-west") == waiters.len());
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("{} != null", row("deploy/eu-west")));
    let sizes =
        [("phone", 360, 740), ("tablet", 820, 1100), ("laptop", 1280, 800), ("wall", 2560, 1440)];
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for (size, width, height) in sizes {
            page.resize(width, height);
            for (view, hash) in
                [("locks", "#/"), ("lock", "#/lock/deploy%2Feu-west"), ("store", "#/store")]
            {
                page.eval(&format!("location.hash = '{hash}'"));
                page.until(match view {
                    "locks" => "document.querySelectorAll('#runway .row:not([hidden])').length > 5",
                    "lock" => "document.querySelector('#queue')?.innerText.includes('a rollback')",
                    _ => "document.querySelector('#view-store')?.innerText.includes('persistence')",
                });
                let what = format!("{view}-{size}-{scheme}");
                fits(&page, &what);
                take(&page, &what);
            }
        }
    }
    page.resize(360, 740);
    page.eval("location.hash = '#/lock/deploy%2Feu-west'");
    page.until("document.querySelector('#view-lock button.danger')?.hidden === false");
    page.eval("document.querySelector('#view-lock button.danger').click()");
    fits(&page, "dialog");
    take(&page, "force-phone-dark");
}

#[test]
fn the_page_has_landmarks_and_names_for_a_screen_reader() {
    let fixture = Fixture::redis();
    let _guards = shop(&fixture);
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("{} != null", row("catalogue")));
    let tree = page.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let role = |it: &Value| it["role"]["value"].as_str().unwrap_or_default().to_owned();
    let roles: Vec<_> = nodes.iter().map(role).collect();
    for wanted in
        ["banner", "navigation", "main", "search", "table", "row", "columnheader", "cell", "status"]
    {
        assert!(roles.iter().any(|it| it == wanted), "{wanted} is not among {roles:?}");
    }
    for it in nodes.iter().filter(|it| it["ignored"] == false) {
        let role = role(it);
        if ["button", "link", "textbox", "searchbox", "combobox", "table", "navigation"]
            .contains(&&*role)
        {
            assert!(!it["name"]["value"].as_str().unwrap_or_default().is_empty(), "{it}");
        }
    }
    assert_eq!(page.eval("document.documentElement.lang"), "en");
}

#[test]
fn locks_are_searched_filtered_and_sorted() {
    let fixture = Fixture::redis();
    let _guards = shop(&fixture);
    let _waiting =
        fixture.send("POST", "/v1/locks/search/reindex/acquire", &[], r#"{"wait_ms":200000}"#);
    fixture::until("it waits", || fixture.waiting("search/reindex") == 1);
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), (1280, 1600));
    let names = "[...document.querySelectorAll('#runway .row:not([hidden])')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((row) => row.dataset.name)";
    let choose = |id: &str, value: &str| {
        page.eval(&format!("(() => {{ const it = document.getElementById('{id}'); it.value = {}; it.dispatchEvent(new Event('input')); }})()", json!(value)));
    };
    page.until(&format!("{names}.length === 30"));
    choose("search", "orders/4");
    page.until(&format!("{names}.length === 24"));
    choose("search", "closing the MONTH");
    page.until(&format!("{names}.join() === 'billing/invoices/2024-11'"));
    choose("search", "");
    choose("kind", "semaphore");
    page.until(&format!("{names}.join() === 'encoder/slots'"));
    choose("kind", "");
    choose("which", "waited");
    page.until(&format!("{names}.join() === 'search/reindex'"));
    choose("which", "");
    page.eval("[...document.querySelectorAll('#head button')].at(-1).click()");
    page.until(&format!("{names}[0] === 'search/reindex'"));
    assert_eq!(
        page.eval("document.querySelector('#head [aria-sort=ascending]').textContent"),
        "Waiting"
    );
    page.eval("document.querySelector('#head button').click()");
    page.eval("document.querySelector('#head button').click()");
    page.until(&format!("{names}[0] === 'search/reindex' && {names}[1] === 'reports/nightly'"));
}

/// Every server of a store that has several, with its role and state; a dead one is seen as such.
#[test]
fn the_servers_of_a_store_are_shown() {
    let cluster = Cluster::builder(Flavor::Valkey).primaries(3).replicas(1).start();
    let sentinels = Sentinels::start(Flavor::Redis, 1);
    let mut nodes: Vec<_> = (0..3).map(|_| Server::builder().on_port().start()).collect();
    let ports: Vec<_> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port().unwrap())).collect();
    let quorum = format!("redis+quorum://{}", ports.join(","));
    block_on(QuorumEngine::mark_nodes(&quorum, None, false)).unwrap();
    let browser = Browser::start();
    for (form, url, roles) in [
        ("cluster", cluster.url(), ["3 primary", "3 replica"]),
        ("sentinel", sentinels.url(), ["1 replica", "3 sentinel"]),
        ("quorum", quorum, ["3 primary", "0 replica"]),
    ] {
        let tenure = block_on(Tenure::connect(&url)).unwrap();
        let connect = fixture::connect_to(url);
        let fixture = Fixture::start(connect, tenure, None, fixture::Options::default());
        let page = browser.open(&format!("{}#/store", address(&fixture)), WIDE);
        let tags = "[...document.querySelectorAll('.node:not(.down) > .who .tag')].map((it) => it.textContent)";
        for role in roles {
            let (count, role) = role.split_once(' ').unwrap();
            page.until(&format!("{tags}.filter((it) => it === '{role}').length === {count}"));
        }
        fits(&page, form);
        take(&page, &format!("servers-{form}"));
        if form == "quorum" {
            nodes[1].kill();
            page.until("document.querySelectorAll('.node.down').length === 1");
            page.until(
                "document.querySelector('#view-store').innerText.includes('2 of 3 vote, 2 decide')",
            );
        }
    }
}
