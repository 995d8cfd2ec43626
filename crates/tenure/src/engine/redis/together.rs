//! Several requests in flight at once, awaited by one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Awaits several requests, each of which is sent when it is first polled.
pub(super) async fn together<F: Future>(requests: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut requests: Vec<Pin<Box<F>>> = requests.into_iter().map(Box::pin).collect();
    let mut begun = Vec::with_capacity(requests.len());
    for request in &mut requests {
        begun.push(poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await);
    }
    let mut done = Vec::with_capacity(requests.len());
    for (request, begun) in requests.into_iter().zip(begun) {
        done.push(match begun {
            Poll::Ready(output) => output,
            Poll::Pending => request.await,
        });
    }
    done
}
