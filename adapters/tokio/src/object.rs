//! What a user writes: an object, its answers and its errors. Runs nothing.

use crate::turn::TurnContext;
use bytes::Bytes;
use rehome::fence::{FencingToken, ObjectKey};
use rehome::id::{IdError, Text8};
use rehome::node::Activation;
use rehome::state::{StateReader, StateWriter};
use rehome::wire::{FailureCode, Payload};
use std::future::Future;
use std::sync::Arc;

/// A live object: one address, one message at a time, state that can move.
///
/// Each object is a task of its own, so a handler that is slow stalls nobody else, and a panic in one is the error of
/// that request alone. A handler that blocks its thread takes that thread from the runtime, as everywhere on tokio.
///
/// The futures of an object end with the host: what still runs two seconds after the node is over is dropped where it
/// waits, as [`Object::handle`] is where it exceeds the turn limit.
pub trait Object: Send + Sized + 'static {
    /// What all objects of the type share on one node: pools, clients, settings. It is given at registration and never
    /// moves.
    type Shared: Send + Sync + 'static;

    /// Makes a new object, or a new incarnation of one whose owner died: then load what was persisted.
    fn activate(
        shared: &Arc<Self::Shared>,
        activation: Activate<'_>,
    ) -> impl Future<Output = Result<Self, ObjectError>> + Send;

    /// Runs one message. Messages of one object never run at once, and none starts once the lease guard has passed.
    fn handle(
        &mut self,
        turn: &mut TurnContext,
        message: Payload,
    ) -> impl Future<Output = Result<Reply, HandlerError>> + Send;

    /// About how many bytes [`Object::capture`] would write. Asked before the object stops for a move, which is refused
    /// where it is more than the type's limit: then the object has not stopped at all.
    fn size_hint(&self) -> u64 {
        0
    }

    /// Writes the state. It must change nothing: if the move ends at the source, the object runs on.
    fn capture(&self, writer: &mut StateWriter) -> Result<(), ObjectError>;

    /// Makes the object from a state that an application of version `version` captured. It must not act yet.
    fn restore(
        shared: &Arc<Self::Shared>,
        version: i64,
        state: StateReader,
    ) -> impl Future<Output = Result<Self, ObjectError>> + Send;

    /// The object serves after a move: here for the first time, or again because it stayed.
    fn resumed(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The object lives elsewhere now, was deleted, or is lost to this node. Another owner may serve it already.
    fn retired(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Why and as what an object is made.
#[derive(Clone, Copy, Debug)]
pub struct Activate<'a> {
    /// Its address.
    pub object: &'a ObjectKey,
    /// Whether it is new or a new incarnation.
    pub cause: Activation,
    /// What the caller passed.
    pub arguments: &'a Bytes,
    /// What to show to systems that refuse stale owners.
    pub token: FencingToken,
}

/// The answer of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing: right for a one-way message. A request is answered with an empty payload of the name `empty`.
    None,
    /// The answer, at most 16 MiB; a larger one is a failure to its requester.
    Answer(Payload),
    /// The answer comes later, by [`TurnContext::reply_token`] and [`Host::reply`](crate::Host::reply).
    Later,
}

/// A message or an answer: `name` says what it is, 1 to 255 bytes.
///
/// # Errors
/// A name that is empty or too long, or contains NUL.
pub fn payload(name: &str, bytes: impl Into<Bytes>) -> Result<Payload, IdError> {
    Ok(Payload { name: Text8::new(name)?, content_type: Text8::new("application/octet-stream")?, bytes: bytes.into() })
}

/// A handler's failure, as the requester sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct HandlerError {
    /// A code of the application's choice; [`FailureCode::REQUEST_FAILED`] says nothing more.
    pub code: u32,
    /// What to show a person, at most 1,024 bytes; more is cut.
    pub detail: String,
}

impl HandlerError {
    /// A failure with a text.
    pub fn new(detail: impl Into<String>) -> Self {
        Self { code: FailureCode::REQUEST_FAILED.get(), detail: detail.into() }
    }
}

impl From<IdError> for HandlerError {
    fn from(error: IdError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<std::io::Error> for HandlerError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Why an object cannot be made or captured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ObjectError(pub String);

impl From<IdError> for ObjectError {
    fn from(error: IdError) -> Self {
        Self(error.to_string())
    }
}

impl From<std::io::Error> for ObjectError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
