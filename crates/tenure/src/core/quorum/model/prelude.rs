//! Steps that lead to where an exploration begins: an error that takes many steps is found in time from there.

use stateright::Model;

use super::{Action, Fault, Message, Quorum, World};

/// A step that leads to where an exploration begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prelude {
    Acquire(usize),
    /// All messages between a client and some nodes are delivered.
    Deliver(usize, &'static [usize]),
    Ticks(u8),
    Restart(usize),
}

impl Quorum {
    pub(super) fn lead(&self, mut world: World, step: Prelude) -> World {
        let mut act = |action| world = self.next_state(&world, action).unwrap_or(world.clone());
        match step {
            Prelude::Acquire(client) => act(Action::Acquire(client)),
            Prelude::Restart(node) => act(Action::Restart(node, Fault::DataLoss)),
            Prelude::Ticks(count) => (0..count).for_each(|_| act(Action::Tick)),
            Prelude::Deliver(client, nodes) => loop {
                let is_meant = |it: &&Message| {
                    usize::from(it.owner.client) == client && nodes.contains(&it.node)
                };
                let Some(message) = world.messages.iter().find(is_meant).copied() else { break };
                world = self.next_state(&world, Action::Deliver(message)).unwrap_or(world);
            },
        }
        world
    }
}
