//! The master that Sentinels name.
//!
//! - **Locating.** Every connection attempt asks all known Sentinels: those of the URL, and those that they name. A
//!   majority of them must name the same address. One alone may be partitioned, restarted, or not know of the last
//!   failover yet.
//! - **Following.** The client subscribes to `+switch-master` on every Sentinel, and asks them once a second. When one of them
//!   announces a switch away from the address in use, or a majority names another address, every connection to the old address
//!   is closed at once: the old master may live, and may accept writes for seconds, all of which are lost. Its role is no proof.
//!   The old address is not used again until the majority has named another one, for ten seconds at most; a Sentinel whose
//!   announcement the majority has contradicted for that long is not believed again.
//! - **Confirming** ([`confirming`]). A master that was stopped, replaced and continued first answers the requests in its socket
//!   buffers, with success, and all of that is lost. So a reply that took long counts only if a majority still names the same
//!   master; and so does the first one after this process was stopped, and could not follow.
//! - The driver then asks for all waiters and renews all holds, as after every lost connection (I7, I9).

mod confirming;
mod peer;
mod verdict;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::confirming::Confirming;
use self::peer::Peer;
use self::verdict::{Verdict, judge};
use super::address::{Endpoint, HostPort, Login};
use super::pace::{Pace, pause};
use super::tls::Trust;
use crate::clock;
use crate::core::moment::Moment;
use crate::error::StoreError;
use crate::sync::lock;

/// How often the Sentinels are asked while nothing is announced: an announcement may be lost.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How often they are asked after a connection was lost, or a switch was announced, and for how long: a failover takes
/// seconds, and ends with an announcement, which may be lost, and which not all Sentinels know at once.
const ASK_OFTEN: Duration = Duration::from_millis(100);
const OFTEN_FOR: Duration = Duration::from_secs(20);

/// How long an address that one Sentinel has announced as left is not used while the majority still names it. The others
/// learn of a switch within one or two seconds; a Sentinel that is wrong must not lock its clients out for longer.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// How many Sentinels are asked and followed at most, besides those of the URL: one may invent any number of others.
const MOST_PEERS: usize = 64;

/// What a URL says about Sentinels.
#[derive(Clone)]
pub(super) struct Monitored {
    /// The name under which they watch the master.
    pub(super) master: String,
    pub(super) listed: Vec<HostPort>,
    /// As whom to log in to them, which is not as whom to log in to the master.
    pub(super) login: Login,
    /// With TLS, to them and to the master.
    pub(super) trust: Option<Trust>,
}

/// A Sentinel, and the master that it names.
pub(super) type Asked = (HostPort, Result<Option<HostPort>, StoreError>);

impl Monitored {
    /// Where a Sentinel, or the master that they name, listens.
    fn endpoint(&self, at: &HostPort) -> Result<Endpoint, StoreError> {
        at.endpoint(self.trust.as_ref())
    }
}

impl fmt::Display for Monitored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: Vec<_> = self.listed.iter().map(HostPort::to_string).collect();
        write!(f, "the master `{}` of the Sentinels at {}", self.master, listed.join(", "))
    }
}

/// The Sentinels of one master.
pub(super) struct Sentinels {
    monitored: Monitored,
    state: Mutex<State>,
    /// The Sentinels are to be asked now.
    announced: Notify,
    confirming: Confirming,
    /// The I/O thread's runtime.
    io: OnceLock<Handle>,
}

struct State {
    /// Where Sentinels may be asked: those of the URL, and those that the last answers have named.
    peers: BTreeSet<HostPort>,
    /// Where the client's connections lead.
    in_use: Option<HostPort>,
    /// An address that a Sentinel has announced as left.
    left: Option<Left>,
    /// Sentinels whose announcement the majority has contradicted.
    contradicted: BTreeSet<HostPort>,
}

struct Left {
    address: HostPort,
    at: Moment,
    by: HostPort,
}

impl Sentinels {
    pub(super) fn new(monitored: Monitored) -> Self {
        let peers = monitored.listed.iter().cloned().collect();
        let state =
            Mutex::new(State { peers, in_use: None, left: None, contradicted: BTreeSet::new() });
        let (announced, confirming) = (Notify::new(), Confirming::default());
        Self { monitored, state, announced, confirming, io: OnceLock::new() }
    }

    #[cfg(test)]
    pub(super) fn monitored(&self) -> &Monitored {
        &self.monitored
    }

    /// Where the master is now, by the word of a majority.
    ///
    /// # Errors
    /// When no majority answers, or they disagree, or the address was announced as left.
    pub(super) async fn locate(self: &Arc<Self>, pace: &Pace) -> Result<Endpoint, StoreError> {
        let master = self.ask().await?;
        let mut state = lock(&self.state);
        if state.is_left(&master, clock::now()) {
            let what = format!("{master} is being replaced as {}", self.monitored);
            return Err(StoreError::refused(what));
        }
        let before = state.in_use.replace(master.clone());
        drop(state);
        if before.is_some_and(|before| before != master) {
            // Other connections still lead there.
            pace.report_moved();
        }
        self.monitored.endpoint(&master)
    }

