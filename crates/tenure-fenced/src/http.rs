//! A layer for services that own data: it refuses requests of an overtaken holder.
//!
//! A client sends its fence with each request that reads or writes the data, as `Tenure-Fence: 123`. [`FenceLayer`]
//! registers it for the resource, which a function of the program derives from the request, and answers for itself
//! where the request must not reach the service, with a body of type `application/problem+json`:
//!
//! | situation | answer |
//! |---|---|
//! | the fence is the highest that the resource has seen, or a higher one | the service's |
//! | a newer holder has sent a request | 409 Conflict, with the resource and both fences |
//! | the resource's fence is forgotten, and this one is too old ([`BoundedMemory`]) | 409 Conflict |
//! | no `Tenure-Fence` | 428 Precondition Required, or as configured |
//! | a `Tenure-Fence` that is not a number below 2^53, or two of them | 400 Bad Request, or as configured |
//! | a resource that is empty, longer than 512 bytes, or contains NUL | 400 Bad Request |
//! | the memory of the fences fails | 503 Service Unavailable |
//!
//! **What it does not cover.** The layer decides when a request arrives. A request that it admitted may still be at
//! work when that of a newer holder arrives, and may write after it. A service that works on one resource for several
//! requests at a time must check the fence where it writes, too: the layer adds [`Admitted`] to the request's
//! extensions, which has the arguments of `sql::Fences`. And a fence is believed: a client that sends a larger number than it
//! was granted excludes the true holders. Put authentication in front of the layer.

mod header;
mod layer;
mod memory;
mod problem;

pub use header::FENCE_HEADER;
pub use layer::{Admitted, FenceLayer, FenceService, Unfenced};
pub use memory::{BoundedMemory, FenceMemory};
