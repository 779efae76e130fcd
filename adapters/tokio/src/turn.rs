//! What a handler knows and can do during its turn. Decides nothing about the turn itself.

use crate::CallError;
use crate::handle::Handle;
use rehome::fence::{FencingToken, NodeFence, ObjectKey, Tenure};
use rehome::id::{OperationId, RoutingId};
use rehome::node::ReplyToken;
use rehome::time::UnixMillis;
use rehome::wire::{Payload, Sender};
use std::time::Duration;
use tokio::sync::watch;

/// What a handler knows and can do during its turn.
#[derive(Debug)]
pub struct TurnContext {
    pub(crate) handle: Handle,
    pub(crate) tenure: Tenure,
    /// What the handler may show to outside systems: a database that remembers the greatest can refuse a stale owner.
    pub token: FencingToken,
    /// The message's id: the same however often it was relayed, so an idempotency key.
    pub operation: OperationId,
    /// The node it came from.
    pub from_node: NodeFence,
    /// Who there sent it.
    pub sender: Sender,
    /// When the request ends at its requester.
    pub deadline: Option<UnixMillis>,
    /// For a request: answers it later, from here or from wherever the object is then.
    pub reply_token: Option<ReplyToken>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl TurnContext {
    /// The object's own address.
    pub const fn object(&self) -> &ObjectKey {
        &self.tenure.object
    }

    fn me(&self) -> Sender {
        Sender::Actor(self.tenure.object.id.clone(), self.tenure.generation)
    }

    /// Sends a message; it ends when it is accepted.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn send(&self, to: ObjectKey, payload: Payload) -> Result<(), CallError> {
        self.handle.send(self.me(), to, payload).await
    }

    /// Sends a request and waits for its answer. The object runs nothing else meanwhile: a request that comes back to
    /// it ends with its time-out.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request(&self, to: ObjectKey, payload: Payload, timeout: Duration) -> Result<Payload, CallError> {
        self.handle.request(self.me(), to, payload, timeout).await
    }

    /// Asks for this object to move, after this turn. How it ends is told by [`Host::events`](crate::Host::events).
    pub fn move_me(&self, target: RoutingId) {
        let (handle, object) = (self.handle.clone(), self.tenure.object.clone());
        tokio::spawn(async move { drop(handle.relocate(object, target, None).await) });
    }

    /// Asks for this object to be deleted, after this turn.
    pub fn delete_me(&self) {
        let (handle, object) = (self.handle.clone(), self.tenure.object.clone());
        tokio::spawn(async move { handle.delete(object).await });
    }

    /// Time left until the request ends at its requester; `None` for a one-way message.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.left(self.handle.now().wall))
    }

    /// Whether the lease guard has run out: what the handler does now may be refused by systems that check the token.
    pub fn must_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ends when the lease guard runs out.
    pub async fn stopped(&mut self) {
        // The sender lives as long as the driver; without it nothing serves either.
        let _ = self.stop.wait_for(|stop| *stop).await;
    }
}
