//! A model of clients and nodes, explored state by state: the votes are counted by the real code, and everything that a
//! network, a clock and a crash can do happens at every point.
//!
//! - Messages are delayed, lost, repeated and reordered. A request to end an entry is repeated until it was confirmed, and
//!   each copy may arrive at any time after that.
//! - Time passes between any two steps, so leases end at any point; a client may give up or crash at any point.
//! - Nodes restart at any point, with their data or without.
//!
//! The same model finds an error in every variant of the protocol that is known to be wrong, so it can find one.

mod client;
mod explorations;
mod node;
mod prelude;
mod walk;

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Model, Property};

use self::client::{Client, NODES, Phase, Steps};
use self::node::{Answer, Node, Owner, Request};
use self::prelude::Prelude;
use crate::core::moment::Moment;

/// All leases, in seconds.
const LONGEST: u8 = 3;

/// How far a proposed fence may be behind the calendar of a node.
const BEHIND: u8 = 2;

/// How long a node that lost its data has no vote: until all leases have ended that it may have forgotten, and until it
/// refuses all fences that it may have forgotten, because they are too far behind.
const QUARANTINE: u8 = LONGEST + BEHIND;

/// The claim lease.
const CLAIM: u8 = 2;

/// A protocol that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naive {
    /// Each node counts for itself, and the fence is the largest of a majority.
    Counters,
    /// A node that lost its data votes at once.
    NoQuarantine,
    /// A renewal recreates the hold at nodes that lost it, without proof that it still exists.
    RepairWithoutProof,
    /// The deadline counts from the reply.
    FromReply,
    /// A node accepts its last fence once more.
    NotStrict,
    /// A node accepts any fence that is larger than its last, however old the request is.
    AnyAge,
    /// Different fences of a majority are reported without being stored.
    NoCommit,
    /// The message of a hand-over counts, whatever the node has answered before.
    AnyMessage,
    /// An entry that is asked for again has the same number, although an end of it may still arrive.
    SameNumber,
}

impl Naive {
    fn skips_commit(self) -> bool {
        matches!(self, Self::Counters | Self::NoCommit)
    }
}

/// A restart of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Fault {
    DataLoss,
}

fn seconds(seconds: u8) -> Moment {
    Moment::ZERO + micros(seconds)
}

fn micros(seconds: u8) -> Duration {
    Duration::from_secs(seconds.into())
}

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    clients: u8,
    attempts: u8,
    renewals: u8,
    restarts: u8,
    repeats: u8,
    seconds: u8,
    waits: bool,
}

struct Quorum {
    bounds: Bounds,
    naive: Option<Naive>,
    /// The steps before the exploration begins.
    prelude: Vec<Prelude>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    messages: BTreeSet<Message>,
    /// The largest fence that was granted.
    largest: u64,
    is_ordered: bool,
    restarts: u8,
    repeats: u8,
}

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    node: usize,
    owner: Owner,
    /// The number of the entry at this node.
    number: u8,
    round: u8,
    /// When the request was sent, by the client's clock.
    sent: u8,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Body {
    Request(Request),
    Answer(Answer),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Deliver(Message),
    Repeat(Message),
    Acquire(usize),
    Retry(usize),
    AskAgain(usize),
    Renew(usize),
    GiveUp(usize),
    GiveBackMinority(usize),
    Restart(usize, Fault),
    Tick,
}

impl Model for Quorum {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let client = |id| Client::new(id, self.bounds.renewals);
        let world = World {
            // Later than zero, so that calendars are.
            now: 1,
            nodes: vec![Node::default(); NODES],
            clients: (0..self.bounds.clients).map(client).collect(),
            messages: BTreeSet::new(),
            largest: 0,
            is_ordered: true,
            restarts: self.bounds.restarts,
            repeats: self.bounds.repeats,
        };
        vec![self.prelude.iter().fold(world, |world, step| self.lead(world, *step))]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for message in &world.messages {
            actions.push(Action::Deliver(*message));
            if world.repeats > 0 && world.may_repeat(message) {
                actions.push(Action::Repeat(*message));
            }
        }
        for (client, it) in world.clients.iter().enumerate() {
            self.actions_of(client, it, world.now, actions);
        }
        if world.restarts > 0 {
            actions.extend((0..NODES).map(|node| Action::Restart(node, Fault::DataLoss)));
        }
        if world.now < self.bounds.seconds {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Deliver(message) => {
                next.messages.remove(&message);
                self.deliver(&mut next, message);
            }
            Action::Repeat(message) => {
                next.repeats -= 1;
                if message.body == Body::Request(Request::Cancel) {
                    let client = usize::from(message.owner.client);
                    next.clients[client].doubtful |= 1 << message.node;
                }
                self.deliver(&mut next, message);
            }
            Action::Acquire(client) => {
                let steps = next.clients[client].acquire(self.bounds.waits, world.now);
                next.follow(client, steps);
            }
            Action::Retry(client) => {
                let steps = next.clients[client].retry(world.now, self.naive);
                next.follow(client, steps);
            }
            Action::AskAgain(client) => {
                let steps = next.clients[client].ask_again(world.now);
                next.follow(client, steps);
            }
            Action::Renew(client) => {
                let steps = next.clients[client].renew(world.now);
                next.follow(client, steps);
            }
            Action::GiveUp(client) => {
                let steps = next.clients[client].give_up();
                next.follow(client, steps);
            }
            Action::GiveBackMinority(client) => {
                let steps = next.clients[client].give_back_minority(world.now, self.naive);
                next.follow(client, steps);
            }
            Action::Restart(node, fault) => {
                next.restarts -= 1;
                next.nodes[node].restart(fault, world.now, self.naive);
            }
            Action::Tick => next.now += 1,
        }
        next.forget_old_messages();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "I1: one holder believes that its lease is valid",
                |_, world: &World| world.beliefs().count() <= 1,
            ),
            Property::always(
                "I4: fences grow, and a holder has the largest",
                |_, world: &World| {
                    world.is_ordered && world.beliefs().all(|fence| fence == world.largest)
                },
            ),
            Property::sometimes("a lock is granted again", |_, world: &World| {
                world.clients.iter().filter(|client| client.attempt > 0).count() > 1
                    && world.beliefs().count() == 1
            }),
        ]
    }
}

