//! What the published form of a message cannot carry, a deadline and the hops so far, travels in its metadata frame
//! between nodes of this project. A frame that is not ours is passed on unchanged.

use crate::time::UnixMillis;
use crate::wire::{Delivery, Message};
use bytes::{BufMut, Bytes, BytesMut};

const MAGIC: &[u8; 4] = b"RHC1";

/// The message as it goes into saved work or a boundary batch.
pub(super) fn freeze(delivery: &Delivery) -> Message {
    let mut message = delivery.message.clone();
    if message.metadata.is_none() {
        let mut frame = BytesMut::with_capacity(13);
        frame.put_slice(MAGIC);
        frame.put_u64(delivery.deadline.map_or(0, |deadline| deadline.0));
        frame.put_u8(delivery.hops);
        message.metadata = Some(frame.freeze());
    }
    message
}

/// The inverse. A message without our frame has no deadline that we know of.
pub(super) fn thaw(mut message: Message) -> Delivery {
    let (mut deadline, mut hops) = (None, 0);
    if let Some((at, count)) = message.metadata.as_ref().and_then(read) {
        message.metadata = None;
        deadline = (at != 0 && !planted!("deadline_lost_on_the_way")).then_some(UnixMillis(at));
        hops = count;
    }
    Delivery { message, deadline, hops }
}

fn read(frame: &Bytes) -> Option<(u64, u8)> {
    let rest = frame.strip_prefix(MAGIC.as_slice())?;
    let (at, rest) = rest.split_first_chunk::<8>()?;
    match rest {
        [hops] => Some((u64::from_be_bytes(*at), *hops)),
        _ => None,
    }
}
