//! The answers of the layer itself: `application/problem+json` (RFC 9457).

use std::fmt::Write as _;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, Response, StatusCode};

use crate::error::Error;

/// What happened, as one word for programs: the member `reason` of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Overtaken,
    Forgotten,
    Missing,
    Malformed,
    Resource,
    Memory,
}

impl Reason {
    const fn word(self) -> &'static str {
        match self {
            Self::Overtaken => "overtaken",
            Self::Forgotten => "forgotten",
            Self::Missing => "fence-missing",
            Self::Malformed => "fence-malformed",
            Self::Resource => "resource-invalid",
            Self::Memory => "memory-failed",
        }
    }
}

/// A refusal.
pub(super) struct Problem {
    status: StatusCode,
    reason: Reason,
    detail: String,
    /// Further members, as JSON, each with a comma in front.
    members: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, reason: Reason, detail: impl Into<String>) -> Self {
        Self { status, reason, detail: detail.into(), members: String::new() }
    }

    /// The answer for a fence that the memory did not admit.
    pub(super) fn of(error: &Error) -> Self {
        let conflict = |reason| Self::new(StatusCode::CONFLICT, reason, error.to_string());
        match error {
            Error::Overtaken(overtaken) => {
                let problem = conflict(Reason::Overtaken);
                let newer = ("newer", overtaken.newer().value());
                problem.with(overtaken.resource().as_str(), overtaken.fence().value(), newer)
            }
            Error::Forgotten { resource, fence, floor } => conflict(Reason::Forgotten).with(
                resource.as_str(),
                fence.value(),
                ("floor", floor.value()),
            ),
            Error::NotAFence { .. } => {
                Self::new(StatusCode::BAD_REQUEST, Reason::Malformed, error.to_string())
            }
            // The cause may name hosts and keys, which are not the client's business.
            _ => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::Memory,
                "the fence could not be checked, so the request was not processed; retry later",
            ),
        }
    }

    fn with(mut self, resource: &str, fence: u64, (name, other): (&str, u64)) -> Self {
        let resource = quote(resource);
        self.members = format!(",\"resource\":{resource},\"fence\":{fence},\"{name}\":{other}");
        self
    }

    pub(super) fn into_response<B: From<String>>(self) -> Response<B> {
        let Self { status, reason, detail, members } = self;
        let (code, title) = (status.as_u16(), status.canonical_reason().unwrap_or_default());
        let body = format!(
            "{{\"type\":\"about:blank\",\"title\":{},\"status\":{code},\"reason\":\"{}\",\"detail\":{}{members}}}",
            quote(title),
            reason.word(),
            quote(&detail)
        );
        let mut response = Response::new(B::from(body));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// A JSON string. Names come from requests, so everything that is not plain text is escaped.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{unit:04x}");
            }),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_inside_its_string() {
        assert_eq!(
            quote("a\"b\\c\n\u{202e}é𝄞</x>"),
            r#""a\"b\\c\u000a\u202e\u00e9\ud834\udd1e</x>""#
        );
    }
}
