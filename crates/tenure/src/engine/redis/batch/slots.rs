//! Which node of a cluster has the calls of each slot that are in flight.
//!
//! Operations of one name are performed in the order in which they are sent, as long as they are sent to one node. When a
//! slot has got another node, or when a spread call may have left some of its operations undone, an operation that was sent
//! first may have to be sent again. Until that is known, later operations of the slot wait: otherwise an acquire would
//! overtake the release before it.

use super::super::slot::SLOTS;
use super::item::Item;

/// The number of the node that has a slot.
type NodeOf = Box<dyn Fn(u16) -> Option<u64> + Send>;

/// The calls in flight, by slot. By default those of one server, which are not distinguished.
#[derive(Default)]
pub(super) struct Slots(Option<OfCluster>);

struct OfCluster {
    owner: NodeOf,
    of_slots: Vec<InFlight>,
}

/// The calls in flight for one slot: all of them are at one node.
#[derive(Clone, Copy, Default)]
struct InFlight {
    node: u64,
    calls: u32,
    /// Of these, the ones that carry operations of other slots as well.
    spread: u32,
}

/// The slots of one call.
#[derive(Default)]
pub(super) struct SlotsOfCall {
    slots: Vec<u16>,
    is_spread: bool,
}

impl Slots {
    pub(super) fn of_cluster(owner: NodeOf) -> Self {
        let of_slots = vec![InFlight::default(); usize::from(SLOTS)];
        Self(Some(OfCluster { owner, of_slots }))
    }

    /// The node to which an operation of a slot is sent now; none if no node has it, or one server has all.
    pub(super) fn owner(&self, slot: u16) -> Option<u64> {
        self.0.as_ref().and_then(|cluster| (cluster.owner)(slot))
    }

    /// Whether an operation of a slot may be sent to this node now, or else to the one that has the slot.
    pub(super) fn may_send(&self, slot: u16, to: Option<u64>) -> bool {
        let Some(cluster) = &self.0 else { return true };
        let InFlight { node, calls, spread } = cluster.of_slots[usize::from(slot % SLOTS)];
        // An operation whose slot has no node is refused, and so overtakes none.
        let is_same = || to.or_else(|| (cluster.owner)(slot)).is_none_or(|to| to == node);
        calls == 0 || spread == 0 && is_same()
    }

    /// A call of these operations is about to be sent to a node.
    pub(super) fn begin(&mut self, batch: &[Box<dyn Item>], to: Option<u64>) -> SlotsOfCall {
        let (Some(cluster), Some(node)) = (&mut self.0, to) else { return SlotsOfCall::default() };
        let mut slots: Vec<_> = batch.iter().map(|item| item.slot()).collect();
        slots.dedup();
        let is_spread = slots.len() > 1;
        for slot in &slots {
            let in_flight = &mut cluster.of_slots[usize::from(slot % SLOTS)];
            in_flight.node = node;
            in_flight.calls += 1;
            in_flight.spread += u32::from(is_spread);
        }
        SlotsOfCall { slots, is_spread }
    }

    /// A call is answered, or will not be, and what it has not done was put back.
    pub(super) fn end(&mut self, call: SlotsOfCall) {
        let Some(cluster) = &mut self.0 else { return };
        for slot in call.slots {
            let in_flight = &mut cluster.of_slots[usize::from(slot % SLOTS)];
            in_flight.calls = in_flight.calls.saturating_sub(1);
            in_flight.spread = in_flight.spread.saturating_sub(u32::from(call.is_spread));
        }
    }
}
