//! R15: a service that owns data refuses the requests of an overtaken holder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/client.rs"]
mod client;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::num::NonZeroUsize;
use std::task::{Context, Poll};

use client::Client;
use http::{Request, Response, StatusCode};
use tenure::LockName;
use tenure_fenced::http::{Admitted, BoundedMemory, FenceLayer, FenceMemory, Unfenced};
use tenure_fenced::redis::RedisFences;
use tenure_testkit::Server;
use tower_layer::Layer;
use tower_service::Service;

/// Answers with what it was admitted for.
#[derive(Clone)]
struct Echo;

impl Service<Request<()>> for Echo {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let admitted = request.extensions().get::<Admitted>();
        let admitted = admitted.map(|it| format!("{} with {}", it.resource(), it.fence()));
        ready(Ok(Response::new(admitted.unwrap_or_else(|| "without a fence".to_owned()))))
    }
}

fn path(request: &Request<()>) -> Option<String> {
    (request.method() != "GET").then(|| request.uri().path().to_owned())
}

fn few() -> BoundedMemory {
    BoundedMemory::new(NonZeroUsize::new(2).unwrap())
}

/// Sends requests to one service.
struct Caller<S>(S);

impl<S: Service<Request<()>, Response = Response<String>, Error = Infallible>> Caller<S> {
    async fn post(&mut self, path: &str, fences: &[&str]) -> (StatusCode, String) {
        let request = fences
            .iter()
            .fold(Request::post(path), |request, fence| request.header("Tenure-Fence", *fence));
        self.send(request.body(()).unwrap()).await
    }

    async fn send(&mut self, request: Request<()>) -> (StatusCode, String) {
        std::future::poll_fn(|context| self.0.poll_ready(context)).await.unwrap();
        let response = self.0.call(request).await.unwrap();
        let json = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind == "application/problem+json");
        assert_eq!(json, response.status() != StatusCode::OK);
        (response.status(), response.into_body())
    }
}

fn caller<M: FenceMemory + 'static>(
    memory: M,
) -> Caller<impl Service<Request<()>, Response = Response<String>, Error = Infallible>> {
    Caller(FenceLayer::new(memory, path).layer(Echo))
}

#[tokio::test]
async fn a_service_refuses_an_overtaken_holder() {
    let mut service = caller(few());
    assert_eq!(service.post("/lamp", &["7"]).await, (StatusCode::OK, "/lamp with 7".into()));
    assert_eq!(service.post("/lamp", &["9"]).await.0, StatusCode::OK);
    assert_eq!(service.post("/lamp", &["9"]).await.0, StatusCode::OK);
    let (status, body) = service.post("/lamp", &["7"]).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(
        body,
        "{\"type\":\"about:blank\",\"title\":\"Conflict\",\"status\":409,\"reason\":\"overtaken\",\
         \"detail\":\"`/lamp` was not written: fence 7 is overtaken by 9; discard what was computed, and acquire the \
         lock again for another attempt\",\"resource\":\"/lamp\",\"fence\":7,\"newer\":9}"
    );
    assert_eq!(service.post("/desk", &["7"]).await.0, StatusCode::OK, "another resource");
}

#[tokio::test]
async fn a_request_without_a_usable_fence_is_refused_as_configured() {
    let mut service = caller(few());
    let (status, body) = service.post("/lamp", &[]).await;
    assert_eq!(status, StatusCode::PRECONDITION_REQUIRED);
    assert!(body.contains("\"reason\":\"fence-missing\""), "{body}");
    let long = "1".repeat(60_000);
    for fences in [&["x"][..], &["-1"], &["9007199254740992"], &["7", "8"], &[&long]] {
        let (status, body) = service.post("/lamp", fences).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body.contains("\"reason\":\"fence-malformed\"") && body.len() < 300, "{body}");
    }
    let get = Request::get("/lamp").body(()).unwrap();
    assert_eq!(service.send(get).await, (StatusCode::OK, "without a fence".into()));

    let (missing, malformed) = (Unfenced::BadRequest, Unfenced::PreconditionRequired);
    let layer = FenceLayer::with_answers(few(), path, missing, malformed);
    let mut service = Caller(layer.layer(Echo));
    assert_eq!(service.post("/lamp", &[]).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(service.post("/lamp", &["x"]).await.0, StatusCode::PRECONDITION_REQUIRED);
}

#[tokio::test]
async fn a_hostile_resource_is_bounded() {
    let mut service = caller(few());
    let longest = format!("/{}", "a".repeat(LockName::MAX_BYTES - 1));
    assert_eq!(service.post(&longest, &["7"]).await.0, StatusCode::OK);
    let (status, body) = service.post(&format!("{longest}a"), &["7"]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("\"reason\":\"resource-invalid\"") && body.len() < 300, "{body}");
}

/// However many resources clients name, a holder that was overtaken stays refused.
#[tokio::test]
async fn an_overtaken_holder_stays_refused_when_its_resource_is_forgotten() {
    let mut service = caller(few());
    for fence in ["7", "9"] {
        assert_eq!(service.post("/lamp", &[fence]).await.0, StatusCode::OK);
    }
    for other in 10..30 {
        assert_eq!(
            service.post(&format!("/{other}"), &[&other.to_string()]).await.0,
            StatusCode::OK
        );
    }
    let (status, body) = service.post("/lamp", &["7"]).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(body.contains("\"reason\":\"forgotten\"") && body.contains("\"floor\":27"), "{body}");
    assert_eq!(service.post("/lamp", &["30"]).await.0, StatusCode::OK, "after a new acquire");
}

/// Two processes of a service, which share their memory in a real Redis.
#[tokio::test]
async fn services_share_their_memory_in_redis() {
    let mut server = Server::start();
    let memory = || RedisFences::new(Client::of(&server), "fence:");
    let (mut one, mut two) = (caller(memory()), caller(memory()));
    assert_eq!(one.post("/lamp", &["7"]).await.0, StatusCode::OK);
    assert_eq!(two.post("/lamp", &["9"]).await.0, StatusCode::OK);
    let (status, body) = one.post("/lamp", &["7"]).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(body.ends_with("\"fence\":7,\"newer\":9}"), "{body}");
    server.kill();
    let (status, body) = one.post("/lamp", &["9"]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "it is unknown, so it is refused");
    assert!(body.contains("\"reason\":\"memory-failed\""), "{body}");
}
