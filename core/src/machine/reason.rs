//! Why a move did not happen, as its caller hears it.

use crate::wire::FailureCode;

/// Why a move was refused before the object stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedReason {
    /// It does not live here, or is being created, deleted or moved.
    NotMovable,
    /// The target is this node.
    SameNode,
    /// The target is not connected.
    TargetUnavailable,
    /// The type's policy is `Disabled`.
    Disabled,
    /// The state is larger than the type's limit, or needs too many chunks.
    TooLarge,
    /// The operation's deadline passed.
    DeadlineExceeded,
    /// The caller cancelled.
    Cancelled,
    /// This node shuts down.
    ShuttingDown,
    /// The store's record is not this node's tenure, or could not be read before the deadline.
    StoreUnavailable,
    /// The type does not tell its size, or failed to.
    HostFailed,
}

/// Why the source kept an object that had been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeptReason {
    /// A turn ran too long for the seal.
    SealTimeout,
    /// The capture failed.
    CaptureFailed,
    /// The state turned out larger than the limit.
    TooLarge,
    /// The target refused or failed, with this code.
    TargetFailed(FailureCode),
    /// The operation's deadline passed before the target was ready.
    DeadlineExceeded,
    /// The connection to the target was lost before it was ready.
    PeerLost,
    /// The caller cancelled before the target was ready.
    Cancelled,
    /// This node shuts down, and the target was not ready.
    ShuttingDown,
    /// The settlement fenced the target's commit out.
    Fenced,
}
