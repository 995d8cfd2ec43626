//! From a URL to nodes that may vote.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::absent::Absent;
use super::identity::{Identity, Marked};
use super::supervising::{Member, supervise};
use super::{Quorum, QuorumEngine, pause};
use crate::core::quorum::Size;
use crate::engine::redis::{NodeAddress, Survey, parse_quorum};
use crate::engine::{Engine, Protocol, RedisOptions};
use crate::error::{Error, Invalid, StoreError};
use crate::{Lease, thread};

/// How long the other nodes may take once a majority is there.
const GRACE: Duration = Duration::from_millis(300);

/// A look at each node; none at one that takes too long.
pub(super) type Surveys = Vec<Option<Result<Survey, StoreError>>>;

impl QuorumEngine {
    /// Connects to the quorum at `url`.
    ///
    /// # Errors
    /// When the URL is invalid, no majority of the nodes can be reached, or they are not marked as nodes of one quorum.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let (about, retention) = (crate::About::this_process(), crate::core::fence::RETENTION);
        let options = RedisOptions { about, retention, ..RedisOptions::default() };
        Self::connect_as(url, options).await
    }

    /// Whether a URL names a quorum.
    pub(crate) fn is_scheme_of(url: &str) -> bool {
        parse_quorum(url).is_some()
    }

    pub(crate) async fn connect_as(url: &str, options: RedisOptions) -> Result<Self, Error> {
        if options.protocol != Protocol::Tenure {
            let why = "a quorum does not share locks with Redisson: name one server, or a cluster";
            return Err(Invalid::new(why).into());
        }
        let addresses = parse(url)?;
        let (io, running) = thread::start_io("tenure-quorum")?;
        let surveys = on(&io, survey_all(addresses.clone())).await?;
        let agreed = agree(&addresses, &surveys)?;
        let engine = Self::new(
            agreed.identity.id.clone(),
            addresses.iter().map(unadmitted).collect(),
            agreed.identity.longest.duration(),
            (io, running),
        )?;
        engine.quorum.note_surveys(&surveys);
        let member = Member::new(&engine.quorum, agreed, addresses, options);
        engine.admit(member, surveys).await?;
        Ok(engine)
    }

    /// Connects to all nodes that may vote. Returns once a majority has, and the others have had their chance.
    async fn admit(&self, member: Member, surveys: Surveys) -> Result<(), Error> {
        let (quorum, member) = (&self.quorum, Arc::new(member));
        let mut admitting = JoinSet::new();
        for (node, survey) in surveys.into_iter().enumerate() {
            let member = member.clone();
            let admit = async move {
                if let Some(Ok(survey)) = survey {
                    member.admit(node, &survey).await;
                }
                let is_up = member.is_admitted(node);
                tokio::spawn(thread::lasting(move || supervise(member.clone(), node)));
                is_up
            };
            admitting.spawn_on(admit, &quorum.io);
        }
        let majority = quorum.size.majority();
        on(&quorum.io, wait_for_majority(admitting, majority)).await?;
        if quorum.nodes.iter().filter(|node| node.is_admitted()).count() >= majority {
            return Ok(());
        }
        let errors: Vec<_> = quorum.nodes.iter().map(|node| node.why_absent()).collect();
        Err(Error::Connect { error: quorum.failure(&errors, false) })
    }

    /// Marks new, empty servers as the nodes of one quorum, in which no lease may be longer than `longest`: a minute, unless
    /// the quorum exists. Nodes that have lost the marker of a quorum that a majority has are marked at once only with
    /// `force`: it means that no lock is held.
    ///
    /// Returns what was done, in sentences.
    ///
    /// # Errors
    /// When the URL is invalid, a node cannot be reached, or it is in use already.
    pub async fn mark_nodes(
        url: &str,
        longest: Option<Duration>,
        force: bool,
    ) -> Result<Vec<String>, Error> {
        let (addresses, longest) = (parse(url)?, longest.map(Lease::new).transpose()?);
        let (io, _running) = thread::start_io("tenure-quorum")?;
        on(&io, super::marking::mark(addresses, longest, force)).await?
    }
}

fn parse(url: &str) -> Result<Vec<NodeAddress>, Error> {
    let other =
        || Err(Invalid::new("the URL of a quorum begins with redis+quorum:// or rediss+quorum://"));
    Ok(parse_quorum(url).unwrap_or_else(other)?)
}

fn unadmitted(address: &NodeAddress) -> (Arc<dyn Engine>, Arc<str>) {
    (Arc::new(Absent(not_reached())), Arc::from(address.to_string()))
}

fn not_reached() -> StoreError {
    StoreError::refused("it was not reached")
}

/// Awaits work on the engine's own thread, because the caller's executor may have no I/O.
async fn on<T: Send + 'static>(
    io: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    let ended = |_| Error::Connect { error: StoreError::refused("the client's thread has ended") };
    io.spawn(work).await.map_err(ended)
}

