//! One task per node: connects to it when it may vote, and again after it was restarted or has lost its data.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

use super::absent::Absent;
use super::admission::{Admission, NO_PROCESS, decide, left, new_token, quarantine};
use super::arrival::on_arrival;
use super::connecting::Agreed;
use super::identity::Marked;
use super::{Quorum, pause};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::quorum::{Calendar, deviating, is_behind, is_ours};
use crate::engine::redis::{Mark, Marker, NodeAddress, Survey};
use crate::engine::{RedisEngine, RedisOptions, Wakeup};
use crate::error::{Error, StoreError};
use crate::info::About;
use crate::sync::lock;

/// How often a node that is not well is looked at.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// How often one is that is in quarantine for longer than that.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often one that is well is looked at, on a new connection: its address may lead to another server by now.
const LOOK_EVERY: Duration = Duration::from_secs(8);

/// A node that could not be looked at for this long does not vote, although its old connections work. Less than any
/// quarantine: by then another server may be admitted at its address.
const UNSEEN: Duration = Duration::from_secs(24);

/// How often the clock of a node is compared with ours, though nothing is asked of it.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

/// How long the clocks of all nodes are waited for when one of them seems to have been set.
const CLOCKS_WITHIN: Duration = Duration::from_secs(1);

/// What is needed to make the nodes members of the quorum.
pub(super) struct Member {
    quorum: Weak<Quorum>,
    agreed: Agreed,
    quarantine: Duration,
    addresses: Vec<NodeAddress>,
    about: About,
    retention: Duration,
    runtime: Option<tokio::runtime::Handle>,
}

impl Member {
    pub(super) fn new(
        quorum: &Arc<Quorum>,
        agreed: Agreed,
        addresses: Vec<NodeAddress>,
        options: RedisOptions,
    ) -> Self {
        Self {
            quorum: Arc::downgrade(quorum),
            quarantine: quarantine(agreed.identity.longest.duration()),
            agreed,
            addresses,
            about: options.about,
            retention: options.retention,
            runtime: options.runtime,
        }
    }

    pub(super) fn is_admitted(&self, node: usize) -> bool {
        self.quorum.upgrade().is_some_and(|quorum| quorum.nodes[node].is_admitted())
    }

    /// Admits a node as far as this look at it allows. Returns how soon to look again.
    pub(super) async fn admit(&self, node: usize, survey: &Survey) -> Duration {
        if let Some(quorum) = self.quorum.upgrade() {
            quorum.nodes[node].look_again_within(survey.asked.0, UNSEEN);
        }
        // Its messages are not checked by a script, so this client must know, too.
        if let (false, Some(quorum)) = (survey.clock_set.is_zero(), self.quorum.upgrade()) {
            let longest = quorum.longest;
            quorum.nodes[node].exclude(survey.clock_set.min(noted_for(longest)));
            drop(quorum);
            // Its clock was set back since: the note would last for as long as that.
            if survey.clock_set > noted_for(longest) {
                self.note_clock_set(node, longest).await;
            }
        }
        match decide(survey, &self.agreed.identity) {
            Admission::Vote => self.connect(node, survey).await,
            Admission::Unfit { why } => self.refuse(node, why),
            Admission::Foreign => self.refuse(
                node,
                "it is marked as a node of another quorum; if `tenure quorum init --force` did that, restart this client",
            ),
            Admission::Note { why } | Admission::Absent { why, .. } if !self.is_listed(node) => {
                let Agreed { members, .. } = &self.agreed;
                self.refuse(
                    node,
                    &format!(
                        "{why}, and this address is not among those that were marked ({members}): a client with those \
                         addresses admits it again"
                    ),
                );
            }
            Admission::Note { why } => {
                self.refuse(node, why);
                let token = new_token(&survey.run_id);
                let (marker, identity) = (survey.marker.as_deref(), &self.agreed.identity);
                // It has the marker of its process, with which it would vote.
                let instead = survey.evicts.then(|| identity.marker(NO_PROCESS));
                let mark = Mark::Absent { marker, instead: instead.as_deref(), token: &token };
                // Another client may be faster, or the server is lost again: the next look shows it.
                if let Err(error) = self.addresses[node].mark(mark).await {
                    self.refuse(node, &error.to_string());
                }
            }
            Admission::Absent { token, why } => return self.quarantined(node, survey, &token, why).await,
        }
        CHECK_EVERY
    }

