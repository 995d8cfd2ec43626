//! Spans of `tracing`, with the attributes that OpenTelemetry's conventions give to calls of a database.
//!
//! | span | covers |
//! |---|---|
//! | `acquire` | an acquire, from the call to the guard |
//! | `wait` | the part of it that was spent in the queue |
//! | `hold` | the life of a guard |
//! | `renew` | one call that renews some locks |
//! | `release` | a release that is awaited |
//!
//! Without a subscriber none of them is made. A subscriber is foreign code: its panics are caught.

use std::future::poll_fn;
use std::pin::Pin;

use tracing::{Level, Span, field, info_span};

use super::outcome;
use crate::core::name::LockName;
use crate::engine::Engine;
use crate::error::Error;
use crate::foreign;
use crate::guard::Guard;

/// A span, if there is a subscriber.
#[derive(Debug)]
pub(crate) struct Scope(Option<Span>);

impl Scope {
    /// `make` is called only if there is a subscriber.
    fn new(make: impl FnOnce() -> Span) -> Self {
        let is_enabled = foreign::call(|| tracing::enabled!(Level::INFO)) == Some(true);
        Self(is_enabled.then(|| foreign::call(make)).flatten())
    }

    /// Runs `work` within the span. It is pinned by the caller, because a future that is moved takes its space twice.
    pub(crate) async fn run<F: Future>(&self, mut work: Pin<&mut F>) -> F::Output {
        poll_fn(|context| {
            let Some(span) = &self.0 else { return work.as_mut().poll(context) };
            let entered = foreign::call(|| span.enter());
            let polled = work.as_mut().poll(context);
            foreign::call(|| drop(entered));
            polled
        })
        .await
    }

    fn record(&self, record: impl FnOnce(&Span)) {
        if let Some(span) = &self.0 {
            foreign::call(|| record(span));
        }
    }

    /// Records how an acquire has ended.
    pub(crate) fn acquired(&self, result: &Result<Option<Guard>, Error>) {
        self.record(|span| match result {
            Ok(Some(guard)) => drop(span.record("tenure.fence", fence(guard))),
            // Another holder is no error.
            Ok(None) => {}
            Err(_) => {
                span.record("otel.status_code", "ERROR");
                span.record("error.type", outcome(result));
            }
        });
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            foreign::call(|| drop(span));
        }
    }
}

/// As a signed number, because OpenTelemetry has no other: a bridge exports an unsigned one as text.
fn fence(guard: &Guard) -> i64 {
    i64::try_from(guard.fence().value()).unwrap_or(i64::MAX)
}

/// The span of an acquire.
pub(crate) fn acquire(name: &LockName, engine: &dyn Engine) -> Scope {
    Scope::new(|| {
        info_span!(
            "acquire",
            otel.kind = "client",
            otel.status_code = field::Empty,
            error.r#type = field::Empty,
            db.system.name = engine.capabilities().engine,
            db.operation.name = "acquire",
            db.collection.name = %name,
            tenure.fence = field::Empty,
        )
    })
}

/// The span of the time in the queue.
pub(crate) fn wait(name: &LockName) -> Scope {
    Scope::new(|| info_span!("wait", db.collection.name = %name))
}

/// The span of a guard's life. Most guards have none.
pub(crate) fn hold(guard: &Guard) -> Option<Box<Scope>> {
    let (name, fence) = (guard.name(), fence(guard));
    let scope = Scope::new(|| info_span!("hold", db.collection.name = %name, tenure.fence = fence));
    scope.0.is_some().then(|| Box::new(scope))
}

/// The span of a call that renews so many locks.
pub(crate) fn renew(locks: usize, engine: &dyn Engine) -> Scope {
    Scope::new(|| {
        info_span!(
            "renew",
            otel.kind = "client",
            db.system.name = engine.capabilities().engine,
            db.operation.name = "renew",
            db.operation.batch.size = i64::try_from(locks).unwrap_or(i64::MAX),
        )
    })
}

/// The span of a release.
pub(crate) fn release(name: &LockName, engine: &dyn Engine) -> Scope {
    Scope::new(|| {
        info_span!(
            "release",
            otel.kind = "client",
            db.system.name = engine.capabilities().engine,
            db.operation.name = "release",
            db.collection.name = %name,
        )
    })
}
