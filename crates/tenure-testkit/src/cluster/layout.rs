//! Which node has which slots and which primary, as one node sees it.

/// What `CLUSTER NODES` of one node says; nodes are known by their number in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// First slot, last slot and owner.
    ranges: Vec<(u16, u16, usize)>,
    /// The primary of each node; its own number, if it is one.
    primaries: Vec<usize>,
}

impl Layout {
    /// Parses the answer, where `ids` are those of the cluster's nodes; none while a node is unknown.
    pub(super) fn parse(text: &str, ids: &[&str]) -> Option<Self> {
        let number = |id: &str| ids.iter().position(|known| *known == id);
        let (mut ranges, mut primaries) = (Vec::new(), vec![None; ids.len()]);
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            // A node in a handshake goes by a name that it will not keep.
            let Some(node) = words.first().and_then(|id| number(id)) else { continue };
            primaries[node] = if *words.get(3)? == "-" { Some(node) } else { number(words[3]) };
            let slots = words.get(8..)?.iter().filter(|word| !word.starts_with('['));
            for word in slots {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                ranges.push((first.parse().ok()?, last.parse().ok()?, node));
            }
        }
        ranges.sort_unstable();
        Some(Self { ranges, primaries: primaries.into_iter().collect::<Option<_>>()? })
    }

    /// The node that serves the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<usize> {
        let range = self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        Some(range.2)
    }

    /// The primary of a node; the node itself, if it is one.
    pub(super) fn primary_of(&self, node: usize) -> usize {
        self.primaries[node]
    }
}

/// The primaries in the answer, each with the epoch of its configuration.
pub(super) fn epochs(text: &str, ids: &[&str]) -> Vec<(usize, u64)> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let epoch = |words: Vec<&str>| {
        let node = ids.iter().position(|id| Some(id) == words.first())?;
        let is_primary = words.get(2)?.split(',').any(|flag| flag == "master");
        is_primary.then_some((node, words.get(6)?.parse().ok()?))
    };
    let mut epochs: Vec<_> = lines.filter_map(epoch).collect();
    epochs.sort_unstable();
    epochs
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
        aa 127.0.0.1:10001@20001 myself,master - 0 0 1 connected 0-99 200 [50->-bb]\n\
        bb 127.0.0.1:10002@20002,,shard-id=5 master - 0 1 2 connected 100-199\n\
        cc 127.0.0.1:10003@20003 slave aa 0 1 1 connected\n\
        zz 127.0.0.1:10004@20004 handshake - 0 0 0 connected\n";

    #[test]
    fn owners_and_primaries_are_read() {
        let layout = Layout::parse(NODES, &["bb", "aa", "cc"]).unwrap();
        let owners = [0, 50, 99, 100, 199, 200, 201].map(|slot| layout.owner(slot));
        assert_eq!(owners, [Some(1), Some(1), Some(1), Some(0), Some(0), Some(1), None]);
        assert_eq!([0, 1, 2].map(|node| layout.primary_of(node)), [0, 1, 1]);
    }

    #[test]
    fn epochs_of_primaries_are_read() {
        assert_eq!(epochs(NODES, &["bb", "aa", "cc"]), [(0, 2), (1, 1)]);
    }

    #[test]
    fn a_node_that_is_not_known_yet_makes_no_layout() {
        assert_eq!(Layout::parse(NODES, &["aa", "bb", "cc", "dd"]), None);
    }
}
