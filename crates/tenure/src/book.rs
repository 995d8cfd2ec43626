//! The examples of the book are tests: every Rust block of a chapter is a documentation test of this crate.
//!
//! `cargo xtask verify` checks that each chapter with a Rust block is here (xtask's `documents`); shell blocks are run by the
//! tests of the command.

#[doc = include_str!("../../../docs/quick-start.md")]
struct QuickStart;

#[doc = include_str!("../../../docs/mutex.md")]
struct Mutex;

#[doc = include_str!("../../../docs/read-write.md")]
struct ReadWrite;

#[doc = include_str!("../../../docs/semaphore.md")]
struct Semaphores;

#[doc = include_str!("../../../docs/latch-and-barrier.md")]
struct LatchAndBarrier;

#[doc = include_str!("../../../docs/election.md")]
struct Elections;

#[doc = include_str!("../../../docs/several-locks.md")]
struct SeveralLocks;

#[doc = include_str!("../../../docs/topologies.md")]
struct Topologies;

#[doc = include_str!("../../../docs/operations.md")]
struct Operations;

#[doc = include_str!("../../../docs/observability.md")]
struct Observability;

#[doc = include_str!("../../../docs/tuning.md")]
struct Tuning;

#[doc = include_str!("../../../docs/redisson.md")]
struct SharingWithRedisson;

#[doc = include_str!("../../../docs/migrating.md")]
struct Migrating;

#[doc = include_str!("../../../docs/faq.md")]
struct Questions;
