//! The holders of one lock, each with its own lease.
//!
//! Nearly every lock has one holder, which is stored inline; a semaphore may have thousands,
//! which are indexed by owner and by deadline, so every operation is O(log n).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::fence::Fence;
use super::moment::Moment;
use crate::info::About;
use crate::owner::Owner;

/// One holder.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) owner: Owner,
    pub(crate) permits: u32,
    /// How many fences, from `fence` on, belong to the grant.
    pub(crate) fences: u32,
    pub(crate) fence: Fence,
    /// Valid before this moment of the store's clock.
    pub(crate) until: Moment,
    /// When it was granted, by the calendar.
    pub(crate) since: Moment,
    pub(crate) entries: Entries,
    pub(crate) about: Arc<About>,
    /// The client to notify when the lock is taken away.
    pub(crate) client_id: u32,
}

impl Holder {
    /// Released, but the lock stays occupied for the least holding time.
    pub(crate) fn is_lingering(&self) -> bool {
        self.entries.count() == 0
    }
}

/// The numbers of the entries that have not ended. A single one needs no allocation.
#[derive(Debug)]
pub(crate) enum Entries {
    None,
    One(u64),
    Many(Vec<u64>),
}

impl Entries {
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            // More than four billion entries would not fit in memory.
            Self::Many(numbers) => numbers.len() as u32,
        }
    }

    /// Adds an entry, once, however often it is sent (I5).
    pub(crate) fn add(&mut self, number: u64) {
        match self {
            Self::None => *self = Self::One(number),
            Self::One(first) if *first == number => {}
            Self::One(first) => *self = Self::Many(vec![*first, number]),
            Self::Many(numbers) if numbers.contains(&number) => {}
            Self::Many(numbers) => numbers.push(number),
        }
    }

    /// All of them, in the order in which they were added.
    #[cfg(all(feature = "local", target_os = "linux"))]
    pub(crate) fn numbers(&self) -> &[u64] {
        match self {
            Self::None => &[],
            Self::One(number) => std::slice::from_ref(number),
            Self::Many(numbers) => numbers,
        }
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::One(first) => *first == number,
            Self::Many(numbers) => numbers.contains(&number),
        }
    }

    /// Removes an entry; false if there is none with this number.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let before = self.count();
        match self {
            Self::One(first) if *first == number => *self = Self::None,
            Self::Many(numbers) => numbers.retain(|&other| other != number),
            _ => {}
        }
        self.count() < before
    }
}

/// All holders of one lock.
#[derive(Debug, Default)]
pub(crate) enum Holders {
    #[default]
    None,
    One(Holder),
    Many(Box<Many>),
}

#[derive(Debug, Default)]
pub(crate) struct Many {
    by_owner: HashMap<Owner, Holder>,
    by_deadline: BTreeSet<(Moment, Owner)>,
    used: u32,
}

