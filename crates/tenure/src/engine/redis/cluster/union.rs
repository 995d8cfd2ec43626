//! Whether the views of several nodes are views of one cluster.
//!
//! A URL may name nodes of two clusters by mistake, or a node that has joined another one since. Clients that used the one that
//! answered first would use different clusters, and hold one lock twice (I1). Views that have a node in common, known by its id,
//! are of one cluster.

use std::collections::BTreeMap;

use super::super::address::HostPort;
use super::view::{NodeId, View};
use crate::error::StoreError;
use crate::telemetry;

/// The views of the cluster that is `known`, or else of the only one. A view without nodes is of any cluster.
///
/// # Errors
/// When no cluster is known, or not any more, and the views are of several.
pub(super) fn of_one_cluster(
    views: Vec<(HostPort, View)>,
    known: &BTreeMap<HostPort, NodeId>,
) -> Result<Vec<View>, StoreError> {
    let is_of_known = |(_, view): &&(HostPort, View)| view.is_about(known);
    let is_known = views.iter().any(|view| is_of_known(&view));
    let first =
        views.iter().find(|it| if is_known { is_of_known(it) } else { !it.1.nodes.is_empty() });
    let Some((first, view)) = first.cloned() else {
        return Ok(views.into_iter().map(|(_, view)| view).collect());
    };
    let mut nodes = if is_known { known.clone() } else { view.nodes };
    let (mut same, mut others) = (Vec::new(), views);
    loop {
        let is_same = |(_, view): &(HostPort, View)| view.nodes.is_empty() || view.is_about(&nodes);
        let (more, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(is_same);
        others = rest;
        if more.is_empty() {
            break;
        }
        nodes.extend(more.iter().flat_map(|(_, view)| view.nodes.clone()));
        same.extend(more.into_iter().map(|(_, view)| view));
    }
    match others.first() {
        Some((other, _)) if !is_known => Err(StoreError::refused(format!(
            "{first} and {other} are nodes of different clusters: name the nodes of one cluster in the URL"
        ))
        .answered()
        .lasting()),
        other => {
            other.into_iter().for_each(|(other, _)| telemetry::other_cluster(other));
            Ok(same)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> HostPort {
        HostPort { host: "h".into(), port }
    }

    fn nodes(ports: &[u16]) -> BTreeMap<HostPort, NodeId> {
        ports.iter().map(|port| (at(*port), format!("id-{port}"))).collect()
    }

    fn view(asked: u16, ports: &[u16]) -> (HostPort, View) {
        (at(asked), View { ranges: Vec::new(), nodes: nodes(ports) })
    }

    #[test]
    fn views_with_a_common_node_are_of_one_cluster() {
        let count = |views: &[_], known: &[u16]| {
            of_one_cluster(views.to_vec(), &nodes(known)).map(|views| views.len())
        };
        let (first, far) = (view(1, &[1, 2]), view(3, &[3, 4]));
        assert_eq!(count(&[first.clone(), far.clone(), view(2, &[2, 3])], &[]).unwrap(), 3);
        assert_eq!(count(&[view(9, &[]), first.clone()], &[]).unwrap(), 2, "one has no slots");
        let mixed = [first, far];
        let error = count(&mixed, &[]).unwrap_err();
        assert!(error.to_string().contains("h:1 and h:3 are nodes of different clusters"));
        assert!(error.is_lasting());
        assert_eq!(count(&mixed, &[4, 5]).unwrap(), 1, "the one that is known");
        assert!(count(&mixed, &[7]).is_err(), "neither is");
        assert_eq!(count(&mixed[..1], &[7]).unwrap(), 1, "it was set up anew");
    }
}
