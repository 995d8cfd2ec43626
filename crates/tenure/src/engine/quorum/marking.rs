//! Marking servers as the nodes of a quorum.

use std::time::Duration;

use super::admission::{Admission, EVICTS, decide};
use super::connecting::{Agreed, agree, check_independent, survey_all};
use super::identity::{Identity, Marked};
use crate::Lease;
use crate::clock;
use crate::engine::redis::{Mark, NodeAddress, Survey};
use crate::error::{Error, Invalid, StoreError};

/// The longest lease of a new quorum.
const LONGEST: Duration = Duration::from_secs(60);

/// Marks servers. Returns what was done, in sentences.
pub(super) async fn mark(
    addresses: Vec<NodeAddress>,
    longest: Option<Lease>,
    force: bool,
) -> Result<Vec<String>, Error> {
    let surveys = survey_all(addresses.clone()).await;
    check_independent(&addresses, &surveys)?;
    if let Ok(agreed) = agree(&addresses, &surveys) {
        let longest = longest.unwrap_or(agreed.identity.longest);
        let is_same = agreed.identity.longest == longest && is_of(&addresses, &agreed.members);
        // With --force and other nodes, or another longest lease, it becomes a new one, so that clients which know the old
        // one are refused everywhere.
        if is_same || !force {
            return mark_again(&addresses, surveys, &agreed, longest, force).await;
        }
    }
    let surveys = all_reached(&addresses, surveys)?;
    for (address, survey) in addresses.iter().zip(&surveys) {
        if survey.evicts {
            return Err(refuse(format!("{address} cannot be a node: {EVICTS}")));
        }
        let why = match &survey.marker {
            Some(_) if !force => "is marked as a node of another quorum",
            None if survey.keys > 0 && !force => "is not empty",
            _ => continue,
        };
        return Err(refuse(format!(
            "{address} {why}: the nodes of a new quorum must be new and empty, or add --force if no client uses it"
        )));
    }
    let identity = match identity_of(&addresses, &surveys, longest) {
        Some(identity) => identity,
        None => {
            let longest = longest.map_or_else(|| Lease::new(LONGEST), Ok)?;
            Identity::new(addresses.len(), longest, clock::both().wall)
        }
    };
    let agreed = Agreed { identity, members: members(&addresses) };
    let mut done = vec![format!(
        "quorum {} of {} nodes, with leases of {:?} at most",
        agreed.identity.id,
        agreed.identity.nodes,
        agreed.identity.longest.duration()
    )];
    for (address, survey) in addresses.iter().zip(&surveys) {
        write(address, survey, &agreed).await?;
        done.push(format!("{address} is marked"));
    }
    Ok(done)
}

/// The quorum that some of the servers are still marked for, if it is one, and no other: its clients need not be restarted.
fn identity_of(
    addresses: &[NodeAddress],
    surveys: &[Survey],
    longest: Option<Lease>,
) -> Option<Identity> {
    let mut marked = surveys.iter().filter_map(|it| {
        let marked = it.marker.as_ref()?.parse::<Marked>().ok()?;
        Some((marked.identity, it.members.as_deref().unwrap_or_default()))
    });
    let (first, members) = marked.next()?;
    let is_fit = longest.is_none_or(|it| it == first.longest) && is_of(addresses, members);
    (is_fit && marked.all(|(it, _)| it == first)).then_some(first)
}

/// Whether these are the nodes of a quorum with these members.
fn is_of(addresses: &[NodeAddress], members: &str) -> bool {
    let mut ours: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let mut theirs: Vec<_> = members.split(',').map(str::to_owned).collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    ours == theirs
}

/// The addresses of the nodes, as they are stored.
fn members(addresses: &[NodeAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A majority has the marker already: the others get the same.
async fn mark_again(
    addresses: &[NodeAddress],
    surveys: super::connecting::Surveys,
    agreed: &Agreed,
    longest: Lease,
    force: bool,
) -> Result<Vec<String>, Error> {
    let Agreed { identity, members } = agreed;
    let at_most = identity.longest.duration();
    if identity.longest != longest {
        return Err(refuse(format!(
            "quorum {} exists already, with leases of {at_most:?} at most: add --force to make it a new one, which is right \
             only if no client uses it; or name --max-lease {at_most:?}",
            identity.id
        )));
    }
    let mut done =
        vec![format!("quorum {} exists already, with leases of {at_most:?} at most", identity.id)];
    for (address, survey) in addresses.iter().zip(surveys) {
        let is_listed = members.split(',').any(|member| member == address.to_string());
        let said = match survey {
            Some(Ok(survey)) => match decide(&survey, identity) {
                Admission::Vote => "is marked".to_owned(),
                Admission::Unfit { why } | Admission::Note { why: why @ EVICTS } => {
                    format!("does not vote: {why}")
                }
                _ if force => {
                    write(address, &survey, agreed).await?;
                    "is marked again".to_owned()
                }
                Admission::Foreign => {
                    "is marked as a node of another quorum, or its marker is not one; --force marks it as one of this \
                     quorum, and is right only if no lock is held"
                        .to_owned()
                }
                Admission::Note { .. } | Admission::Absent { .. } if is_listed => {
                    "does not vote: it was restarted, or has lost its data or some of it. Clients admit it again by themselves after the \
                     quarantine; --force admits it at once, and is right only if no lock is held"
                        .to_owned()
                }
                Admission::Note { .. } | Admission::Absent { .. } => format!(
                    "is not a node of this quorum, whose nodes are {members}. To replace one of them, stop all clients, and \
                     mark the new nodes with --force"
                ),
            },
            Some(Err(_)) | None => "cannot be reached".to_owned(),
        };
        done.push(format!("{address} {said}"));
    }
    Ok(done)
}

fn all_reached(
    addresses: &[NodeAddress],
    surveys: super::connecting::Surveys,
) -> Result<Vec<Survey>, Error> {
    let reached = addresses.iter().zip(surveys).map(|(address, survey)| match survey {
        Some(Ok(survey)) => Ok(survey),
        Some(Err(error)) => Err(Error::Connect { error }),
        None => {
            Err(Error::Connect { error: StoreError::refused(format!("{address} does not answer")) })
        }
    });
    reached.collect()
}

async fn write(address: &NodeAddress, survey: &Survey, agreed: &Agreed) -> Result<(), Error> {
    let marker = agreed.identity.marker(&survey.process);
    let mark = Mark::New { marker: &marker, members: &agreed.members };
    address.mark(mark).await.map(drop).map_err(|error| Error::Connect { error })
}

fn refuse(why: String) -> Error {
    Error::Invalid(Invalid::new(why))
}
