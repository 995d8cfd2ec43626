//! A page with 10,000 locks. The test prints how long its first paint took, and what an update costs; both depend on what else
//! the machine does, so they are not judged here.

use serde_json::json;
use tenure::blocking::block_on;

use crate::chromium::Browser;
use crate::fixture::Fixture;
use crate::{WIDE, address, row};

const MANY: usize = 10_000;

#[test]
fn ten_thousand_locks_are_a_hundred_rows_at_most() {
    let fixture = Fixture::memory();
    let guards: Vec<_> = (0..MANY - 1)
        .map(|number| {
            let name = format!("orders/{number:05}");
            block_on(fixture.tenure.lock(name.as_str()).note("charging the card").acquire())
                .unwrap()
        })
        .collect();
    let browser = Browser::start();
    let page = browser.open(&address(&fixture), WIDE);
    page.until(&format!("document.querySelector('#count').textContent.startsWith('{}')", "9,999"));
    page.until(&format!("{} != null", row("orders/00000")));
    let paint = page.eval(
        "performance.getEntriesByType('paint').find((it) => it.name === 'first-contentful-paint').startTime",
    );
    assert!(paint.as_f64().is_some(), "{paint}");
    let rows = page.eval("document.querySelectorAll('#runway .row').length");
    assert!(rows.as_u64().unwrap() < 100, "{rows}");
    page.eval("tenure.costs.length = 0");
    let _last = block_on(fixture.tenure.lock("a-new-one").acquire()).unwrap();
    page.until(&format!("{} != null", row("a-new-one")));
    drop(guards.into_iter().take(100).collect::<Vec<_>>());
    page.until(&format!("{} == null", row("orders/00050")));
    let costs = page.eval("tenure.costs");
    let most = costs.as_array().unwrap().iter().filter_map(|it| it.as_f64()).fold(0.0, f64::max);
    assert!(most > 0.0, "an update was measured: {costs}");
    // To the end and back, by keyboard.
    page.eval("document.querySelector('#runway .row[tabindex=\"0\"]').focus()");
    page.press("End");
    page.until(&format!("{} === document.activeElement", row("orders/09998")));
    println!("first paint {paint} ms, an update {most} ms at most: {}", json!(costs));
}
