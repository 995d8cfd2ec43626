//! One server.

use super::node::Node;
use super::{Stage, Usage};
use crate::fault::Fault;
use crate::time::{Micros, now};

/// A server whose data is lost just before or after its clock was set back forgets fences that are ahead of its clock: the one
/// case in which fences do not grow. So these two faults are kept apart.
const APART: Micros = 10_000_000;

pub(super) struct One {
    node: Node,
    /// When its clock was last wrong.
    clock: Micros,
    /// When its data was last lost.
    lost: Micros,
}

impl One {
    pub(super) fn start() -> Self {
        Self { node: Node::start(), clock: 0, lost: 0 }
    }
}

impl Stage for One {
    fn url(&self) -> String {
        self.node.proxy.url()
    }

    fn faults(&self) -> Vec<Fault> {
        Node::FAULTS.to_vec()
    }

    fn excuses(&self, fault: Fault) -> bool {
        // A clock that was set back is set forward again.
        matches!(
            fault,
            Fault::EmptyServer | Fault::FlushAll | Fault::ClockForward | Fault::ClockBack
        )
    }

    fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) -> bool {
        let loses_data = matches!(fault, Fault::EmptyServer | Fault::FlushAll);
        let is_set_back = fault == Fault::ClockBack;
        if loses_data && now() < self.clock + APART || is_set_back && now() < self.lost + APART {
            return false;
        }
        self.node.inject(fault, random);
        if loses_data {
            self.lost = now();
        }
        if matches!(fault, Fault::ClockForward | Fault::ClockBack) {
            self.clock = now();
        }
        true
    }

    fn usage(&self) -> Usage {
        self.node.usage()
    }
}