impl Holders {
    /// How many permits are taken.
    pub(crate) fn used(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::One(holder) => holder.permits,
            Self::Many(many) => many.used,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(many) => many.by_owner.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn find(&self, owner: Owner) -> Option<&Holder> {
        match self {
            Self::One(holder) if holder.owner == owner => Some(holder),
            Self::Many(many) => many.by_owner.get(&owner),
            _ => None,
        }
    }

    fn find_mut(&mut self, owner: Owner) -> Option<&mut Holder> {
        match self {
            Self::One(holder) if holder.owner == owner => Some(holder),
            Self::Many(many) => many.by_owner.get_mut(&owner),
            _ => None,
        }
    }

    /// The entries of an owner that holds the lock; none if it only lingers.
    pub(crate) fn entries_mut(&mut self, owner: Owner) -> Option<&mut Entries> {
        self.find_mut(owner).filter(|holder| !holder.is_lingering()).map(|it| &mut it.entries)
    }

    /// Adds a holder. It replaces a lingering hold of the same owner, which at a barrier blocks no other
    /// client.
    pub(crate) fn insert(&mut self, holder: Holder) {
        self.remove(holder.owner);
        match std::mem::take(self) {
            Self::None => *self = Self::One(holder),
            Self::One(first) => {
                let mut many = Box::<Many>::default();
                many.insert(first);
                many.insert(holder);
                *self = Self::Many(many);
            }
            Self::Many(mut many) => {
                many.insert(holder);
                *self = Self::Many(many);
            }
        }
    }

    pub(crate) fn remove(&mut self, owner: Owner) -> Option<Holder> {
        match std::mem::take(self) {
            Self::One(holder) if holder.owner == owner => Some(holder),
            Self::Many(mut many) => {
                let removed = many.remove(owner);
                if !many.by_owner.is_empty() {
                    *self = Self::Many(many);
                }
                removed
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Sets the end of a holder's lease.
    pub(crate) fn set_until(&mut self, owner: Owner, until: Moment) {
        match self {
            Self::One(holder) if holder.owner == owner => holder.until = until,
            Self::Many(many) => {
                if let Some(holder) = many.by_owner.get_mut(&owner) {
                    many.by_deadline.remove(&(holder.until, owner));
                    many.by_deadline.insert((until, owner));
                    holder.until = until;
                }
            }
            _ => {}
        }
    }

    /// Raises a holder's fence. What this leaves of its range of fences stays, at least the fence itself.
    pub(crate) fn raise_fence(&mut self, owner: Owner, fence: Fence) {
        let Some(holder) = self.find_mut(owner).filter(|holder| holder.fence < fence) else {
            return;
        };
        let passed = u32::try_from(fence.value() - holder.fence.value()).unwrap_or(u32::MAX);
        holder.fences = holder.fences.saturating_sub(passed).max(1);
        holder.fence = fence;
    }

    /// Sets the client to notify when the lock is taken away.
    #[cfg(all(feature = "local", target_os = "linux"))]
    pub(crate) fn set_route(&mut self, owner: Owner, client_id: u32) {
        if let Some(holder) = self.find_mut(owner) {
            holder.client_id = client_id;
        }
    }

    /// Reduces a holder's permits.
    pub(crate) fn set_permits(&mut self, owner: Owner, permits: u32) {
        match self {
            Self::One(holder) if holder.owner == owner => holder.permits = permits,
            Self::Many(many) => {
                if let Some(holder) = many.by_owner.get_mut(&owner) {
                    many.used -= holder.permits - permits;
                    holder.permits = permits;
                }
            }
            _ => {}
        }
    }

    /// Removes holders whose lease has ended. Each was granted once, so the amortized cost is that of the
    /// grants.
    pub(crate) fn expire(&mut self, now: Moment) {
        while let Some((until, owner)) = self.first_deadline() {
            if until > now {
                return;
            }
            self.remove(owner);
        }
    }

    /// The holder whose lease ends first.
    pub(crate) fn first_deadline(&self) -> Option<(Moment, Owner)> {
        match self {
            Self::None => None,
            Self::One(holder) => Some((holder.until, holder.owner)),
            Self::Many(many) => many.by_deadline.first().copied(),
        }
    }

    /// All holders, sorted by the end of their leases.
    pub(crate) fn by_deadline(&self) -> impl Iterator<Item = &Holder> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(holder) => (Some(holder), None),
            Self::Many(many) => (None, Some(many)),
        };
        let ordered = many.into_iter().flat_map(|many| {
            many.by_deadline.iter().filter_map(|(_, owner)| many.by_owner.get(owner))
        });
        one.into_iter().chain(ordered)
    }

    /// All holders, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Holder> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(holder) => (Some(holder), None),
            Self::Many(many) => (None, Some(many.by_owner.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl Many {
    fn insert(&mut self, holder: Holder) {
        self.used += holder.permits;
        self.by_deadline.insert((holder.until, holder.owner));
        self.by_owner.insert(holder.owner, holder);
    }

    fn remove(&mut self, owner: Owner) -> Option<Holder> {
        let holder = self.by_owner.remove(&owner)?;
        self.by_deadline.remove(&(holder.until, owner));
        self.used -= holder.permits;
        Some(holder)
    }
}
