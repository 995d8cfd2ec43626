//! Makes locks of every kind.

use super::Tenure;
use crate::barrier::Barrier;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::driver::{Identity, Spec};
use crate::election::Election;
use crate::error::Invalid;
use crate::group::Group;
use crate::latch::Latch;
use crate::lock::Lock;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;

impl Tenure {
    /// Returns the lock of this name.
    pub fn lock<N>(&self, name: N) -> Lock
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        self.part_of(name, Ok(Shape::mutex()))
    }

    /// Returns the read-write lock of this name.
    pub fn rwlock<N>(&self, name: N) -> RwLock
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = |permits| Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, permits);
        let reader = self.part_of(name, shape(1)).scoped();
        let writer = reader.clone().with_shape(shape(Shape::MAX_LIMIT));
        RwLock::new(reader, writer)
    }

    /// Returns the semaphore of this name, with `limit` permits.
    pub fn semaphore<N>(&self, name: N, limit: u32) -> Semaphore
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = Shape::new(Kind::Semaphore, limit, 1);
        Semaphore::new(self.part_of(name, shape), limit)
    }

    /// Returns the latch of this name, which opens when it has been counted down `count` times.
    pub fn latch<N>(&self, name: N, count: u32) -> Latch
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = Shape::new(Kind::Latch, count, 0);
        let lock = self.part_of(name, shape).fixed_lease(Lease::MAX.duration());
        Latch::new(lock, count)
    }

    /// Returns the barrier of this name, for up to 1,000 parties.
    pub fn barrier<N>(&self, name: N, parties: u32) -> Barrier
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let shape = Shape::new(Kind::Barrier, parties, 1);
        let lock = self.part_of(name, shape).fixed_lease(Lease::DEFAULT.duration());
        Barrier::new(lock)
    }

    /// Returns the election of this name.
    pub fn election<N>(&self, name: N) -> Election
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        Election::new(self.lock(name))
    }

    fn part_of<N>(&self, name: N, shape: Result<Shape, Invalid>) -> Lock
    where
        N: TryInto<LockName>,
        N::Error: Into<Invalid>,
    {
        let named = name.try_into().map_err(Into::into);
        let spec = named.and_then(|name| {
            Ok(Spec {
                group: Group::NONE,
                name,
                shape: shape?,
                lease: self.client.lease,
                is_watched: true,
                at_least: 0,
                is_fair: false,
                falls_back: true,
                identity: Identity::Each,
                about: self.client.about.clone(),
                replication: self.client.replication,
            })
        });
        Lock::new(self.clone(), spec)
    }
}