    /// Closes the client's connections when the master changes, for ever. Runs on the I/O thread.
    pub(super) async fn watch(self: Arc<Self>, pace: Arc<Pace>) {
        let _ = self.io.set(Handle::current());
        let (mut followed, mut followers) = (BTreeSet::new(), JoinSet::new());
        let (mut often_until, mut named) = (clock::now(), None);
        loop {
            let peers = lock(&self.state).peers.clone();
            followed.retain(|peer| peers.contains(peer));
            for peer in peers {
                if followed.insert(peer.clone()) {
                    followers.spawn(self.clone().follow(peer, pace.clone()));
                }
            }
            if let Ok(master) = self.ask().await {
                if self.has_moved_to(&master) {
                    pace.report_moved();
                }
                if named.replace(master.clone()).is_some_and(|before| before != master) {
                    // Connections that wait before their next attempt make it now.
                    pace.report_located();
                    often_until = clock::now();
                }
            }
            let rest = if clock::now() < often_until { ASK_OFTEN } else { ASK_EVERY };
            let is_urgent = tokio::select! {
                () = pause(rest) => false,
                () = self.announced.notified() => true,
                () = pace.lost(), if rest == ASK_EVERY => true,
            };
            if is_urgent {
                often_until = clock::now() + OFTEN_FOR;
            }
        }
    }

    /// Asks the Sentinels for the master.
    async fn ask(self: &Arc<Self>) -> Result<HostPort, StoreError> {
        let began = clock::now();
        let peers = lock(&self.state).peers.clone();
        let mut named = self.ask_all(&peers).await;
        let known = lock(&self.state).peers.clone();
        // The answers named Sentinels that had not been asked.
        if named.is_err() && !known.is_subset(&peers) {
            named = self.ask_all(&known).await;
        }
        self.confirming.note_asked(began, clock::now(), named.is_ok());
        named
    }

