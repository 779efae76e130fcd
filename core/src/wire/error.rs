//! Why bytes are not a record, and why a record cannot become bytes. Says nothing about whose fault it is or what to
//! do: that is the link's and the machines' decision.

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The magic or the major version is neither the published layout's nor the link's.
    #[error("invalid head")]
    InvalidHead,
    /// A flag that is not defined, or that this command does not allow.
    #[error("invalid flags")]
    InvalidFlags,
    /// A command that is reserved or not spoken here.
    #[error("unknown command")]
    UnknownCommand,
    /// The input, or the case of a union, ends inside a field.
    #[error("truncated field")]
    TruncatedField,
    /// A bad enum value, a zero where nonzero is required, text that is not UTF-8, an order that is not kept.
    #[error("invalid field")]
    InvalidField,
    /// Bytes follow the last field of the record or of a case.
    #[error("trailing byte")]
    TrailingByte,
    /// A length above the bound of its field.
    #[error("field too long")]
    TooLong,
    /// A record with more frames than its command has, or with none.
    #[error("wrong number of frames")]
    WrongFrames,
}

/// Bytes that are not a record: where, and in which field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{kind} at byte {offset}: {field}")]
pub struct DecodeError {
    /// Why.
    pub kind: DecodeErrorKind,
    /// Where the field begins, in bytes from the start of its frame, or of the logical stream. Never more than the
    /// length of the input.
    pub offset: usize,
    /// The field, in the words of the layout.
    pub field: &'static str,
}

/// A value that has no encoding. A value that was decoded always has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EncodeError {
    /// The field is longer than its length prefix or its bound allows.
    #[error("{field} has {len} bytes or entries, at most {limit} can be sent")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        limit: usize,
    },
    /// The field's value is outside its documented bounds, so that every receiver would refuse it.
    #[error("{field} is outside its bounds")]
    Invalid {
        /// The field.
        field: &'static str,
    },
    /// A vector of the logical stream is not sorted and unique by its keys, or two pieces of work share an order.
    #[error("{field} is not in strictly increasing order")]
    Unsorted {
        /// The vector.
        field: &'static str,
    },
}
