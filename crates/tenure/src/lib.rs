//! A distributed lock for Rust services.
//!
//! ```
//! # tenure::blocking::block_on(async {
//! use tenure::Tenure;
//!
//! let tenure = Tenure::connect("memory:").await?;
//! let guard = tenure.lock("orders/42").acquire().await?;
//! guard.protect(charge_customer(guard.fence())).await?; // cancelled if the lock is lost
//! guard.release().await?; // or just drop it
//! # Ok::<(), tenure::Error>(())
//! # }).unwrap();
//! # async fn charge_customer(fence: tenure::Fence) {}
//! ```
//!
//! - [`Tenure`] is a client of a store, and makes locks. [`Lock`] has a lock's name and options.
//!   [`Guard`] holds the lock, renews its lease and reports its loss.
//! - [`RwLock`], [`Semaphore`], [`Latch`], [`Barrier`] and [`Election`] are also made by [`Tenure`];
//!   [`acquire_all`] acquires several locks at once.
//! - [`Fence`] is the fencing token by which a database refuses a late writer; [`fenced`] has
//!   ready-made checks.
//! - [`Owner`] is the identity of a holder, for re-entrant locks; [`Handle`] is a hold that is passed
//!   to another process.
//! - [`Events`] reports what happens to the locks of a client; metrics `tenure_…` and spans go to `metrics` and `tracing`.
//! - [`blocking`] is the same API for code that is not async.
//! - [`engine`] is the contract that every store fulfils.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `local` | yes | the `local:` store: locks among the processes of one user on one machine (Linux) |
//! | `redis` | yes | the `redis:`, `rediss:`, `valkey:`, `valkeys:`, `unix:`, `redis+sentinel:`, `redis+cluster:` and `redis+quorum:` stores |
//!
//! The `memory:` store is always there.
//!
//! No runtime is required: every future of this crate runs on any executor, and renewals run on a
//! thread of their own.

mod barrier;
pub mod blocking;
#[cfg(doctest)]
mod book;
mod client;
mod clock;
mod core;
mod driver;
mod election;
pub mod engine;
mod error;
mod events;
pub mod fenced;
mod foreign;
mod fork;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod guard;
mod handle;
mod host;
mod info;
mod latch;
mod lock;
mod many;
mod owner;
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "used by the Redis engine only"))]
mod parking;
mod rwlock;
mod semaphore;
#[cfg(all(test, feature = "redis", unix))]
mod simulation;
mod sync;
mod telemetry;
mod thread;
mod wait;

pub use barrier::Barrier;
pub use client::{Builder, Fallback, Tenure};
pub use core::backoff::Backoff;
pub use core::fence::Fence;
pub use core::lease::Lease;
pub use core::moment::{Moment, Now};
pub use core::name::LockName;
pub use core::shape::{Kind, Shape};
pub use election::{Changes, Election, Leader, Leadership};
pub use error::{Error, Invalid, Lost, StoreError, WhyLost};
pub use events::{Event, EventKind, Events};
pub use guard::{Guard, LostSignal, Released};
pub use handle::Handle;
pub use info::{About, ForceRecord, HolderInfo, LockInfo, WaiterInfo};
pub use latch::Latch;
pub use lock::Lock;
pub use many::{Guards, acquire_all};
pub use owner::{Entry, Owner};
pub use rwlock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
pub use wait::Wait;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
