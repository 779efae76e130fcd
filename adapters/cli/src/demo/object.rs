//! The object of the demonstration: it checks, for each client, that every message comes once and in order, and carries
//! a hash chain of all that it ran.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rehome::node::Activation;
use rehome::state::{StateReader, StateWriter};
use rehome::wire::Payload;
use rehome_tokio::{Activate, HandlerError, Object, ObjectError, Reply, TurnContext, payload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

/// What a client sends: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// The client.
    pub(crate) client: u64,
    /// Its number for this object, from 0.
    pub(crate) sequence: u64,
    /// Everything below this was certainly accepted, or will never come.
    pub(crate) floor: u64,
}

impl Hit {
    pub(crate) fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(24);
        bytes.put_u64(self.client);
        bytes.put_u64(self.sequence);
        bytes.put_u64(self.floor);
        bytes.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() != 24 {
            return None;
        }
        Some(Self { client: bytes.get_u64(), sequence: bytes.get_u64(), floor: bytes.get_u64() })
    }
}

/// What an object answers: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The incarnation.
    pub(crate) incarnation: u64,
    /// The number of the turn within it, from 1.
    pub(crate) turn: u64,
    /// The chain after it.
    pub(crate) chain: u64,
}

impl Answer {
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() != 24 {
            return None;
        }
        Some(Self { incarnation: bytes.get_u64(), turn: bytes.get_u64(), chain: bytes.get_u64() })
    }
}

/// What one client has sent so far, as the object saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// The next number that has not come.
    pub(crate) next: u64,
    /// Numbers below `next` that did not come.
    pub(crate) missing: Vec<u64>,
}

/// What is shown of an object at the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dump {
    pub(crate) incarnation: u64,
    pub(crate) turn: u64,
    pub(crate) chain: u64,
    /// The object lost its state once, with its owner.
    pub(crate) reclaimed: bool,
    /// By client, in its order.
    pub(crate) clients: Vec<(u64, Seen)>,
}

impl Dump {
    pub(crate) fn seen(&self, client: u64) -> Option<&Seen> {
        let index = self.clients.binary_search_by_key(&client, |(id, _)| *id).ok()?;
        self.clients.get(index).map(|(_, seen)| seen)
    }
}

/// What all objects of a process share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) state_bytes: usize,
    /// Broken promises, as sentences with their kind.
    pub(crate) violations: Mutex<Vec<(Violation, String)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Violation {
    Lost,
    Duplicated,
    Reordered,
    DoubleRun,
}

pub(crate) struct Hits {
    shared: Arc<Shared>,
    turn: u64,
    chain: u64,
    reclaimed: bool,
    clients: BTreeMap<u64, Seen>,
}

impl Hits {
    fn violation(&self, kind: Violation, turn: &TurnContext, hit: Hit, seen: &Seen) {
        let text = format!(
            "{} client {:x}: message {} (floor {}) came when {} was next, turn {} of incarnation {}",
            turn.object(),
            hit.client,
            hit.sequence,
            hit.floor,
            seen.next,
            self.turn,
            turn.token.generation
        );
        if let Ok(mut violations) = self.shared.violations.lock() {
            violations.push((kind, text));
        }
    }

    fn check(&mut self, turn: &TurnContext, hit: Hit) {
        let fresh = !self.clients.contains_key(&hit.client);
        let mut seen = self.clients.remove(&hit.client).unwrap_or_default();
        if fresh && self.reclaimed {
            // What the client sent to the incarnation before is lost with its owner, as documented.
            seen.next = hit.sequence;
        }
        if hit.sequence < seen.next {
            match seen.missing.iter().position(|missing| *missing == hit.sequence) {
                Some(position) => {
                    seen.missing.remove(position);
                    self.violation(Violation::Reordered, turn, hit, &seen);
                }
                None => self.violation(Violation::Duplicated, turn, hit, &seen),
            }
        } else {
            if seen.next < hit.floor {
                self.violation(Violation::Lost, turn, hit, &seen);
            }
            seen.missing.extend(seen.next..hit.sequence);
            seen.next = hit.sequence + 1;
        }
        // What the client gave up on will not come any more.
        seen.missing.retain(|missing| *missing >= hit.floor);
        self.clients.insert(hit.client, seen);
    }
}

