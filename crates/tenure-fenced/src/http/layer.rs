//! The layer, and the service that it makes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response, StatusCode};
use tenure::{Fence, LockName};
use tower_layer::Layer;
use tower_service::Service;

use super::header::{self, NoFence};
use super::memory::FenceMemory;
use super::problem::{Problem, Reason};

/// How a request without a usable fence is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfenced {
    /// 428 Precondition Required.
    PreconditionRequired,
    /// 400 Bad Request.
    BadRequest,
}

impl Unfenced {
    const fn status(self) -> StatusCode {
        match self {
            Self::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::BadRequest => StatusCode::BAD_REQUEST,
        }
    }
}

/// The resource and the fence of a request that was admitted, in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    resource: LockName,
    fence: Fence,
}

impl Admitted {
    /// The resource.
    #[must_use]
    pub fn resource(&self) -> &LockName {
        &self.resource
    }

    /// The fence of the client's lock.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }
}

/// Refuses requests of an overtaken holder.
///
/// `resource` derives the name of the resource from a request, and returns none for a request that needs no fence, which
/// passes. It should return none only for requests that cannot change data. With a memory that has no bound of its own,
/// such as Redis, it should name only resources that exist.
///
/// The body of the service's responses must be made from a `String`, as those of axum and `http-body-util` are.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::{convert::Infallible, num::NonZeroUsize, task::{Context, Poll}};
/// use http::{Request, Response, StatusCode};
/// use tenure_fenced::http::{Admitted, BoundedMemory, FenceLayer};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// #[derive(Clone)]
/// struct Stock;
///
/// impl Service<Request<String>> for Stock {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = std::future::Ready<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, request: Request<String>) -> Self::Future {
///         let admitted = request.extensions().get::<Admitted>();
///         let fence = admitted.map(|admitted| admitted.fence()); // for the database
///         std::future::ready(Ok(Response::new(format!("sold, with fence {fence:?}"))))
///     }
/// }
///
/// let memory = BoundedMemory::new(NonZeroUsize::new(100_000).expect("not zero"));
/// let layer = FenceLayer::new(memory, |request: &Request<String>| {
///     (request.method() != "GET").then(|| request.uri().path().to_owned())
/// });
/// let mut service = layer.layer(Stock);
///
/// let sale = |fence: &str| {
///     Request::post("/stock/lamp").header("Tenure-Fence", fence).body(String::new())
/// };
/// assert_eq!(service.call(sale("8")?).await?.status(), StatusCode::OK);
/// assert_eq!(service.call(sale("7")?).await?.status(), StatusCode::CONFLICT);
/// # Ok(())
/// # }
/// ```
pub struct FenceLayer<M, F> {
    rules: Arc<Rules<M, F>>,
}

struct Rules<M, F> {
    memory: M,
    resource: F,
    missing: Unfenced,
    malformed: Unfenced,
}

impl<M, F> FenceLayer<M, F> {
    /// A layer whose services share this memory.
    pub fn new(memory: M, resource: F) -> Self {
        Self::with_answers(memory, resource, Unfenced::PreconditionRequired, Unfenced::BadRequest)
    }

    /// The same, with the answers to requests whose fence is missing, and whose fence is malformed.
    pub fn with_answers(memory: M, resource: F, missing: Unfenced, malformed: Unfenced) -> Self {
        Self { rules: Arc::new(Rules { memory, resource, missing, malformed }) }
    }
}

impl<M, F> Clone for FenceLayer<M, F> {
    fn clone(&self) -> Self {
        Self { rules: Arc::clone(&self.rules) }
    }
}

impl<M, F> fmt::Debug for FenceLayer<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { missing, malformed, .. } = &*self.rules;
        let mut layer = f.debug_struct("FenceLayer");
        layer.field("missing", missing).field("malformed", malformed).finish_non_exhaustive()
    }
}

impl<S, M, F> Layer<S> for FenceLayer<M, F> {
    type Service = FenceService<S, M, F>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService { inner, rules: Arc::clone(&self.rules) }
    }
}

/// The service of a [`FenceLayer`].
pub struct FenceService<S, M, F> {
    inner: S,
    rules: Arc<Rules<M, F>>,
}

impl<S: Clone, M, F> Clone for FenceService<S, M, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), rules: Arc::clone(&self.rules) }
    }
}

impl<S: fmt::Debug, M, F> fmt::Debug for FenceService<S, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, M, F, B, R> Service<Request<B>> for FenceService<S, M, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    M: FenceMemory + 'static,
    F: Fn(&Request<B>) -> Option<String> + Send + Sync + 'static,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that is ready serves this request; its clone is asked again before the next.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let rules = Arc::clone(&self.rules);
        // Before the future is made, so that it needs no reference to a body that other threads may not see.
        let claim = rules.claim(&request);
        Box::pin(async move {
            let admitted = match claim {
                Ok(None) => return inner.call(request).await,
                Ok(Some(admitted)) => admitted,
                Err(problem) => return Ok(problem.into_response()),
            };
            if let Err(error) = rules.memory.register(&admitted.resource, admitted.fence).await {
                return Ok(Problem::of(&error).into_response());
            }
            request.extensions_mut().insert(admitted);
            inner.call(request).await
        })
    }
}

impl<M, F> Rules<M, F> {
    /// What the request claims to be; none if it needs no fence.
    fn claim<B>(&self, request: &Request<B>) -> Result<Option<Admitted>, Problem>
    where
        F: Fn(&Request<B>) -> Option<String>,
    {
        let Some(resource) = (self.resource)(request) else {
            return Ok(None);
        };
        let fence = header::fence(request.headers()).map_err(|why| self.unfenced(why))?;
        let resource = LockName::new(resource).map_err(|invalid| {
            let detail = format!("the request names no valid resource: {invalid}");
            Problem::new(StatusCode::BAD_REQUEST, Reason::Resource, detail)
        })?;
        Ok(Some(Admitted { resource, fence }))
    }

    fn unfenced(&self, why: NoFence) -> Problem {
        match why {
            NoFence::Missing => Problem::new(
                self.missing.status(),
                Reason::Missing,
                "this resource is written under a lock: send the lock's fence in the header Tenure-Fence",
            ),
            NoFence::Malformed => Problem::new(
                self.malformed.status(),
                Reason::Malformed,
                "the header Tenure-Fence must be there once, and be a number from 1 to 9007199254740991",
            ),
        }
    }
}
