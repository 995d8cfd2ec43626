//! The highest fence of each resource: a trait, and an implementation in memory that is bounded.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use tenure::{Fence, LockName};

use crate::error::{self, Error, Overtaken};
use crate::redis::{RedisFences, RunScript};

/// Stores the highest fence of each resource.
pub trait FenceMemory: Send + Sync {
    /// Registers the fence, in one atomic step with the comparison.
    ///
    /// # Errors
    /// [`Error::Overtaken`] or [`Error::Forgotten`] if the request must be refused; any other error if it is unknown
    /// whether it must, and then it is refused, too.
    fn register(
        &self,
        resource: &LockName,
        fence: Fence,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// In Redis: for services that run as several processes, or must not forget when they restart.
impl<C: RunScript> FenceMemory for RedisFences<C> {
    async fn register(&self, resource: &LockName, fence: Fence) -> Result<(), Error> {
        Self::register(self, resource, fence).await
    }
}

/// In the memory of this process, for at most a number of resources.
///
/// When it is full, it forgets the resource with the oldest fence, and that fence becomes the **floor**: for a resource
/// that is not remembered, a fence below the floor is refused ([`Error::Forgotten`]). So an old holder is never
/// admitted because its successor was forgotten. What is lost is the other side: a holder that has had its lock for
/// longer than the floor is old, and whose resource is not remembered, is refused although it is current. It acquires the
/// lock again, and continues. (Fences are calendar times, so those of different locks are comparable.)
///
/// A process that restarts has an empty memory. [`with_floor`](Self::with_floor) starts it with a floor: with the fence of
/// a lock that the service acquires at its start, all holders from before are refused.
///
/// It needs about 100 bytes for each resource, and its name, of at most 512 bytes.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::num::NonZeroUsize;
/// use tenure::{Fence, LockName};
/// use tenure_fenced::{Error, http::{BoundedMemory, FenceMemory}};
///
/// let memory = BoundedMemory::new(NonZeroUsize::MIN);
/// let (a, b) = (LockName::new("a")?, LockName::new("b")?);
/// memory.register(&a, Fence::from_value(7)).await?;
/// memory.register(&b, Fence::from_value(9)).await?; // `a` is forgotten
/// let refused = memory.register(&a, Fence::from_value(6)).await;
/// assert!(matches!(refused, Err(Error::Forgotten { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BoundedMemory {
    capacity: NonZeroUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    highest: HashMap<LockName, Fence>,
    /// The same, oldest fence first.
    order: BTreeSet<(Fence, LockName)>,
    floor: Fence,
}

impl BoundedMemory {
    /// Remembers at most this many resources.
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self::with_floor(capacity, Fence::from_value(0))
    }

    /// The same, and refuses every fence below this one.
    #[must_use]
    pub fn with_floor(capacity: NonZeroUsize, floor: Fence) -> Self {
        let state = State { highest: HashMap::new(), order: BTreeSet::new(), floor };
        Self { capacity, state: Mutex::new(state) }
    }

    /// The oldest fence that is admitted for a resource that is not remembered.
    #[must_use]
    pub fn floor(&self) -> Fence {
        self.lock().floor
    }

    /// A panic under this mutex is impossible but for lack of memory, and leaves at worst a resource that is forgotten
    /// too late.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FenceMemory for BoundedMemory {
    async fn register(&self, resource: &LockName, fence: Fence) -> Result<(), Error> {
        error::to_stored(resource, fence)?;
        self.lock().register(resource, fence, self.capacity.get())
    }
}

impl State {
    fn register(
        &mut self,
        resource: &LockName,
        fence: Fence,
        capacity: usize,
    ) -> Result<(), Error> {
        match self.highest.get(resource).copied() {
            Some(last) if last > fence => {
                return Err(Overtaken::new(resource, fence, last).into());
            }
            Some(last) if last == fence => return Ok(()),
            Some(last) => {
                self.order.remove(&(last, resource.clone()));
            }
            None if fence < self.floor => {
                let floor = self.floor;
                return Err(Error::Forgotten { resource: resource.clone(), fence, floor });
            }
            None => {}
        }
        self.highest.insert(resource.clone(), fence);
        self.order.insert((fence, resource.clone()));
        self.forget_oldest(capacity);
        Ok(())
    }

    fn forget_oldest(&mut self, capacity: usize) {
        while self.highest.len() > capacity {
            let Some((fence, resource)) = self.order.pop_first() else { return };
            self.highest.remove(&resource);
            self.floor = self.floor.max(fence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(state: &mut State, resource: &str, fence: u64) -> Result<(), Error> {
        let resource = LockName::new(resource).unwrap();
        state.register(&resource, Fence::from_value(fence), 3)
    }

    fn state(floor: u64) -> State {
        let (highest, order) = (HashMap::new(), BTreeSet::new());
        State { highest, order, floor: Fence::from_value(floor) }
    }

    #[test]
    fn an_overtaken_fence_is_refused_and_the_same_one_is_not() {
        let mut state = state(0);
        for fence in [5, 5, 7, 7] {
            register(&mut state, "a", fence).unwrap();
        }
        let Err(Error::Overtaken(overtaken)) = register(&mut state, "a", 6) else { panic!() };
        assert_eq!((overtaken.fence().value(), overtaken.newer().value()), (6, 7));
        assert_eq!((state.highest.len(), state.order.len()), (1, 1));
    }

    #[test]
    fn a_floor_refuses_holders_from_before_a_restart() {
        let mut state = state(100);
        assert!(matches!(register(&mut state, "a", 99), Err(Error::Forgotten { .. })));
        register(&mut state, "a", 100).unwrap();
    }

    /// With the resources and fences of a small space, in a fixed pseudo-random order: a fence that is admitted is
    /// never below one that was admitted for the same resource before, however much was forgotten.
    #[test]
    fn forgetting_never_admits_an_overtaken_fence() {
        let (mut state, mut truth) = (state(0), HashMap::new());
        let (mut seed, mut admitted, mut forgotten) = (1_u64, 0, 0);
        for round in 0..20_000_u64 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (resource, back) = ((seed >> 33) % 8, (seed >> 40) % 64);
            let fence = (round + 64).saturating_sub(back);
            match register(&mut state, &format!("r{resource}"), fence) {
                Ok(()) => {
                    let last = truth.insert(resource, fence).unwrap_or(0);
                    assert!(fence >= last, "r{resource}: {fence} after {last}");
                    admitted += 1;
                }
                Err(Error::Forgotten { .. }) => forgotten += 1,
                Err(_) => {}
            }
            assert!(state.highest.len() <= 3 && state.order.len() == state.highest.len());
        }
        assert!(admitted > 1_000 && forgotten > 1_000, "{admitted} and {forgotten}");
    }
}
