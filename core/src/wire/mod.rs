//! Bytes between nodes: the published record layout, this project's own link records, the logical stream of a move,
//! and the keys of object records.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rehome::wire::{LinkRecord, Record, decode, decode_frame, encode};
//!
//! let record = Record::Link(LinkRecord::Ack { received: 7 });
//! let frames = encode(&record)?;
//! assert_eq!(decode(frames)?, record);
//! # Ok(())
//! # }
//! ```

mod code;
mod control;
mod error;
mod fences;
mod frozen;
mod key;
mod link;
mod reader;
mod record;
mod stream;
mod writer;

pub use control::{CHUNKS_MAX, Frames, HOPS_MAX, decode, decode_frame, encode};
pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub use frozen::{METADATA_MAX, encode_frozen, frozen_crc};
pub use key::{AUTHORITY_PREFIX, KeyError, authority_key, parse_authority_key};
pub use link::DETAIL_MAX;
pub use record::*;
pub use stream::{
    ApplicationState, OverrunPolicy, PendingTick, SavedState, SavedWork, StreamContents, StreamDecoder,
    TimerRegistration, encode_stream,
};
