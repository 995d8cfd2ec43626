//! Refusals: `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tenure::{Error, LockName};

use crate::word::Word;

/// A refusal.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    word: &'static str,
    exit: Option<u8>,
    detail: String,
    /// Further members.
    members: Map<String, Value>,
    /// When to try again, in seconds.
    retry_after: Option<u32>,
    /// The methods that are possible.
    allow: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, word: &'static str, detail: impl Into<String>) -> Self {
        let (detail, members) = (detail.into(), Map::new());
        Self { status, word, exit: None, detail, members, retry_after: None, allow: None }
    }

    /// A refusal for which the command has an exit status.
    pub(crate) fn of_word(word: Word, detail: impl Into<String>) -> Self {
        let status = match word {
            Word::Usage => StatusCode::BAD_REQUEST,
            Word::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Word::System => StatusCode::INTERNAL_SERVER_ERROR,
            Word::NotAcquired => StatusCode::LOCKED,
            Word::Lost => StatusCode::GONE,
        };
        Self { exit: Some(word as u8), ..Self::new(status, word.text(), detail) }
    }

    /// The request is wrong.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::of_word(Word::Usage, detail)
    }

    /// No token, or a wrong one.
    pub(crate) fn unauthorized(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// The client may not do this.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            "there is nothing here: /v1/openapi.json describes what is",
        )
    }

    /// Another method is needed; `allowed` is as the header Allow has it.
    pub(crate) fn method(allowed: &'static str) -> Self {
        let detail = format!("only {} is possible here", allowed.replace(", ", " or "));
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "usage", detail);
        Self { allow: Some(allowed), ..problem }
    }

    pub(crate) fn too_large(most: usize) -> Self {
        let detail = format!("the body of a request may have {most} bytes at most");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    pub(crate) fn too_slow() -> Self {
        let detail = "the body of the request did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail)
    }

    /// A bound is reached.
    pub(crate) fn overloaded(what: &str) -> Self {
        let detail = format!("too many {what} at once: try again later");
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail);
        Self { retry_after: Some(1), ..problem }
    }

    /// This server ends.
    pub(crate) fn stopping() -> Self {
        let detail = "this server is being stopped: nothing was acquired, ask another one";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail);
        Self { retry_after: Some(1), ..problem }
    }

    /// This server ends, and has released the lock of a stream.
    pub(crate) fn stopped_holding(name: &LockName) -> Self {
        let detail = format!("this server is being stopped: `{name}` was released");
        Self { detail, ..Self::stopping() }
    }

    /// The same refusal, with another status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same refusal, with one more member.
    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.members.insert(member.to_owned(), value);
        self
    }

    /// The same refusal, as the data of an event.
    pub(crate) fn to_json(&self) -> Value {
        let mut body = json!({
            "type": format!("urn:tenure:problem:{}", self.word),
            "title": self.word,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let (Some(exit), Some(fields)) = (self.exit, body.as_object_mut()) {
            fields.insert("exit".to_owned(), exit.into());
        }
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.members.clone());
        }
        body
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = Self::of_word(Word::of(&error), error.to_string());
        match error {
            Error::Mismatch { kind, limit, .. } => problem
                .with_status(StatusCode::CONFLICT)
                .with("kind", kind.to_string().into())
                .with("limit", limit.into()),
            Error::Upgrade { .. } => problem.with_status(StatusCode::CONFLICT),
            _ => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let body = Body::from(self.to_json().to_string());
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"tenure\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
