//! The body of a request: a JSON object, within bounds of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::problem::Problem;

/// The largest body. Names, notes and handles have some KB at most.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

/// How long a body may take to arrive.
const TIME: Duration = Duration::from_secs(10);

/// Reads all of a body.
pub(crate) async fn read(body: Body) -> Result<Bytes, Problem> {
    let limited = Limited::new(body, MOST_BYTES);
    let read = timeout(TIME, limited.collect()).await.map_err(|_| Problem::too_slow())?;
    read.map(|whole| whole.to_bytes()).map_err(|error| {
        match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Problem::too_large(MOST_BYTES),
            None => Problem::usage(format!("the body cannot be read: {error}")),
        }
    })
}

/// The members of a JSON object. Each is taken once; one that is left over is a typing error.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body. An empty one is an object without members.
    pub(crate) async fn read(body: Body) -> Result<Self, Problem> {
        Self::parse(&read(body).await?)
    }

    fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Problem::usage("the body must be a JSON object")),
            Err(error) => Err(Problem::usage(format!("the body is no JSON: {error}"))),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::usage(format!("`{name}` must be a string"))),
        }
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<String, Problem> {
        self.text(name)?.ok_or_else(|| Problem::usage(format!("`{name}` is missing")))
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let wrong = || Problem::usage(format!("`{name}` must be a whole number"));
                value.as_u64().ok_or_else(wrong).map(Some)
            }
        }
    }

    pub(crate) fn small_number(&mut self, name: &str) -> Result<Option<u32>, Problem> {
        let number = self.number(name)?.map(u32::try_from).transpose();
        number.map_err(|_| Problem::usage(format!("`{name}` is too large")))
    }

    pub(crate) fn millis(&mut self, name: &str) -> Result<Option<Duration>, Problem> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            Some(name) => {
                let name = name.escape_debug();
                Err(Problem::usage(format!("there is no member `{name}` here")))
            }
            None => Ok(()),
        }
    }
}
