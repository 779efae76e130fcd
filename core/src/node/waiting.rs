//! Moves that were asked for while their object is about to open here: its source may say that it has moved a moment
//! before this node knows. They wait for the opening, and end where it does not come.

use super::io::{CallId, CallResult, MoveOutcome, RefusedReason};
use super::{Node, TimerKey};
use crate::fence::ObjectKey;
use crate::id::RoutingId;
use crate::time::Instant;
use core::time::Duration;

/// A move that has not begun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaitingMove {
    object: ObjectKey,
    target: RoutingId,
    deadline: Instant,
}

impl Node {
    /// Whether a verified cutover of the object is being settled here.
    fn is_committing(&self, object: &ObjectKey) -> bool {
        self.stages.values().any(|stage| stage.object() == object && stage.is_committing())
    }

    /// Lets a move wait if its object may open here soon. Says whether it does.
    pub(super) fn wait_to_move(
        &mut self,
        call: CallId,
        object: &ObjectKey,
        target: &RoutingId,
        timeout: Duration,
    ) -> bool {
        let waits = self.is_committing(object) && !self.current.contains_key(object);
        if waits {
            let deadline = self.now.mono.after(timeout);
            self.timers.arm(TimerKey::WaitingMove(call), deadline);
            self.waiting_moves.insert(call, WaitingMove { object: object.clone(), target: target.clone(), deadline });
        }
        waits
    }

    /// A stage of the object has ended: it is open here, or not.
    pub(super) fn go_on_moving(&mut self, object: &ObjectKey) {
        if self.is_committing(object) {
            return;
        }
        let waiting = |(call, waiting): (&CallId, &WaitingMove)| (waiting.object == *object).then_some(*call);
        let calls: Vec<CallId> = self.waiting_moves.iter().filter_map(waiting).collect();
        for call in calls {
            if let Some(waiting) = self.waiting_moves.remove(&call) {
                self.timers.disarm(&TimerKey::WaitingMove(call));
                let left = waiting.deadline.since(self.now.mono);
                self.relocate(call, object, &waiting.target, Some(left));
            }
        }
    }

    /// Ends a move that has not begun. Says whether there was one.
    pub(super) fn give_up_waiting(&mut self, call: CallId, reason: RefusedReason) -> bool {
        let waited = self.waiting_moves.remove(&call).is_some();
        if waited {
            self.timers.disarm(&TimerKey::WaitingMove(call));
            self.done(call, CallResult::Moved(Ok(MoveOutcome::Refused(reason))));
        }
        waited
    }

    /// Ends all of them: this node shuts down.
    pub(super) fn end_waiting_moves(&mut self) {
        for call in self.waiting_moves.keys().copied().collect::<Vec<_>>() {
            self.give_up_waiting(call, RefusedReason::ShuttingDown);
        }
    }
}
