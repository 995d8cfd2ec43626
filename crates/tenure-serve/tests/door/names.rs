//! Names in addresses: any UTF-8, also hostile text.

use serde_json::json;
use tenure::blocking::block_on;

use crate::fixture::Fixture;

fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn any_name_can_be_addressed() {
    let fixture = Fixture::redis();
    let long = "é".repeat(256);
    let names = [
        "a b",
        "orders/42",
        "a/acquire",
        "a%2Fb",
        "文件",
        "..",
        "\u{202e}gnp.exe",
        "<script>alert(1)</script>",
        "x\r\nSet-Cookie: a=b",
        "{tag}?query#fragment&=+",
        &*long,
    ];
    for name in names {
        let path = format!("/v1/locks/{}", encoded(name));
        let granted = fixture.post(&format!("{path}/acquire"), &json!({})).ok();
        assert_eq!(granted["name"], name);
        assert!(!block_on(fixture.tenure.lock(name).inspect()).unwrap().is_free(), "{name:?}");
        assert_eq!(fixture.get(&path).ok()["name"], name);
        let handle = json!({ "handle": granted["handle"] });
        fixture.post(&format!("{path}/renew"), &handle).ok();
        fixture.post(&format!("{path}/release"), &handle).ok();
        assert!(block_on(fixture.tenure.lock(name).inspect()).unwrap().is_free(), "{name:?}");
    }
}

#[test]
fn slashes_need_no_encoding_and_double_encoding_is_another_name() {
    let fixture = Fixture::memory();
    let acquire = |path: &str| fixture.post(&format!("/v1/locks/{path}/acquire"), &json!({})).ok();
    assert_eq!(acquire("a/b/c")["name"], "a/b/c");
    assert_eq!(acquire("d%2Fe")["name"], "d/e");
    assert_eq!(acquire("d%252Fe")["name"], "d%2Fe");
    assert_eq!(fixture.get("/v1/locks/a/b/c").ok()["holding"], 1);
}

#[test]
fn what_is_no_name_is_refused() {
    let fixture = Fixture::memory();
    for bad in ["%", "%4", "%zz", "%FF", "%C3%28", ""] {
        let answer = fixture.post(&format!("/v1/locks/{bad}/acquire"), &json!({}));
        assert_eq!(answer.refused(400), "usage", "{bad}");
    }
    let long = format!("/v1/locks/{}/acquire", "x".repeat(513));
    assert_eq!(fixture.post(&long, &json!({})).refused(400), "usage");
    assert_eq!(fixture.post("/v1/locks/x/steal", &json!({})).refused(404), "not-found");
    assert_eq!(fixture.post("/v1/locks/acquire", &json!({})).refused(404), "not-found");
    assert_eq!(fixture.get("/v2/locks").refused(404), "not-found");
    assert_eq!(fixture.ask("DELETE", "/v1/locks/x", &[], "").refused(405), "usage");
}
