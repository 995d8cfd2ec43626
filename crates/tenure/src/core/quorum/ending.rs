//! A release over all nodes.

use super::Size;

/// What a node has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Pending,
    /// The entry has ended here, and this many others of its owner have not.
    Released {
        remaining: u32,
    },
    NotHeld,
    /// The entry has ended here; whether it held the lock is not known.
    Cancelled,
    /// No answer.
    Silent,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Open,
    Released {
        remaining: u32,
    },
    NotHeld,
    /// Too many nodes did not answer, or the rest disagrees: whether it was held is not known (I6).
    Failed,
}

/// The answers to one release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ending {
    needed: usize,
    ends: Vec<End>,
}

impl Ending {
    pub(crate) fn new(size: Size, needed: usize) -> Self {
        Self { needed, ends: vec![End::Pending; size.nodes()] }
    }

    pub(crate) fn note(&mut self, node: usize, end: End) {
        self.ends[node] = end;
    }

    /// Whether every node has held it, and has confirmed its end.
    pub(crate) fn is_released_everywhere(&self) -> bool {
        self.ends.iter().all(|end| matches!(end, End::Released { .. }))
    }

    /// It was held if enough nodes held it, and not if the others are too few. Open while answers may decide that.
    pub(crate) fn verdict(&self) -> Ended {
        let (mut released, mut not_held, mut pending, mut most) = (0, 0, 0, 0);
        for end in &self.ends {
            match *end {
                End::Released { remaining } => {
                    released += 1;
                    most = most.max(remaining);
                }
                End::NotHeld => not_held += 1,
                End::Pending => pending += 1,
                End::Cancelled | End::Silent => {}
            }
        }
        if released >= self.needed {
            Ended::Released { remaining: most }
        } else if self.ends.len() - not_held < self.needed {
            Ended::NotHeld
        } else if pending == 0 {
            Ended::Failed
        } else {
            Ended::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use End::{Cancelled, NotHeld, Pending, Released, Silent};

    const DONE: End = Released { remaining: 0 };

    fn verdict(ends: [End; 5]) -> Ended {
        let size = Size::new(5).unwrap();
        let mut ending = Ending::new(size, size.majority());
        ends.into_iter().enumerate().for_each(|(node, end)| ending.note(node, end));
        ending.verdict()
    }

    /// I6: whether a hold was valid when it was released is what a majority says, or unknown.
    #[test]
    fn a_release_says_what_a_majority_says() {
        let released = Ended::Released { remaining: 0 };
        assert_eq!(verdict([DONE, DONE, DONE, Pending, Pending]), released);
        assert_eq!(verdict([DONE, DONE, DONE, NotHeld, Silent]), released);
        assert_eq!(verdict([DONE, DONE, NotHeld, NotHeld, Pending]), Ended::Open);
        assert_eq!(verdict([DONE, DONE, NotHeld, NotHeld, NotHeld]), Ended::NotHeld);
        assert_eq!(verdict([DONE, DONE, NotHeld, Cancelled, Silent]), Ended::Failed);
        let one_left = Released { remaining: 1 };
        assert_eq!(
            verdict([DONE, one_left, one_left, Silent, Silent]),
            Ended::Released { remaining: 1 }
        );
    }
}
