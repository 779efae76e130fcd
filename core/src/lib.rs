//! Moves live stateful objects between nodes while messages keep arriving: one owner at any instant, nothing accepted
//! lost or reordered, a pause that nobody notices.
//!
//! This crate is the whole protocol as pure, synchronous values. It opens no socket, reads no clock, starts no thread
//! and draws no random number: timestamps and inputs go in; frames, store commands, host commands, turns and events come
//! out. Put it behind whatever loop you have.
//!
//! # The loop
//! A [`Node`] is driven by three methods, in any order: [`Node::handle`] takes what happened, [`Node::poll_output`]
//! gives what must be done, and [`Node::deadline`] says when to tick at the latest. Here are two nodes in one loop, with
//! a store in memory, records handed over as values, and a counter that moves from one node to the other:
//!
//! ```
//! use bytes::Bytes;
//! use rehome::fence::{NodeFence, ObjectKey, Tenure};
//! use rehome::id::{NodeGeneration, ObjectId, OwnerId, RoutingId, Text8, TypeName};
//! use rehome::link::Agreed;
//! use rehome::node::*;
//! use rehome::state::Captured;
//! use rehome::store::MemoryStore;
//! use rehome::time::{Instant, Now, UnixMillis};
//! use rehome::wire::{FailureCode, Outcome, Payload, Sender};
//! use std::collections::{BTreeMap, VecDeque};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Now { mono: Instant::ZERO, wall: UnixMillis(1_760_000_000_000) };
//! let config = |index: u8| -> Result<Config, rehome::id::IdError> {
//!     Ok(Config {
//!         node: NodeFence { rid: RoutingId::new(vec![index])?, generation: NodeGeneration::FIRST },
//!         owner: OwnerId::new(&format!("host-{index}"))?,
//!         mesh: Text8::new("example")?,
//!         endpoint: String::new(),
//!         application_version: 1,
//!         types: [(TypeName::new("counter")?, TypeConfig::default())].into(),
//!         seed: u128::from(index), // give real entropy
//!         timing: Timing::default(),
//!         limits: Limits::default(),
//!     })
//! };
//! let mut nodes = [Node::new(now, config(0)?)?, Node::new(now, config(1)?)?];
//! let mut store = MemoryStore::new();
//! let mut counters: BTreeMap<(usize, Tenure), u64> = BTreeMap::new();
//! let mut results = VecDeque::new();
//!
//! // Does what the nodes ask until they ask for nothing more.
//! let mut drive = |nodes: &mut [Node; 2], first: Option<(usize, Input)>| -> Result<VecDeque<CallResult>, Misuse> {
//!     let mut inputs: VecDeque<(usize, Input)> = first.into_iter().collect();
//!     loop {
//!         for me in 0..nodes.len() {
//!             while let Some(output) = nodes[me].poll_output() {
//!                 match output {
//!                     // Connection 0 of each node leads to the other one.
//!                     Output::Send { conn, send, record, .. } => {
//!                         inputs.push_back((1 - me, Input::Record { conn, record }));
//!                         inputs.push_back((me, Input::Sent { send, written: true }));
//!                     }
//!                     Output::Store { ticket, command, .. } => {
//!                         let reply = store.apply(now.mono, &command);
//!                         inputs.push_back((me, Input::Store { ticket, reply }));
//!                     }
//!                     Output::Host { ticket, command } => {
//!                         let reply = match command {
//!                             HostCommand::Activate { tenure, .. } => {
//!                                 counters.insert((me, tenure), 0);
//!                                 HostReply::Done
//!                             }
//!                             HostCommand::SizeHint { .. } => HostReply::Size(8),
//!                             HostCommand::Capture { tenure } => {
//!                                 let state = counters[&(me, tenure)].to_be_bytes();
//!                                 HostReply::Captured(Some(Captured::from(Bytes::copy_from_slice(&state))))
//!                             }
//!                             HostCommand::Restore { tenure, state, .. } => {
//!                                 match state.map(|state| <[u8; 8]>::try_from(&state.to_bytes()[..])) {
//!                                     Some(Ok(state)) => {
//!                                         counters.insert((me, tenure), u64::from_be_bytes(state));
//!                                         HostReply::Done
//!                                     }
//!                                     _ => HostReply::Failed { code: FailureCode::DATA_LOST, detail: String::new() },
//!                                 }
//!                             }
//!                             HostCommand::Open { .. } | HostCommand::Resume { .. } => HostReply::Done,
//!                             HostCommand::Retire { tenure } | HostCommand::Discard { tenure } => {
//!                                 counters.remove(&(me, tenure));
//!                                 HostReply::Done
//!                             }
//!                         };
//!                         inputs.push_back((me, Input::Host { ticket, reply }));
//!                     }
//!                     Output::Turn(turn) => {
//!                         let count = counters.entry((me, turn.tenure)).or_default();
//!                         *count += 1;
//!                         let bytes = Bytes::from(count.to_string());
//!                         let reply = Outcome::Answer(Payload { bytes, ..turn.payload });
//!                         inputs.push_back((me, Input::TurnEnd { turn: turn.turn, end: TurnEnd::Done { reply: Some(reply) } }));
//!                     }
//!                     Output::Done { result, .. } => results.push_back(result),
//!                     Output::Drop { .. } | Output::Progress { .. } | Output::Event(_) => {}
//!                 }
//!             }
//!         }
//!         match inputs.pop_front() {
//!             Some((node, input)) => nodes[node].handle(now, input)?,
//!             None => return Ok(std::mem::take(&mut results)),
//!         }
//!     }
//! };
//!
//! // Both claim their leases. Then each can tell the other who it is, which is the link's task on a real wire.
//! drive(&mut nodes, None)?;
//! let agreed =
//!     Agreed { capabilities: Default::default(), chunk_limit: Some(65_536), application_version: 1, link: true, v14: true };
//! for me in 0..2 {
//!     let peer = nodes[1 - me].peer_identity().ok_or("no lease")?;
//!     nodes[me].handle(now, Input::PeerUp { conn: Conn(0), peer, agreed: agreed.clone() })?;
//! }
//! drive(&mut nodes, None)?;
//!
//! let object = ObjectKey::actor(ObjectId::new("hits")?);
//! let user = |call: u64, request| Input::User { call: CallId(call), request };
//! let create = UserRequest::Create {
//!     object: object.clone(),
//!     type_name: TypeName::new("counter")?,
//!     arguments: Bytes::new(),
//!     existing: Existing::Refuse,
//! };
//! drive(&mut nodes, Some((0, user(1, create))))?;
//!
//! let hit = || -> Result<UserRequest, rehome::id::IdError> {
//!     let payload = Payload { name: Text8::new("hit")?, content_type: Text8::new("text/plain")?, bytes: Bytes::new() };
//!     Ok(UserRequest::Request { from: Sender::Node, to: object.clone(), payload, timeout: Duration::from_secs(5) })
//! };
//! let answered = drive(&mut nodes, Some((1, user(2, hit()?))))?;
//! assert!(matches!(&answered[0], CallResult::Answered(Ok(payload)) if &payload.bytes[..] == b"1"));
//!
//! let relocate = UserRequest::Relocate { object: object.clone(), target: RoutingId::new(vec![1])?, timeout: None };
//! let moved = drive(&mut nodes, Some((0, user(3, relocate))))?;
//! assert!(matches!(moved[0], CallResult::Moved(Ok(MoveOutcome::Moved { .. }))));
//!
//! // Asked through the old owner, the counter goes on at the new one.
//! let answered = drive(&mut nodes, Some((0, user(4, hit()?))))?;
//! assert!(matches!(&answered[0], CallResult::Answered(Ok(payload)) if &payload.bytes[..] == b"2"));
//! assert_eq!(nodes[1].objects().collect::<Vec<_>>(), [&object]);
//! # Ok(())
//! # }
//! ```
//!
//! On a real wire a [`link::Mesh`] stands between the node and the sockets: it turns bytes into records and back, says
//! who the peer is, and is as free of I/O as the node.
//!
//! # Where the safety is
//! An object's dispatch opens again only with a proof, and only [`machine::settlement`] makes proofs, from reads of the
//! store. The target's commit and the source's fence are conditional writes on the same version of the same record, so
//! that at most one of them ever counts. Reading that one module is reading the argument; [`protocol`] has all rules.
//!
//! # Kinds of methods
//! `handle`, `receive`, `tick` and their like take inputs and never fail for what a peer or the store did; an `Err` is
//! misuse by the caller. `poll_*` hand out what waits and change nothing else. All others are questions.

#[macro_use]
mod planted;

pub mod budget;
pub mod channel;
pub mod chunk;
pub mod fence;
pub mod id;
pub mod link;
pub mod machine;
pub mod node;
#[doc = include_str!("protocol.md")]
pub mod protocol {}
pub mod receipt;
mod rope;
pub mod state;
pub mod store;
pub mod time;
pub mod wire;

pub use node::{Config, Input, Node, Output};
pub use rope::Rope;
