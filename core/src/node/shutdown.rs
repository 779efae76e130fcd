//! The end of a node: an orderly one, which waits for every move's terminal before the lease goes back, and the end of
//! a node whose lease is gone, which waits for nothing.

use super::event::{Event, OverReason};
use super::io::{CallId, CallResult, Output};
use super::io::{MayHaveRun, NotRun};
use super::lease::Life;
use super::routes::Fate;
use super::{Node, TenureKey, TimerKey};
use crate::id::RelocationId;
use crate::machine::source::SourceInput;
use crate::machine::target::TargetInput;
use core::time::Duration;

impl Node {
    pub(super) fn begin_shutdown(&mut self, call: CallId, timeout: Duration) {
        if matches!(self.life, Life::Over) {
            return self.done(call, CallResult::ShutDown);
        }
        self.shutdown.get_or_insert_default().push(call);
        let at = self.now.mono.after(timeout);
        self.timers.arm(TimerKey::Shutdown, at);
        let moves: Vec<RelocationId> = self
            .moves
            .iter()
            .filter(|(_, moving)| !moving.is_settling() && !moving.is_following())
            .map(|(id, _)| *id)
            .collect();
        for relocation in moves {
            self.source(relocation, SourceInput::Shutdown);
        }
        // A stage with a verified cutover runs to its terminal; any other is discarded.
        self.end_waiting_moves();
        self.all_stages(&TargetInput::Shutdown);
        self.shutdown_step();
    }

    /// The lease goes back once nothing here is undecided.
    pub(super) fn shutdown_step(&mut self) {
        if self.shutdown.is_none() || !matches!(self.life, Life::Serving { .. }) {
            return;
        }
        let undecided = self.moves.values().any(super::moves::Move::is_settling)
            || self.stages.values().any(super::stages::Stage::is_committing);
        // What this node has accepted for others, and answers that nobody has yet.
        let owed = !self.forwarding.is_empty() || !self.relays.is_empty();
        let running = self.hosted.values().any(|hosted| hosted.running.is_some());
        if (!undecided && !running && !owed) || planted!("release_before_settled") {
            // What waits has not run and will not, as no turn starts any more.
            self.stop_dispatch(Fate::NotRun(NotRun::NotServing));
            self.release();
        }
    }

    /// No turn starts any more: everything that waits here ends.
    fn stop_dispatch(&mut self, fate: Fate) {
        let keys: Vec<TenureKey> = self.hosted.keys().cloned().collect();
        for key in keys {
            self.lose_object(&key, None, fate);
        }
    }

    /// The node is over. Its moves discard, its links close, its dispatch stays shut.
    pub(super) fn end(&mut self, reason: OverReason) {
        if matches!(self.life, Life::Over) {
            return;
        }
        let moves: Vec<RelocationId> = self.moves.keys().copied().collect();
        for relocation in moves {
            self.source(relocation, SourceInput::Over);
        }
        self.end_waiting_moves();
        self.all_stages(&TargetInput::Over);
        self.stop_dispatch(Fate::MayHaveRun(MayHaveRun::LeaseEnded));
        self.held_replies.clear();
        self.end_all_routes(Fate::MayHaveRun(MayHaveRun::LeaseEnded));
        self.end_births();
        for (conn, _) in core::mem::take(&mut self.conns) {
            self.outputs.push_back(Output::Drop { conn, reason: super::io::DropReason::NodeOver });
        }
        self.life = Life::Over;
        self.peers.clear();
        self.follows.clear();
        self.moves.clear();
        self.move_calls.clear();
        self.relays.clear();
        self.tickets.clear();
        self.sends.clear();
        self.timers.clear();
        self.event(Event::Over { reason });
        for call in self.shutdown.take().unwrap_or_default() {
            self.done(call, CallResult::ShutDown);
        }
    }
}
