//! The files of the dashboard, which are part of the program. They have no data in them, so they need no token.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, Response, header};

use crate::problem::Problem;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";

macro_rules! file {
    ($path:literal, $kind:expr, $file:literal) => {
        ($path, $kind, include_str!(concat!("../assets/", $file)))
    };
}

const FILES: [(&str, &str, &str); 13] = [
    file!("/", HTML, "index.html"),
    file!("/assets/style.css", CSS, "style.css"),
    file!("/assets/mark.svg", SVG, "mark.svg"),
    file!("/assets/app.js", SCRIPT, "app.js"),
    file!("/assets/dom.js", SCRIPT, "dom.js"),
    file!("/assets/feed.js", SCRIPT, "feed.js"),
    file!("/assets/force.js", SCRIPT, "force.js"),
    file!("/assets/format.js", SCRIPT, "format.js"),
    file!("/assets/lock.js", SCRIPT, "lock.js"),
    file!("/assets/model.js", SCRIPT, "model.js"),
    file!("/assets/store.js", SCRIPT, "store.js"),
    file!("/assets/table.js", SCRIPT, "table.js"),
    file!("/v1/openapi.json", JSON, "openapi.json"),
];

/// Whether a path leads to something that each client may get.
pub(crate) fn is_open(path: &str) -> bool {
    path == "/healthz" || FILES.iter().any(|(it, ..)| *it == path)
}

/// The answer to a request for a file; none if there is no such file.
pub(crate) fn answer(request: &Request) -> Option<Result<Response<Body>, Problem>> {
    let path = request.uri().path();
    let (kind, content) = match path {
        "/healthz" => ("text/plain; charset=utf-8", "ok\n"),
        _ => FILES.iter().find(|(it, ..)| *it == path).map(|(_, kind, text)| (*kind, *text))?,
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some(Err(Problem::method("GET, HEAD")));
    }
    let mut response = Response::new(Body::from(content));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // Another version of the program has other files.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(Ok(response))
}
