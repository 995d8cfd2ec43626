//! What is refused before a handler runs, and the headers of all answers.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, Response, header};
use axum::response::IntoResponse;

use crate::access::Right;
use crate::page;
use crate::problem::Problem;
use crate::server::Server;

/// Only the page's own files are loaded and asked, and no other page embeds it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Why a request is refused.
pub(crate) fn refusal(server: &Server, request: &Request) -> Option<Problem> {
    let is_open = page::is_open(request.uri().path());
    let is_looking = matches!(*request.method(), Method::GET | Method::HEAD);
    if let Some(why) = server.hosts().refusal(request.headers(), is_open && is_looking) {
        return Some(Problem::forbidden(why));
    }
    if is_open && is_looking {
        return None;
    }
    let access = server.access();
    match (access.right(request.headers()), is_looking) {
        (Right::Act, _) | (Right::Look, true) => None,
        (Right::Look, false) if access.is_read_only => {
            Some(Problem::forbidden("this server is read-only: nothing can be changed here"))
        }
        (Right::Look, false) => Some(Problem::forbidden("this token may only be used to look")),
        (Right::None, _) => Some(Problem::unauthorized(
            "send the token in the header Authorization, as `Bearer TOKEN`",
        )),
    }
}

/// The answer, with the headers that all answers have.
pub(crate) fn closed(answer: impl IntoResponse) -> Response<Body> {
    let mut response = answer.into_response();
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What is shown is out of date a moment later.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