    /// A node is in quarantine: admits it when the other nodes say that it is over.
    async fn quarantined(&self, node: usize, survey: &Survey, token: &str, why: &str) -> Duration {
        let left = self.left(node, token).await;
        if !left.is_zero() {
            let seconds = left.as_secs() + 1;
            self.refuse(node, &format!("{why}, and does not vote for another {seconds} s"));
            return left.clamp(CHECK_EVERY, LONGEST_PAUSE);
        }
        let marker = self.agreed.identity.marker(&survey.process);
        let mark = Mark::Again { token, marker: &marker, members: &self.agreed.members };
        match self.addresses[node].mark(mark).await {
            Ok(true) => self.connect(node, survey).await,
            // Another client was faster: the next look finds what it has done.
            Ok(false) => {}
            Err(error) => self.refuse(node, &error.to_string()),
        }
        CHECK_EVERY
    }

    /// How much of the quarantine of a node is left, by the clocks of the others that belong to the quorum. Those that do not
    /// vote themselves are asked, too: after a restart of all nodes there are no others.
    async fn left(&self, node: usize, token: &str) -> Duration {
        let others = (0..self.addresses.len()).filter(|other| *other != node);
        let mut known = Vec::new();
        // It is kept until no client can ask for it any more.
        let kept = self.quarantine * 2 + Duration::from_secs(3600);
        for other in others {
            let Ok(Some((time, marker))) = self.addresses[other].witness(token, kept).await else {
                continue;
            };
            let is_ours = |marked: Marked| marked.identity == self.agreed.identity;
            if marker.parse().is_ok_and(is_ours) {
                known.push(time);
            }
        }
        left(&known, self.addresses.len(), self.quarantine)
    }

    /// Whether an operator has marked a server at this address.
    fn is_listed(&self, node: usize) -> bool {
        let address = self.addresses[node].to_string();
        self.agreed.members.split(',').any(|member| member == address)
    }

    /// Connects to the process that was looked at.
    async fn connect(&self, node: usize, survey: &Survey) {
        let Some(quorum) = self.quorum.upgrade() else { return };
        let Survey { run_id, asked, now, .. } = survey;
        if quorum.nodes[node].is_admitted_as(run_id) {
            return;
        }
        let marker = match Marker::new(&self.agreed.identity.marker(&survey.process)) {
            Ok(marker) => marker.of_process(&survey.run_id),
            Err(invalid) => return self.refuse(node, &invalid.to_string()),
        };
        let options = RedisOptions {
            about: self.about.clone(),
            retention: self.retention,
            runtime: self.runtime.clone(),
            quorum: Some(marker),
            io: Some(quorum.io.clone()),
            ..RedisOptions::default()
        };
        match RedisEngine::connect_node(&self.addresses[node], options).await {
            Ok(engine) => {
                // Before it votes: its clock may be set from now on.
                quorum.compare_clock(node, *asked, *now);
                match quorum.admit(node, engine, run_id) {
                    // Its waiters have asked another connection, or none.
                    Ok(()) => quorum.wake(Wakeup::Missed),
                    Err(other) => self.refuse(
                        node,
                        &format!("it is the same server as {}", self.addresses[other]),
                    ),
                }
            }
            Err(Error::Connect { error }) => quorum.nodes[node].expel(Absent(error)),
            Err(error) => self.refuse(node, &error.to_string()),
        }
    }

    fn refuse(&self, node: usize, why: &str) {
        if let Some(quorum) = self.quorum.upgrade() {
            let why = StoreError::refused(why).answered().quarantined();
            quorum.nodes[node].expel(Absent(why));
        }
    }

    /// Looks at a node, on a new connection: one that was restarted, or has lost its marker, is expelled, and so is one whose
    /// address leads to another server now. Returns how soon to look again; none if it did not answer.
    async fn check(&self, node: usize, seen: Moment) -> Option<Duration> {
        let error = match self.addresses[node].survey().await {
            Ok(survey) => return Some(self.admit(node, &survey).await),
            Err(error) => error,
        };
        let quorum = self.quorum.upgrade()?;
        // An admitted one reconnects by itself, to the same process only. But another server may be admitted at its address
        // after the quarantine, and both would vote: so it must be seen more often than that.
        if !quorum.nodes[node].is_admitted() || clock::now().since(seen) > UNSEEN {
            quorum.nodes[node].expel(Absent(error));
        }
        None
    }

    /// The clock of a node seems to have been set. If those of most nodes do, ours stood still, which concerns no other client.
    async fn noticed_step(&self, node: usize) {
        let Some(asking) = self.quorum.upgrade().map(|quorum| quorum.ask_for_clocks()) else {
            return;
        };
        asking.await;
        let Some(quorum) = self.quorum.upgrade() else { return };
        let leaps: Vec<_> = quorum.nodes.iter().map(|node| node.leap()).collect();
        let longest = quorum.longest;
        drop(quorum);
        if !is_ours(&leaps, node) {
            self.note_clock_set(node, longest).await;
        }
    }

