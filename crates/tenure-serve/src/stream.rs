//! Server-sent events: a body that is produced by a future, as fast as its client reads.
//!
//! The future is part of the body. When the client hangs up, both are dropped, and so is what the future holds: a lock, or a
//! place in a queue. A client that does not read blocks the future, and its connection is ended after a while (`listener`).

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use http_body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

/// How many events may wait to be written.
const QUEUED: usize = 4;

/// How often an idle stream sends a comment, by which a dead connection is noticed.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Where the future sends events.
pub(crate) struct Events(mpsc::Sender<Bytes>);

impl Events {
    /// Sends an event. False if the client is gone.
    pub(crate) async fn send(&self, event: &str, id: Option<u64>, data: &Value) -> bool {
        self.0.send(frame(event, id, data)).await.is_ok()
    }

    /// Sends events that are written already.
    pub(crate) async fn send_frame(&self, frame: Bytes) -> bool {
        self.0.send(frame).await.is_ok()
    }

    /// Sends a comment, which clients ignore.
    pub(crate) async fn beat(&self) -> bool {
        self.0.send(Bytes::from_static(b":\n\n")).await.is_ok()
    }
}

/// An event as it is sent. JSON has no line breaks outside of strings, and escapes those inside.
pub(crate) fn event(event: &str, id: Option<u64>, data: &impl Display) -> String {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("{id}event: {event}\ndata: {data}\n\n")
}

/// The same, to be sent to many.
pub(crate) fn frame(event: &str, id: Option<u64>, data: &impl Display) -> Bytes {
    self::event(event, id, data).into()
}

/// The answer with an event stream.
pub(crate) fn response<F, P>(produce: P) -> Response<Body>
where
    P: FnOnce(Events) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, frames) = mpsc::channel(QUEUED);
    let producer: Producer = Box::pin(produce(Events(sender)));
    let body = Body::new(EventBody { producer: Some(producer), frames });
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies must not collect it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

type Producer = Pin<Box<dyn Future<Output = ()> + Send>>;

struct EventBody {
    producer: Option<Producer>,
    frames: mpsc::Receiver<Bytes>,
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Ok(bytes) = self.frames.try_recv() {
            return data(bytes);
        }
        if let Some(producer) = &mut self.producer
            && producer.as_mut().poll(context).is_ready()
        {
            self.producer = None;
        }
        match self.frames.poll_recv(context) {
            Poll::Ready(Some(bytes)) => data(bytes),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