impl Quorum {
    fn actions_of(&self, client: usize, it: &Client, now: u8, actions: &mut Vec<Action>) {
        match &it.phase {
            Phase::Idle => {
                if it.attempt < self.bounds.attempts {
                    actions.push(Action::Acquire(client));
                }
                if it.can_retry() {
                    actions.push(Action::Retry(client));
                }
            }
            Phase::Wanting { candidate, .. } => {
                actions.push(Action::GiveUp(client));
                if self.bounds.waits && it.renewals_left > 0 {
                    actions.push(Action::AskAgain(client));
                }
                if self.bounds.waits && !candidate.minority(seconds(now)).is_empty() {
                    actions.push(Action::GiveBackMinority(client));
                }
            }
            Phase::Committing { .. } => actions.push(Action::GiveUp(client)),
            Phase::Holding { deadline, .. } => {
                actions.push(Action::GiveUp(client));
                let is_lost = seconds(now) >= *deadline;
                let resumes = self.naive == Some(Naive::RepairWithoutProof);
                if it.renewals_left > 0 && (!is_lost || resumes) {
                    actions.push(Action::Renew(client));
                }
            }
        }
    }

    /// A request reaches its node, or an answer its client.
    fn deliver(&self, world: &mut World, message: Message) {
        let Message { node, owner, number, round, sent, body } = message;
        match body {
            Body::Request(request) => {
                let (answer, woken) =
                    world.nodes[node].perform((owner, number), request, world.now, self.naive);
                world.messages.insert(Message { body: Body::Answer(answer), ..message });
                if let Some(((owner, number), granted)) = woken {
                    let body = Body::Answer(granted);
                    world.messages.insert(Message { node, owner, number, round: 0, sent: 0, body });
                }
            }
            Body::Answer(answer) => {
                let client = usize::from(owner.client);
                let it = &mut world.clients[client];
                let is_current = match answer {
                    Answer::HandedOver { .. } => it.numbers[node] == number,
                    Answer::Cancelled => it.is_ending(node, number),
                    _ => it.awaits(round, node),
                };
                if it.owner() == owner && is_current {
                    let steps = it.receive(node, sent, answer, world.now, self.naive);
                    world.follow(client, steps);
                }
            }
        }
    }
}

impl World {
    fn beliefs(&self) -> impl Iterator<Item = u64> {
        self.clients.iter().filter_map(|client| client.belief(self.now))
    }

    fn follow(&mut self, client: usize, steps: Steps) {
        let rounds = self.clients[client].rounds;
        let owner = self.clients[client].owner();
        for (node, number, request) in steps.sent {
            let body = Body::Request(request);
            let (round, sent) = (rounds[node], self.now);
            self.messages.insert(Message { node, owner, number, round, sent, body });
        }
        if let Some(fence) = steps.granted {
            self.is_ordered &= fence > self.largest;
            self.largest = self.largest.max(fence);
        }
    }

    /// A request to end an entry is sent again while it is not confirmed.
    fn may_repeat(&self, message: &Message) -> bool {
        let client = &self.clients[usize::from(message.owner.client)];
        message.body != Body::Request(Request::Cancel)
            || client.owner() == message.owner && client.is_ending(message.node, message.number)
    }

    /// Removes messages without effect: they only multiply the states. These are answers that no client handles, and
    /// requests to end an entry that is not there and cannot come any more.
    fn forget_old_messages(&mut self) {
        let (clients, nodes) = (&self.clients, &self.nodes);
        let is_acquire = |it: &&Message| matches!(it.body, Body::Request(Request::Acquire { .. }));
        let acquires: BTreeSet<_> =
            self.messages.iter().filter(is_acquire).map(|it| (it.node, it.entry())).collect();
        self.messages.retain(|message| {
            let client = &clients[usize::from(message.owner.client)];
            match message.body {
                Body::Request(Request::Cancel) => {
                    let Message { node, owner, number, .. } = *message;
                    let is_awaited = client.owner() == owner && client.is_ending(node, number);
                    let entry = message.entry();
                    // A naive client asks for the same entry later.
                    let may_come = client.owner() == owner && client.numbers[node] == number;
                    is_awaited
                        || may_come
                        || nodes[node].has(entry)
                        || acquires.contains(&(node, entry))
                }
                Body::Request(_) => true,
                Body::Answer(answer) => {
                    let is_wanted = match answer {
                        Answer::Cancelled => client.is_ending(message.node, message.number),
                        Answer::HandedOver { .. } => {
                            matches!(client.phase, Phase::Wanting { .. }) || client.can_retry()
                        }
                        _ => client.awaits(message.round, message.node),
                    };
                    client.owner() == message.owner && is_wanted
                }
            }
        });
    }
}

impl Message {
    fn entry(&self) -> (Owner, u8) {
        (self.owner, self.number)
    }
}
