//! The one stream of what can be observed: state changes, the points of a move, and what was ignored.

use super::io::{CallId, Conn, MoveOutcome};
use crate::fence::{ObjectKey, PeerFence, Tenure};
use crate::id::{OperationId, RelocationId, RoutingId};
use crate::receipt::{SourceReceipt, TargetReceipt};

/// Something to observe. Nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The lease was claimed: the node serves, and this is how it introduces itself to its peers.
    Serving {
        /// The node with its owner pair.
        peer: PeerFence,
    },
    /// The lease guard passed: no turn starts and nothing is written until a renewal succeeds.
    GuardPassed,
    /// A renewal succeeded after the guard had passed.
    GuardRestored,
    /// The node is over.
    Over {
        /// Why.
        reason: OverReason,
    },
    /// A connection to a peer is up.
    PeerUp {
        /// The peer.
        peer: PeerFence,
        /// The connection.
        conn: Conn,
    },
    /// A connection is gone.
    PeerDown {
        /// The peer.
        peer: PeerFence,
    },
    /// A peer's generation is over: its lease has ended.
    PeerGone {
        /// The peer.
        peer: PeerFence,
    },
    /// A life of an object began to serve here.
    Opened {
        /// The life.
        tenure: Tenure,
    },
    /// A life of an object ended here.
    Closed {
        /// The life.
        tenure: Tenure,
    },
    /// A move passed a point, on the clock of this node.
    Point {
        /// The move.
        relocation: RelocationId,
        /// The object.
        object: ObjectKey,
        /// The point.
        point: Point,
    },
    /// The source's end of a move is over.
    SourceEnded {
        /// The call that asked for it.
        call: CallId,
        /// The object.
        object: ObjectKey,
        /// The target's routing id.
        target: RoutingId,
        /// How.
        outcome: MoveOutcome,
        /// What became of each message.
        receipt: SourceReceipt,
        /// Bytes of the logical stream.
        bytes: u64,
    },
    /// The target's end of a move is over.
    TargetEnded {
        /// The move.
        relocation: RelocationId,
        /// The object.
        object: ObjectKey,
        /// Whether it opened.
        opened: bool,
        /// What became of each message.
        receipt: TargetReceipt,
    },
    /// A receipt does not balance: a fault in this library.
    Unbalanced {
        /// The move.
        relocation: RelocationId,
    },
    /// The cutover did not come within the cutover wait. A warning: nothing depends on it.
    CutoverLate {
        /// The move.
        relocation: RelocationId,
    },
    /// An input arrived that changes nothing in this state.
    Ignored {
        /// The machine.
        machine: &'static str,
        /// Its state.
        state: &'static str,
        /// The input.
        input: &'static str,
    },
    /// A host hook failed after the decision was made; the decision stands.
    HostFailed {
        /// The life.
        tenure: Tenure,
        /// What was asked.
        command: &'static str,
        /// What the host said.
        detail: String,
    },
    /// An accepted one-way message could not be delivered any more: its object is gone.
    Undeliverable {
        /// The object.
        object: ObjectKey,
        /// The message.
        operation: OperationId,
    },
    /// A sender's order to an object could not be kept across a route flip: the old route's node is gone.
    OrderGap {
        /// The object.
        object: ObjectKey,
    },
}

/// Why a node is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverReason {
    /// It was shut down and its lease released.
    ShutDown,
    /// Its lease is gone.
    LeaseLost,
    /// The final deadline of a shutdown passed.
    ShutdownDeadline,
    /// A store record that it depends on cannot be understood.
    StoreCorrupt,
}

/// The points of a move. Each is on its own node's clock; never subtract two nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// S0, source: sealed; the object stops.
    Sealed,
    /// S1, source: the cutover's submission ended. S0 to S1 is the source stop.
    Submitted,
    /// S2, target: the commit is confirmed.
    Committed,
    /// S3, target: dispatch is open. S2 to S3 is the target resume.
    Opened,
    /// S4, source: the settlement is done and message follow may go. S1 to S4 is the convergence.
    Settled,
}
