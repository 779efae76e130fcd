//! The task of one object: it makes the object, runs one command after the other, and answers each, whatever the
//! object's own code does. Every answer goes to the driver; nothing is decided here but how a turn ended.

use crate::handle::{Handle, Message};
use crate::object::{Activate, Object, ObjectError, Reply};
use crate::turn::TurnContext;
use bytes::Bytes;
use bytestring::ByteString;
use futures_util::FutureExt as _;
use rehome::fence::Tenure;
use rehome::id::Text8;
use rehome::node::{Activation, HostReply, Input, Ticket, Turn, TurnEnd, TurnId};
use rehome::state::{StateReader, StateWriter};
use rehome::wire::{FailureCode, Outcome, Payload, TerminalResult};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

/// The most bytes of a failure's text that a requester sees.
const DETAIL: usize = 1024;

/// What becomes of an object whose handler panicked. The request always ends with
/// [`CallError::Panicked`](crate::CallError::Panicked).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It stays, as the panic left it.
    #[default]
    Keep,
    /// It is deleted: what waits for it ends as not found, and it can be created again.
    Delete,
}

/// What all objects of a host have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnRules {
    pub(crate) limit: Option<Duration>,
    pub(crate) on_panic: OnPanic,
}

/// What the driver tells an object's task.
pub(crate) enum Command {
    Turn(Box<Turn>),
    SizeHint(Ticket),
    Capture(Ticket),
    Opened(Ticket),
    Retire(Ticket),
}

/// A task that is not spawned yet.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How an object of one type is made; the type itself is forgotten here.
pub(crate) trait Factory: Send + Sync {
    fn task(&self, birth: Birth, commands: mpsc::UnboundedReceiver<Command>) -> Task;
}

pub(crate) enum Cause {
    Activate { cause: Activation, arguments: Bytes },
    Restore { version: i64, state: Option<rehome::Rope> },
}

pub(crate) struct Birth {
    pub(crate) ticket: Ticket,
    pub(crate) tenure: Tenure,
    pub(crate) cause: Cause,
    pub(crate) handle: Handle,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) rules: TurnRules,
}

pub(crate) struct TypedFactory<T: Object> {
    pub(crate) shared: Arc<T::Shared>,
    /// Whether the type's policy moves its state.
    pub(crate) preserve: bool,
}

impl<T: Object> Factory for TypedFactory<T> {
    fn task(&self, birth: Birth, mut commands: mpsc::UnboundedReceiver<Command>) -> Task {
        let (shared, preserve) = (Arc::clone(&self.shared), self.preserve);
        Box::pin(async move {
            let Birth { ticket, tenure, cause, handle, stop, rules } = birth;
            match make::<T>(&shared, &tenure, cause).await {
                Ok(object) => {
                    handle.feed(Input::Host { ticket, reply: HostReply::Done }).await;
                    let mut life = Life { tenure, handle, stop, rules, preserve, open: None };
                    // Every hook is caught by itself. What is left are destructors.
                    if AssertUnwindSafe(life.live(object, &mut commands)).catch_unwind().await.is_err() {
                        life.wreck(commands).await;
                    }
                }
                Err(ObjectError(detail)) => {
                    handle.tell(Message::Stillborn { tenure, ticket, detail }).await;
                }
            }
        })
    }
}

async fn make<T: Object>(shared: &Arc<T::Shared>, tenure: &Tenure, cause: Cause) -> Result<T, ObjectError> {
    let (cause, arguments) = match cause {
        Cause::Restore { version, state: Some(state) } => {
            let made = AssertUnwindSafe(T::restore(shared, version, StateReader::new(state))).catch_unwind().await;
            return made.unwrap_or_else(|_| Err(ObjectError(String::from("panicked"))));
        }
        Cause::Activate { cause, arguments } => (cause, arguments),
        // The policy moves no state: the target makes a fresh one.
        Cause::Restore { state: None, .. } => (Activation::New, Bytes::new()),
    };
    let activate = Activate { object: &tenure.object, cause, arguments: &arguments, token: tenure.token() };
    let made = AssertUnwindSafe(T::activate(shared, activate)).catch_unwind().await;
    made.unwrap_or_else(|_| Err(ObjectError(String::from("panicked"))))
}

/// What the driver waits for an answer to.
#[derive(Clone, Copy)]
enum Open {
    Turn { turn: TurnId, request: bool },
    Ticket(Ticket),
}

struct Life {
    tenure: Tenure,
    handle: Handle,
    stop: watch::Receiver<bool>,
    rules: TurnRules,
    preserve: bool,
    open: Option<Open>,
}

impl Life {
    async fn live<T: Object>(&mut self, mut object: T, commands: &mut mpsc::UnboundedReceiver<Command>) {
        while let Some(command) = commands.recv().await {
            self.open = Some(open(&command));
            let answer = match command {
                Command::Turn(turn) => Input::TurnEnd { turn: turn.turn, end: self.turn(&mut object, *turn).await },
                Command::SizeHint(ticket) => {
                    let size = std::panic::catch_unwind(AssertUnwindSafe(|| object.size_hint()));
                    let reply = size.map_or_else(|_| failed("size_hint panicked"), HostReply::Size);
                    Input::Host { ticket, reply }
                }
                Command::Capture(ticket) => Input::Host { ticket, reply: capture(&object, self.preserve) },
                Command::Opened(ticket) => {
                    let hook = AssertUnwindSafe(object.resumed()).catch_unwind().await;
                    let reply = hook.map_or_else(|_| failed("resumed panicked"), |()| HostReply::Done);
                    Input::Host { ticket, reply }
                }
                Command::Retire(ticket) => {
                    let hook = AssertUnwindSafe(object.retired()).catch_unwind().await;
                    let reply = hook.map_or_else(|_| failed("retired panicked"), |()| HostReply::Done);
                    return self.handle.feed(Input::Host { ticket, reply }).await;
                }
            };
            self.open = None;
            self.handle.feed(answer).await;
        }
    }