/// One step of a 64-bit mixing chain.
pub(crate) fn mix(chain: u64, client: u64, sequence: u64) -> u64 {
    let mut value = chain ^ client.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ sequence.rotate_left(32);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Object for Hits {
    type Shared = Shared;

    async fn activate(shared: &Arc<Shared>, activation: Activate<'_>) -> Result<Self, ObjectError> {
        let reclaimed = activation.cause == Activation::Reclaimed;
        Ok(Self { shared: Arc::clone(shared), turn: 0, chain: 0, reclaimed, clients: BTreeMap::new() })
    }

    async fn handle(&mut self, turn: &mut TurnContext, message: Payload) -> Result<Reply, HandlerError> {
        let failed = |error: &dyn std::fmt::Display| HandlerError::new(error.to_string());
        let incarnation = turn.token.generation.get();
        if message.name.as_str() == "dump" {
            let dump = Dump {
                incarnation,
                turn: self.turn,
                chain: self.chain,
                reclaimed: self.reclaimed,
                clients: self.clients.iter().map(|(client, seen)| (*client, seen.clone())).collect(),
            };
            let json = serde_json::to_vec(&dump).map_err(|error| failed(&error))?;
            return Ok(Reply::Answer(payload("dump", json).map_err(|error| failed(&error))?));
        }
        let hit = Hit::decode(message.bytes).ok_or_else(|| HandlerError::new("not a hit"))?;
        self.turn += 1;
        self.chain = mix(self.chain, hit.client, hit.sequence);
        self.check(turn, hit);
        let mut bytes = BytesMut::with_capacity(24);
        bytes.put_u64(incarnation);
        bytes.put_u64(self.turn);
        bytes.put_u64(self.chain);
        Ok(Reply::Answer(payload("hit", bytes.freeze()).map_err(|error| failed(&error))?))
    }

    fn size_hint(&self) -> u64 {
        u64::try_from(self.shared.state_bytes).unwrap_or(u64::MAX)
    }

    fn capture(&self, state: &mut StateWriter) -> Result<(), ObjectError> {
        let clients = serde_json::to_vec(&self.clients).map_err(|error| ObjectError(error.to_string()))?;
        state.write(&self.turn.to_be_bytes());
        state.write(&self.chain.to_be_bytes());
        state.write(&[u8::from(self.reclaimed)]);
        state.write(&u64::try_from(clients.len()).unwrap_or(0).to_be_bytes());
        state.write(&clients);
        let padding = self.shared.state_bytes.saturating_sub(state.len());
        let block = [0x5a; 4096];
        for start in (0..padding).step_by(block.len()) {
            state.write(&block[..block.len().min(padding - start)]);
        }
        Ok(())
    }

    async fn restore(shared: &Arc<Shared>, _: i64, mut state: StateReader) -> Result<Self, ObjectError> {
        let mut number = || -> Result<u64, ObjectError> {
            let mut bytes = [0; 8];
            state.read_exact(&mut bytes).map_err(|error| ObjectError(error.to_string()))?;
            Ok(u64::from_be_bytes(bytes))
        };
        let (turn, chain) = (number()?, number()?);
        let mut flag = [0];
        state.read_exact(&mut flag).map_err(|error| ObjectError(error.to_string()))?;
        let mut length = [0; 8];
        state.read_exact(&mut length).map_err(|error| ObjectError(error.to_string()))?;
        let length = usize::try_from(u64::from_be_bytes(length)).map_err(|error| ObjectError(error.to_string()))?;
        if length > state.remaining() {
            return Err(ObjectError(String::from("the state is cut short")));
        }
        let mut clients = vec![0; length];
        state.read_exact(&mut clients).map_err(|error| ObjectError(error.to_string()))?;
        let clients = serde_json::from_slice(&clients).map_err(|error| ObjectError(error.to_string()))?;
        while state.chunk().is_some() {}
        Ok(Self { shared: Arc::clone(shared), turn, chain, reclaimed: flag == [1], clients })
    }
}