    /// The clock of a node was set: writes that down there, for clients that have not seen the clock before.
    async fn note_clock_set(&self, node: usize, longest: Duration) {
        // If it cannot be reached, clients that know of it exclude it all the same.
        let _ = self.addresses[node].note_clock_set(noted_for(longest)).await;
    }
}

/// For how long a node notes that its clock was set.
fn noted_for(longest: Duration) -> Duration {
    longest + longest / 50
}

impl Quorum {
    /// A process of a node votes from now on, unless it votes already as another node: a server with two addresses is one
    /// node (I1). Returns that one then.
    fn admit(&self, node: usize, engine: RedisEngine, run_id: &str) -> Result<(), usize> {
        // One at a time.
        let _admitting = lock(&self.admitting);
        let is_same = |other: &usize| {
            *other != node && self.nodes[*other].run_id().as_deref() == Some(run_id)
        };
        match (0..self.nodes.len()).find(is_same) {
            Some(other) => Err(other),
            None => {
                self.nodes[node].admit(Arc::new(engine), run_id);
                self.counts.lose_at(node);
                Ok(())
            }
        }
    }

    /// Notes the clock of a node in an answer to a request that was sent at `sent`. Returns whether its grants count.
    pub(super) fn note_clock(&self, node: usize, sent: Moment, store: Moment) -> bool {
        let asked = (sent, clock::now());
        self.nodes[node].note_clock(asked, store, self.longest);
        if self.nodes[node].set_calendar(Calendar::new(asked.0, asked.1, store)) {
            self.exclude_deviating();
        }
        self.nodes[node].votes()
    }

    /// The same, and compares the calendars in any case.
    fn compare_clock(&self, node: usize, asked: (Moment, Moment), store: Moment) {
        self.nodes[node].note_clock(asked, store, self.longest);
        self.nodes[node].set_calendar(Calendar::new(asked.0, asked.1, store));
        self.exclude_deviating();
    }

    /// Compares the clocks of all nodes with ours: resolves when all have answered, or some seem not to.
    fn ask_for_clocks(self: &Arc<Self>) -> impl Future<Output = ()> + use<> {
        // It ends when all senders are dropped.
        let (pending, mut answered) = mpsc::channel::<Infallible>(1);
        for (node, it) in self.nodes.iter().enumerate() {
            let (quorum, pending, sent) = (self.clone(), pending.clone(), clock::now());
            on_arrival(it.engine().time(), move |time| {
                if let Ok(Some(store)) = time {
                    let asked = (sent, clock::now());
                    quorum.nodes[node].note_clock(asked, store, quorum.longest);
                }
                drop(pending);
            });
        }
        async move {
            let _ = tokio::time::timeout(CLOCKS_WITHIN, answered.recv()).await;
        }
    }

    /// Nodes whose calendar is not that of the others do not vote: those were set, or will be.
    pub(super) fn exclude_deviating(&self) {
        let calendars: Vec<_> = self.nodes.iter().map(|node| node.calendar()).collect();
        let deviating = deviating(&calendars);
        for (node, it) in self.nodes.iter().enumerate() {
            it.set_behind(deviating.contains(&node) && is_behind(&calendars, node));
        }
        for node in deviating {
            self.nodes[node].exclude_noticed(self.longest);
        }
    }
}

/// Looks at a node whenever it is not well, from time to time in any case, and at its clock; ends with the engine.
pub(super) async fn supervise(member: Arc<Member>, node: usize) {
    let (mut rest, mut compared, mut seen) = (CHECK_EVERY, clock::now(), clock::now());
    let mut looked = seen;
    loop {
        let Some(stepped) = member.quorum.upgrade().map(|quorum| quorum.nodes[node].stepped())
        else {
            return;
        };
        let is_stepped = tokio::select! {
            () = pause(rest) => false,
            () = stepped.notified() => true,
        };
        if is_stepped {
            member.noticed_step(node).await;
            continue;
        }
        let Some(quorum) = member.quorum.upgrade() else { return };
        rest = CHECK_EVERY;
        let now = clock::now();
        if !quorum.nodes[node].is_well() || now.since(looked) >= LOOK_EVERY {
            drop(quorum);
            looked = now;
            if let Some(pause) = member.check(node, seen).await {
                (rest, seen) = (pause, now);
            }
        } else if now.since(compared) >= COMPARE_EVERY {
            compared = now;
            let asking = quorum.nodes[node].engine().time();
            drop(quorum);
            let time = asking.await;
            if let (Ok(Some(store)), Some(quorum)) = (time, member.quorum.upgrade()) {
                quorum.compare_clock(node, (compared, clock::now()), store);
            }
        }
    }
}