    /// Asks at these addresses at once, until a majority of the Sentinels that the answers know agrees.
    async fn ask_all(self: &Arc<Self>, peers: &BTreeSet<HostPort>) -> Result<HostPort, StoreError> {
        let mut asking = JoinSet::new();
        for peer in peers {
            let (sentinels, peer) = (self.clone(), peer.clone());
            asking.spawn(async move { Peer::ask(&peer, &sentinels.monitored).await });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asking.join_next().await {
            let ended = || StoreError::refused("a task of the client has ended");
            answers.push(answer.unwrap_or_else(|_| Err(ended())));
            match judge(&answers, peers.len()) {
                Verdict::Master(master) => {
                    self.remember(&answers, true);
                    return Ok(master);
                }
                Verdict::None(why) => {
                    self.remember(&answers, false);
                    return Err(self.failed(&why, &answers));
                }
                Verdict::Open => {}
            }
        }
        Err(self.failed("no majority of them agrees", &answers))
    }

    /// Where to ask next: at the addresses of the URL, and at those that the answers have named. A Sentinel that no answer of a
    /// majority names any more is forgotten.
    ///
    /// Without a majority none is. A Sentinel does not name itself: if only one had time to answer, and were forgotten for that, the
    /// next answer would be of another one alone, and so on, and no majority would ever be heard.
    fn remember(&self, answers: &[Result<Peer, StoreError>], is_decided: bool) {
        let named = answers.iter().flatten().flat_map(|it| &it.others).map(|it| it.at.clone());
        let named: BTreeSet<_> = named.take(MOST_PEERS).collect();
        let listed = self.monitored.listed.iter().cloned();
        let mut state = lock(&self.state);
        if !is_decided {
            let room = (listed.len() + MOST_PEERS).saturating_sub(state.peers.len());
            state.peers.extend(named.into_iter().take(room));
        } else if !named.is_empty() {
            state.peers = listed.chain(named).collect();
        }
    }

    /// What each known Sentinel answers now: the master that it names, none if it knows no such master.
    pub(super) async fn survey(&self) -> Vec<Asked> {
        let peers = lock(&self.state).peers.clone();
        let mut answers = Vec::new();
        for peer in peers {
            let answer = Peer::ask(&peer, &self.monitored).await.map(|it| it.master);
            answers.push((peer, answer));
        }
        answers
    }

    fn failed(&self, why: &str, answers: &[Result<Peer, StoreError>]) -> StoreError {
        let error = StoreError::refused(format!("could not locate {}: {why}", self.monitored));
        // Waiting repairs neither a refused login nor a wrong name.
        let is_lasting = |it: &Result<Peer, StoreError>| match it {
            Ok(peer) => peer.master.is_none(),
            Err(error) => error.is_lasting(),
        };
        if answers.iter().all(is_lasting) { error.lasting() } else { error }
    }

    /// Whether the client's connections lead elsewhere than to the master that a majority has named.
    fn has_moved_to(&self, master: &HostPort) -> bool {
        let mut state = lock(&self.state);
        if state.left.as_ref().is_some_and(|left| left.address != *master) {
            // The switch that was announced is done.
            state.left = None;
        }
        let has_moved = state.in_use.as_ref().is_some_and(|in_use| in_use != master);
        if has_moved {
            state.in_use = None;
            state.contradicted.clear();
        }
        has_moved
    }

    /// Follows the announcements of one Sentinel, for as long as it is known.
    async fn follow(self: Arc<Self>, peer: HostPort, pace: Arc<Pace>) {
        loop {
            if let Ok(endpoint) = self.monitored.endpoint(&peer) {
                let announce = |old: HostPort| self.leave(old, &peer, &pace);
                Peer::follow(&endpoint, &self.monitored, announce).await;
            }
            pause(ASK_EVERY).await;
            if !lock(&self.state).peers.contains(&peer) {
                return;
            }
        }
    }

    /// A Sentinel has announced a switch away from an address.
    fn leave(&self, old: HostPort, by: &HostPort, pace: &Pace) {
        let mut state = lock(&self.state);
        let is_in_use = state.in_use.as_ref() == Some(&old) && !state.contradicted.contains(by);
        if is_in_use {
            state.in_use = None;
            state.left = Some(Left { address: old, at: clock::now(), by: by.clone() });
        }
        drop(state);
        if is_in_use {
            pace.report_moved();
        }
        self.announced.notify_one();
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.monitored.fmt(f)
    }
}

impl State {
    /// Whether an address was announced as left. The majority names it: after some time that counts.
    fn is_left(&mut self, master: &HostPort, now: Moment) -> bool {
        let Some(left) = self.left.take_if(|left| left.address == *master) else { return false };
        if now.since(left.at) < LEFT_FOR {
            self.left = Some(left);
            return true;
        }
        self.contradicted.insert(left.by);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::peer::Other;
    use super::*;

    fn host(port: u16) -> HostPort {
        HostPort { host: "10.0.0.1".into(), port }
    }

    /// The answer of a Sentinel of three, which are at the ports 1 to 3.
    fn of_three(port: u16) -> Result<Peer, StoreError> {
        let other = |port: u16| Other { id: port.to_string(), at: host(port) };
        let others = (1..4).filter(|it| *it != port).map(other).collect();
        Ok(Peer { id: port.to_string(), master: Some(host(6379)), others })
    }

    fn sentinels() -> Sentinels {
        let login = Login { user: None, password: None, database: 0 };
        let master = "main".to_owned();
        Sentinels::new(Monitored { master, listed: vec![host(1)], login, trust: None })
    }

    fn peers(sentinels: &Sentinels) -> Vec<u16> {
        lock(&sentinels.state).peers.iter().map(|it| it.port).collect()
    }

    /// The URL names one Sentinel, which is down. The others are slow, and answer by turns.
    #[test]
    fn a_sentinel_that_answers_alone_is_asked_again() {
        let sentinels = sentinels();
        for port in [2, 3, 2] {
            let slow = || Err(StoreError::refused("it did not answer in time"));
            sentinels.remember(&[slow(), of_three(port), slow()], false);
        }
        assert_eq!(peers(&sentinels), [1, 2, 3]);
    }

    #[test]
    fn sentinels_that_a_majority_does_not_name_are_forgotten() {
        let sentinels = sentinels();
        lock(&sentinels.state).peers.extend((1000..3000).map(host));
        sentinels.remember(&[of_three(1)], false);
        assert!(!peers(&sentinels).contains(&2), "there may be any number of them");
        sentinels.remember(&[of_three(2), of_three(3)], true);
        assert_eq!(peers(&sentinels), [1, 2, 3]);
    }

    /// A Sentinel that announces a switch which the majority does not confirm is believed for a while, once.
    #[test]
    fn an_announcement_that_the_majority_contradicts_counts_for_a_while() {
        let at = |seconds: u64| Moment::from_micros(1_000_000 * seconds);
        let (master, liar) = (host(6379), host(26379));
        let mut state = State {
            peers: BTreeSet::new(),
            in_use: None,
            left: Some(Left { address: master.clone(), at: at(100), by: liar.clone() }),
            contradicted: BTreeSet::new(),
        };
        assert!(!state.is_left(&host(6380), at(101)), "another address");
        assert!(state.is_left(&master, at(101)) && state.is_left(&master, at(109)));
        assert!(!state.is_left(&master, at(111)));
        assert!(state.contradicted.contains(&liar), "it is not believed again");
        assert!(!state.is_left(&master, at(112)));
    }
}
