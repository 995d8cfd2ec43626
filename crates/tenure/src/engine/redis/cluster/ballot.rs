//! Which node has which slot, by the views of several nodes.
//!
//! After a failover, and while slots are moved, nodes differ for a moment: what most of them say counts. A wrong choice
//! costs a redirection.

use super::super::address::HostPort;
use super::super::slot::SLOTS;
use super::view::View;

/// The owner of each slot that has one, as an index into the list of owners.
pub(super) struct Owners {
    pub(super) nodes: Vec<HostPort>,
    pub(super) of_slots: Vec<Option<usize>>,
}

/// The owner that most views name, for each slot; of several, the one that was named first.
pub(super) fn count(views: &[View]) -> Owners {
    let mut nodes = Vec::new();
    let columns: Vec<_> = views.iter().map(|view| expand(view, &mut nodes)).collect();
    let of_slots = (0..usize::from(SLOTS)).map(|slot| {
        let named: Vec<_> = columns.iter().filter_map(|column| column[slot]).collect();
        let votes = |owner: usize| named.iter().filter(|it| **it == owner).count();
        // The last of several maxima would be chosen.
        named.iter().rev().copied().max_by_key(|owner| votes(*owner))
    });
    let of_slots = of_slots.collect();
    Owners { nodes, of_slots }
}

/// The owner of each slot in one view.
fn expand(view: &View, nodes: &mut Vec<HostPort>) -> Vec<Option<usize>> {
    let mut column = vec![None; usize::from(SLOTS)];
    for range in &view.ranges {
        let known = nodes.iter().position(|node| *node == range.owner);
        let index = known.unwrap_or_else(|| {
            nodes.push(range.owner.clone());
            nodes.len() - 1
        });
        column[usize::from(range.first)..=usize::from(range.last)].fill(Some(index));
    }
    column
}

#[cfg(test)]
mod tests {
    use super::super::view::Range;
    use super::*;

    fn view(ranges: &[(u16, u16, u16)]) -> View {
        let range = |&(first, last, port): &(u16, u16, u16)| {
            let owner = HostPort { host: "h".into(), port };
            Range { first, last, owner }
        };
        View { ranges: ranges.iter().map(range).collect(), nodes: Default::default() }
    }

    fn port(owners: &Owners, slot: usize) -> Option<u16> {
        owners.of_slots[slot].map(|index| owners.nodes[index].port)
    }

    #[test]
    fn most_views_decide_about_each_slot() {
        let views = [
            view(&[(0, 99, 1), (100, 200, 2)]),
            view(&[(0, 99, 1), (100, 200, 2)]),
            view(&[(0, 99, 3), (100, 200, 2)]),
        ];
        let owners = count(&views);
        assert_eq!((port(&owners, 0), port(&owners, 99)), (Some(1), Some(1)));
        assert_eq!((port(&owners, 100), port(&owners, 201)), (Some(2), None));
        let tied = count(&[view(&[(7, 7, 5)]), view(&[(7, 7, 6)])]);
        assert_eq!(port(&tied, 7), Some(5), "the first");
        assert_eq!(port(&count(&[]), 0), None);
    }
}
