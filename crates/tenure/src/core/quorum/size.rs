//! The number of nodes, and the votes that an operation needs.

use crate::core::shape::{Kind, Shape};
use crate::error::Invalid;

/// The number of nodes of a quorum: 3, 5 or 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Size(u8);

impl Size {
    /// Checks a number of nodes. An even one survives no more failures than the odd one below it, and more than seven
    /// cost more than they survive.
    pub(crate) fn new(nodes: usize) -> Result<Self, Invalid> {
        match nodes {
            3 => Ok(Self(3)),
            5 => Ok(Self(5)),
            7 => Ok(Self(7)),
            _ => Err(Invalid::new(format!(
                "a quorum has 3, 5 or 7 independent servers, not {nodes}"
            ))),
        }
    }

    pub(crate) const fn nodes(self) -> usize {
        self.0 as usize
    }

    /// The smallest number of nodes of which any two sets share one.
    pub(crate) const fn majority(self) -> usize {
        self.0 as usize / 2 + 1
    }

    /// How many nodes must grant a request of this shape (I1).
    ///
    /// A majority, but for a semaphore: with a limit of k, k + 1 holders at q nodes each occupy (k + 1)·q of the N·k
    /// permits that the nodes have, so q must be larger than N·k / (k + 1). A writer takes all permits of a node, so
    /// a majority excludes readers and writers.
    pub(crate) fn needed(self, shape: Shape) -> usize {
        if shape.kind() != Kind::Semaphore {
            return self.majority();
        }
        let (nodes, limit) = (u64::from(self.0), u64::from(shape.limit()));
        // At most seven.
        (nodes * limit / (limit + 1) + 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_of_nodes_are_refused_with_a_sentence() {
        for nodes in [0, 1, 2, 4, 6, 8, 9] {
            let refused = Size::new(nodes).unwrap_err().to_string();
            assert!(refused.contains("3, 5 or 7"), "{refused}");
        }
        assert_eq!([3, 5, 7].map(|nodes| Size::new(nodes).unwrap().majority()), [2, 3, 4]);
    }

    /// I1: whatever nodes the holders of a semaphore have, no limit is exceeded.
    #[test]
    fn the_votes_of_one_holder_too_many_do_not_fit() {
        for nodes in [3, 5, 7] {
            let size = Size::new(nodes).unwrap();
            for limit in 1..=20 {
                let needed = size.needed(Shape::new(Kind::Semaphore, limit, 1).unwrap());
                let limit = limit as usize;
                assert!((limit + 1) * needed > nodes * limit, "{limit} of {nodes}: {needed}");
                assert!(needed <= nodes && (limit + 1) * (needed - 1) <= nodes * limit, "no more");
            }
            let write = Shape::new(Kind::ReadWrite, Shape::MAX_LIMIT, Shape::MAX_LIMIT).unwrap();
            assert_eq!(size.needed(write), size.majority());
        }
    }
}
