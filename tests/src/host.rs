//! The objects of the world: each checks its clients' order and carries a chain of all that it ran.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;

/// The state of an object: captured, sent and restored as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) turn: u64,
    pub(crate) chain: u64,
    /// The last number of each client that ran.
    pub(crate) clients: BTreeMap<u64, u64>,
}

impl Thing {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64(self.turn);
        out.put_u64(self.chain);
        out.put_u64(self.clients.len() as u64);
        for (client, last) in &self.clients {
            out.put_u64(*client);
            out.put_u64(*last);
        }
        out.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < 24 {
            return None;
        }
        let (turn, chain, count) = (bytes.get_u64(), bytes.get_u64(), bytes.get_u64());
        if bytes.len() as u64 != count * 16 {
            return None;
        }
        let clients = (0..count).map(|_| (bytes.get_u64(), bytes.get_u64())).collect();
        Some(Self { turn, chain, clients })
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