    /// Runs one message. Only here does user code of a turn start.
    async fn turn<T: Object>(&self, object: &mut T, turn: Turn) -> TurnEnd {
        // A process that was stopped may wake past its lease: this is the last look before user code runs.
        if self.handle.now().mono >= turn.not_after {
            return TurnEnd::NotStarted;
        }
        let request = turn.reply_token.is_some();
        let span = tracing::debug_span!(
            "turn",
            object = %self.tenure.object,
            owner_generation = self.tenure.owner_generation.get(),
            operation = ?turn.operation,
            message = turn.payload.name.as_str(),
        );
        let mut context = TurnContext {
            handle: self.handle.clone(),
            tenure: self.tenure.clone(),
            token: turn.token,
            operation: turn.operation,
            from_node: turn.from_node,
            sender: turn.sender,
            deadline: turn.deadline,
            reply_token: turn.reply_token,
            stop: self.stop.clone(),
        };
        let handler = AssertUnwindSafe(object.handle(&mut context, turn.payload)).catch_unwind().instrument(span);
        let ended = match self.rules.limit {
            None => Some(handler.await),
            Some(limit) => tokio::time::timeout(limit, handler).await.ok(),
        };
        let outcome = match ended {
            Some(Ok(Ok(Reply::None))) => Text8::new("empty")
                .ok()
                .map(|name| Outcome::Answer(Payload { content_type: name.clone(), name, bytes: Bytes::new() })),
            Some(Ok(Ok(Reply::Later))) => None,
            Some(Ok(Ok(Reply::Answer(payload)))) => Some(match self.handle.fits(&payload) {
                Ok(()) => Outcome::Answer(payload),
                Err(_) => {
                    failure(TerminalResult::REJECTED, FailureCode::REQUEST_FAILED.get(), "the answer is too large")
                }
            }),
            Some(Ok(Err(error))) => Some(failure(TerminalResult::REJECTED, error.code, &error.detail)),
            Some(Err(_)) => {
                metrics::counter!("rehome_turns_panicked_total").increment(1);
                tracing::error!(object = %self.tenure.object, "a handler panicked");
                match self.rules.on_panic {
                    OnPanic::Keep => {}
                    OnPanic::Delete => context.delete_me(),
                }
                Some(panicked())
            }
            None => {
                metrics::counter!("rehome_turns_timed_out_total").increment(1);
                tracing::warn!(object = %self.tenure.object, "a turn exceeded its limit");
                Some(failure(TerminalResult::TIMED_OUT, FailureCode::WORKER_TIMED_OUT.get(), "turn limit"))
            }
        };
        // The core looks at the guard once more, with the time of this answer, before it lets the answer out.
        TurnEnd::Done { reply: outcome.filter(|_| request) }
    }

    /// The object is gone, but the node does not know: whatever it asks is answered.
    async fn wreck(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        tracing::error!(object = %self.tenure.object, "an object's destructor panicked: the object is gone");
        if let Some(open) = self.open.take() {
            self.handle.feed(broken(open)).await;
        }
        while let Some(command) = commands.recv().await {
            self.handle.feed(broken(open(&command))).await;
        }
    }
}

fn open(command: &Command) -> Open {
    match command {
        Command::Turn(turn) => Open::Turn { turn: turn.turn, request: turn.reply_token.is_some() },
        Command::SizeHint(ticket) | Command::Capture(ticket) | Command::Opened(ticket) | Command::Retire(ticket) => {
            Open::Ticket(*ticket)
        }
    }
}

fn broken(open: Open) -> Input {
    match open {
        Open::Turn { turn, request } => Input::TurnEnd { turn, end: TurnEnd::Done { reply: request.then(panicked) } },
        Open::Ticket(ticket) => Input::Host { ticket, reply: failed("the object is gone") },
    }
}

fn capture<T: Object>(object: &T, preserve: bool) -> HostReply {
    if !preserve {
        return HostReply::Captured(None);
    }
    let captured = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut writer = StateWriter::new();
        object.capture(&mut writer).map(|()| writer.finish())
    }));
    match captured {
        Ok(Ok(captured)) => HostReply::Captured(Some(captured)),
        Ok(Err(error)) => failed(&error.0),
        Err(_) => failed("capture panicked"),
    }
}

fn failed(detail: &str) -> HostReply {
    HostReply::Failed { code: FailureCode::WORKER_FAILED, detail: detail.to_owned() }
}

fn panicked() -> Outcome {
    failure(TerminalResult::INTERNAL_ERROR, FailureCode::WORKER_FAILED.get(), "panicked")
}

fn failure(result: TerminalResult, failure: u32, detail: &str) -> Outcome {
    let end = detail.floor_char_boundary(detail.len().min(DETAIL));
    Outcome::Failure { result, failure, detail: ByteString::from(detail.get(..end).unwrap_or_default()) }
}
