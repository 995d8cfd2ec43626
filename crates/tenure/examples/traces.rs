//! The spans of a request that waits for a lock, exported by OpenTelemetry to standard output.
//!
//! `cargo run --example traces`
//!
//! A service exports to a collector instead: give `SdkTracerProvider::builder` an exporter of `opentelemetry-otlp`.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tenure::{Error, Tenure};
use tracing::instrument::WithSubscriber;
use tracing::{Instrument, Subscriber, info_span};
use tracing_subscriber::layer::SubscriberExt;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (provider, subscriber) = export_to(opentelemetry_stdout::SpanExporter::default());
    tenure::blocking::block_on(two_requests().with_subscriber(subscriber))?;
    provider.shutdown()?;
    Ok(())
}

/// A subscriber that gives each span that has ended to the exporter.
fn export_to(exporter: impl SpanExporter + 'static) -> (SdkTracerProvider, impl Subscriber) {
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let bridge = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    (provider, tracing_subscriber::registry().with(bridge))
}

/// A request takes the lock, and another one waits for it.
async fn two_requests() -> Result<(), Error> {
    let tenure = Tenure::connect("memory:").await?;
    let lock = tenure.lock("orders/42");
    let guard = lock.acquire_within(Duration::from_secs(5)).await?;

    let request = info_span!("request", http.route = "/orders/{id}");
    let waiting = async { lock.acquire_within(Duration::from_secs(5)).await?.release().await };
    // The first one is polled until it waits; then the second one releases.
    let (waited, released) = tokio::join!(waiting.instrument(request), guard.release());
    waited.and(released).map(drop)
}

#[cfg(test)]
mod tests {
    use opentelemetry::Value;
    use opentelemetry::trace::{SpanKind, Status};
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};

    use super::*;

    fn exported() -> Vec<SpanData> {
        let exporter = InMemorySpanExporter::default();
        let (_provider, subscriber) = export_to(exporter.clone());
        tenure::blocking::block_on(two_requests().with_subscriber(subscriber)).expect("two locks");
        exporter.get_finished_spans().expect("what was exported")
    }

    fn attribute(span: &SpanData, key: &str) -> Option<Value> {
        let found = span.attributes.iter().find(|it| it.key.as_str() == key);
        found.map(|it| it.value.clone())
    }

    /// A trace shows which request waited for which lock, and for how long (R21).
    #[test]
    fn a_request_and_its_wait_are_one_trace() {
        let spans = exported();
        let named = |name: &'static str| spans.iter().filter(move |span| span.name == name);
        let request = named("request").next().expect("the service's own span");
        let of_request =
            |span: &&SpanData| span.span_context.trace_id() == request.span_context.trace_id();
        let acquire = named("acquire").find(of_request).expect("an acquire");
        assert_eq!(acquire.parent_span_id, request.span_context.span_id());
        assert_eq!(acquire.span_kind, SpanKind::Client);
        assert_eq!(acquire.status, Status::Unset);
        assert_eq!(attribute(acquire, "db.system.name"), Some("memory".into()));
        assert_eq!(attribute(acquire, "db.operation.name"), Some("acquire".into()));
        assert_eq!(attribute(acquire, "db.collection.name"), Some("orders/42".into()));
        let wait = named("wait").find(of_request).expect("a wait");
        assert_eq!(wait.parent_span_id, acquire.span_context.span_id());
        let hold = named("hold").find(of_request).expect("a hold");
        let fence = attribute(hold, "tenure.fence");
        assert!(matches!(fence, Some(Value::I64(_))), "{fence:?} is no number");
        assert_eq!(fence, attribute(acquire, "tenure.fence"));
        assert!(hold.start_time >= wait.end_time);
        assert_eq!(named("release").count(), 2);
    }
}
