//! The objects of the world: each knows what it ran last of each sender and carries a chain of all that it ran.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;

/// The state of an object: captured, sent and restored as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) turn: u64,
    pub(crate) chain: u64,
    /// The last number of each client that ran.
    pub(crate) clients: BTreeMap<u64, u64>,
    /// Bytes that mean nothing, so that sizes differ.
    pub(crate) pad: usize,
}

impl Thing {
    /// Runs one message.
    pub(crate) fn take(&mut self, client: u64, number: u64) {
        self.turn += 1;
        self.chain = self.chain.rotate_left(7) ^ (client << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.clients.insert(client, number);
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64(self.turn);
        out.put_u64(self.chain);
        out.put_u64(self.clients.len() as u64);
        for (client, last) in &self.clients {
            out.put_u64(*client);
            out.put_u64(*last);
        }
        out.put_bytes(0x5A, self.pad);
        out.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < 24 {
            return None;
        }
        let (turn, chain, count) = (bytes.get_u64(), bytes.get_u64(), bytes.get_u64());
        if (bytes.len() as u64) < count.checked_mul(16)? {
            return None;
        }
        let clients = (0..count).map(|_| (bytes.get_u64(), bytes.get_u64())).collect();
        let pad = bytes.len();
        bytes.iter().all(|byte| *byte == 0x5A).then_some(Self { turn, chain, clients, pad })
    }
}

/// A client's message: client and number.
pub(crate) fn message(client: u64, number: u64) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u64(client);
    out.put_u64(number);
    out.freeze()
}

pub(crate) fn read_message(mut bytes: Bytes) -> Option<(u64, u64)> {
    (bytes.len() == 16).then(|| (bytes.get_u64(), bytes.get_u64()))
}
