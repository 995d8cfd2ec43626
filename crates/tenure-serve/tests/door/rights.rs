//! Tokens, foreign hosts and origins.

use serde_json::json;
use tenure_serve::{Access, Token};

use crate::fixture::{Fixture, Options};

const FULL: &str = "full-0123456789abcdef";
const READ: &str = "read-0123456789abcdef";

fn guarded() -> Fixture {
    let token = |text| Some(Token::new(text).unwrap());
    let access = Access { full: token(FULL), read: token(READ), is_read_only: false };
    Fixture::with(Options { access, ..Options::default() })
}

#[test]
fn a_token_is_required_and_has_its_rights() {
    let fixture = guarded();
    let ask = |method, path, token: &str| {
        let authorization = format!("Bearer {token}");
        fixture.ask(method, path, &[("Authorization", &authorization)], "")
    };
    for path in ["/v1/locks", "/v1/locks/x", "/v1/health", "/v1/state", "/v1/events"] {
        let refused = fixture.get(path);
        assert_eq!(refused.refused(401), "unauthorized", "{path}");
        assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"));
        assert_eq!(ask("GET", path, "wrong-0123456789abcdef").refused(401), "unauthorized");
    }
    assert_eq!(ask("GET", "/v1/locks", READ).status, 200);
    assert_eq!(ask("GET", "/v1/locks", FULL).status, 200);
    assert_eq!(ask("POST", "/v1/locks/x/acquire", READ).refused(403), "forbidden");
    assert_eq!(ask("LOCK", "/v1/terraform/x", READ).refused(403), "forbidden");
    assert_eq!(fixture.holders("x"), 0);
    assert_eq!(ask("POST", "/v1/locks/x/acquire", FULL).status, 200);
    // The page itself has no data, and asks for the token.
    assert_eq!(fixture.get("/").status, 200);
    assert_eq!(fixture.get("/healthz").status, 200);
    // A token in an address would be in logs.
    assert_eq!(fixture.get(&format!("/v1/locks?token={FULL}")).refused(401), "unauthorized");
}

#[test]
fn a_read_only_server_changes_nothing() {
    let access = Access { is_read_only: true, ..Access::default() };
    let fixture = Fixture::with(Options { access, ..Options::default() });
    assert_eq!(fixture.get("/v1/locks").status, 200);
    for operation in ["acquire", "renew", "release", "force-release"] {
        let path = format!("/v1/locks/x/{operation}");
        assert_eq!(fixture.post(&path, &json!({})).refused(403), "forbidden");
    }
    assert_eq!(fixture.ask("LOCK", "/v1/terraform/x", &[], "").refused(403), "forbidden");
    assert_eq!(fixture.holders("x"), 0);
}

/// A page whose name was made to lead here (DNS rebinding) sends that name.
#[test]
fn a_foreign_host_is_refused() {
    let hosts = vec!["locks.example.org".to_owned()];
    let fixture = Fixture::with(Options { hosts, ..Options::default() });
    for host in ["evil.example", "evil.example:7878", "127.0.0.1.evil.example", ""] {
        for path in ["/", "/v1/locks", "/v1/locks/x/acquire"] {
            let method = if path.ends_with("acquire") { "POST" } else { "GET" };
            let refused = fixture.ask(method, path, &[("Host", host)], "");
            assert!(matches!(refused.status, 400 | 403), "{host} {path}: {refused:?}");
        }
    }
    assert_eq!(fixture.holders("x"), 0);
    for host in ["localhost:1", "[::1]", "locks.example.org", "10.1.2.3:80"] {
        assert_eq!(fixture.ask("GET", "/v1/locks", &[("Host", host)], "").status, 200, "{host}");
    }
}

#[test]
fn a_page_of_another_site_cannot_act() {
    let fixture = Fixture::memory();
    let acquire = |name, value| {
        let headers = [(name, value), ("Content-Type", "text/plain")];
        fixture.ask("POST", "/v1/locks/x/acquire", &headers, "{}")
    };
    assert_eq!(acquire("Origin", "http://evil.example").refused(403), "forbidden");
    assert_eq!(acquire("Origin", "null").refused(403), "forbidden");
    assert_eq!(acquire("Sec-Fetch-Site", "cross-site").refused(403), "forbidden");
    assert_eq!(acquire("Sec-Fetch-Site", "same-site").refused(403), "forbidden");
    assert_eq!(fixture.holders("x"), 0);
    // No answer allows another origin to read it, or to send more than a form can.
    let preflight = fixture.ask("OPTIONS", "/v1/locks/x/acquire", &[("Origin", "http://e.x")], "");
    assert_eq!(preflight.status, 403);
    assert!(preflight.header("access-control-allow-origin").is_none());
    let own = format!("http://{}", fixture.address);
    assert_eq!(acquire("Origin", &own).status, 200);
}

#[test]
fn answers_have_a_strict_policy() {
    let fixture = Fixture::memory();
    for path in ["/", "/v1/locks", "/nothing"] {
        let answer = fixture.get(path);
        let policy = answer.header("content-security-policy").unwrap();
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    }
    assert_eq!(fixture.get("/v1/locks").header("cache-control"), Some("no-store"));
}