/// Looks at all nodes, and does not wait for long once a majority has answered.
pub(super) async fn survey_all(addresses: Vec<NodeAddress>) -> Surveys {
    let majority = addresses.len() / 2 + 1;
    let mut surveys: Surveys = addresses.iter().map(|_| None).collect();
    let mut asking = JoinSet::new();
    for (node, address) in addresses.into_iter().enumerate() {
        asking.spawn(async move { (node, address.survey().await) });
    }
    let mut count = 0;
    loop {
        let next = tokio::select! {
            next = asking.join_next() => next,
            () = pause(GRACE), if count >= majority => None,
        };
        let Some(Ok((node, survey))) = next else { return surveys };
        count += usize::from(survey.is_ok());
        surveys[node] = Some(survey);
    }
}

async fn wait_for_majority(mut admitting: JoinSet<bool>, majority: usize) {
    let mut count = 0;
    loop {
        let next = tokio::select! {
            next = admitting.join_next() => next,
            () = pause(GRACE), if count >= majority => None,
        };
        match next {
            Some(is_up) => count += usize::from(is_up.unwrap_or(false)),
            // The slow ones continue.
            None => return admitting.detach_all(),
        }
    }
}

/// What a majority of the nodes agrees on.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    pub(super) identity: Identity,
    /// The addresses of all nodes, as they were marked.
    pub(super) members: String,
}

/// The quorum that a majority of the nodes is marked for.
pub(super) fn agree(addresses: &[NodeAddress], surveys: &Surveys) -> Result<Agreed, Error> {
    let size = Size::new(addresses.len())?;
    let known: Vec<_> = surveys.iter().flatten().flatten().collect();
    let connect = |error: StoreError| Error::Connect { error };
    if known.len() < size.majority() {
        let mut what = format!("{} of {} nodes can be reached", known.len(), addresses.len());
        for (address, survey) in addresses.iter().zip(surveys) {
            match survey {
                Some(Ok(_)) => {}
                Some(Err(error)) => what.push_str(&format!("; {address}: {error}")),
                None => what.push_str(&format!("; {address}: no answer yet")),
            }
        }
        let is_lasting =
            surveys.iter().flatten().any(|it| it.as_ref().is_err_and(StoreError::is_lasting));
        let error = StoreError::refused(what);
        return Err(connect(if is_lasting { error.lasting() } else { error }));
    }
    check_independent(addresses, surveys)?;
    let marked = known.iter().filter_map(|it| {
        let identity = it.marker.as_ref()?.parse::<Marked>().ok()?.identity;
        Some(Agreed { identity, members: it.members.clone()? })
    });
    let marked: Vec<_> = marked.collect();
    let is_agreed = |one: &&Agreed| {
        marked.iter().filter(|it| it.identity == one.identity).count() >= size.majority()
    };
    match marked.iter().find(is_agreed) {
        Some(agreed) if agreed.identity.nodes == size.nodes() => Ok(agreed.clone()),
        Some(Agreed { identity, .. }) => Err(Error::Invalid(Invalid::new(format!(
            "this quorum has {} nodes, and the URL names {}: name all of them",
            identity.nodes,
            size.nodes()
        )))),
        None => Err(connect(
            StoreError::refused(
                "no majority of these servers is marked as nodes of one quorum: when they are new and empty, run \
                 `tenure quorum init` once, with this URL",
            )
            .answered()
            .lasting(),
        )),
    }
}

/// Two addresses of one server would count twice.
pub(super) fn check_independent(addresses: &[NodeAddress], surveys: &Surveys) -> Result<(), Error> {
    for (at, survey) in surveys.iter().enumerate() {
        let Some(Ok(survey)) = survey else { continue };
        let is_same = |other: &Option<Result<Survey, StoreError>>| matches!(other, Some(Ok(it)) if it.run_id == survey.run_id);
        if let Some(other) = surveys[at + 1..].iter().position(is_same) {
            return Err(Error::Invalid(Invalid::new(format!(
                "{} and {} are the same server: the nodes of a quorum must be independent",
                addresses[at],
                addresses[at + 1 + other]
            ))));
        }
    }
    Ok(())
}

impl Quorum {
    /// Notes why nodes do not vote yet, and excludes those whose calendar is not that of the others.
    fn note_surveys(&self, surveys: &Surveys) {
        for (node, survey) in self.nodes.iter().zip(surveys) {
            match survey {
                Some(Ok(survey)) => {
                    node.set_calendar(survey.calendar());
                }
                Some(Err(error)) => node.expel(Absent(error.clone())),
                None => node.expel(Absent(not_reached())),
            }
        }
        self.exclude_deviating();
    }
}
