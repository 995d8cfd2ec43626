//! The faults that a run injects.

use std::fmt;

use clap::ValueEnum;

/// What can go wrong. Which of them a topology has is up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// A client is killed, and another one started.
    KillClient,
    /// A client is stopped for up to three leases.
    StopClient,
    /// A server is killed, and started again with its data.
    KillServer,
    /// A server is killed, loses its data, and is started again.
    EmptyServer,
    /// A server is stopped for up to two seconds.
    StopServer,
    /// All data of a server is deleted.
    FlushAll,
    /// A server forgets its scripts.
    ScriptFlush,
    /// A server closes the connections of its clients.
    ClientKill,
    /// The reply to a command is lost, with its connection.
    LoseReply,
    /// A command is lost, with its connection.
    LoseRequest,
    /// Replies are delayed for a moment.
    DelayReplies,
    /// Messages to waiters are lost for a moment.
    LoseMessages,
    /// All connections are cut.
    Cut,
    /// Nothing passes for up to two seconds, and no connection ends.
    BlackHole,
    /// A server's clock is set forward by some leases, and back after a while.
    ClockForward,
    /// A server's clock is set back by some leases, and forward after a while.
    ClockBack,
    /// A planned failover.
    FailOver,
    /// A master is killed, replaced, and started again.
    KillMaster,
    /// A master is stopped until it is replaced, and then continued.
    StopMaster,
    /// A Sentinel is killed, and started again.
    RestartSentinel,
    /// Slots are moved to another node.
    MoveSlots,
}

impl Fault {
    /// Whether it is over at once, and no lock has to wait for the end of a lease.
    pub(crate) fn is_small(self) -> bool {
        matches!(
            self,
            Self::ScriptFlush | Self::ClientKill | Self::LoseReply | Self::LoseRequest | Self::Cut
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("fault", |value| value.get_name()))
    }
}
