//! Identities and generations: one type for each, so that none can stand for another.

use bytes::Bytes;
use bytestring::ByteString;
use core::fmt;
use core::num::NonZeroU64;

/// Why a value cannot be an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IdError {
    /// An identity has at least one byte.
    #[error("an identity must not be empty")]
    Empty,
    /// The identity is longer than its bound.
    #[error("an identity has at most {limit} bytes, this one {len}")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A text identity contains the byte 0.
    #[error("a text identity must not contain NUL")]
    Nul,
    /// A text identity is not UTF-8.
    #[error("a text identity must be UTF-8")]
    NotUtf8,
    /// Generations are 1 to 2^63-1.
    #[error("a generation is 1 to 2^63-1")]
    Generation,
    /// A relocation id is not zero.
    #[error("a relocation id must not be zero")]
    Zero,
}

const TEXT8_MAX: usize = 255;

/// UTF-8 text of 1 to 255 bytes without NUL: the `text8` of the wire. Compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text8(ByteString);

impl Text8 {
    /// Checks and copies `text`.
    pub fn new(text: &str) -> Result<Self, IdError> {
        Self::check(text.as_bytes())?;
        Ok(Self(ByteString::from(text)))
    }

    /// Checks `bytes` and keeps the slice itself, without a copy.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, IdError> {
        Self::check(&bytes)?;
        ByteString::try_from(bytes).map(Self).map_err(|_| IdError::NotUtf8)
    }

    fn check(bytes: &[u8]) -> Result<(), IdError> {
        if bytes.is_empty() {
            Err(IdError::Empty)
        } else if bytes.len() > TEXT8_MAX {
            Err(IdError::TooLong { len: bytes.len(), limit: TEXT8_MAX })
        } else if bytes.contains(&0) {
            Err(IdError::Nul)
        } else {
            Ok(())
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same text in storage of its own. A decoded value borrows the read buffer; what lives on must not pin it.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(ByteString::from(self.as_str()))
    }
}

impl fmt::Debug for Text8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Text8);

        impl $name {
            /// Checks and copies `text`: 1 to 255 bytes of UTF-8 without NUL.
            pub fn new(text: &str) -> Result<Self, IdError> {
                Text8::new(text).map(Self)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The text as its wire form.
            pub const fn text(&self) -> &Text8 {
                &self.0
            }

            /// The same id in storage of its own (see [`Text8::detached`]).
            #[must_use]
            pub fn detached(&self) -> Self {
                Self(self.0.detached())
            }
        }

        impl From<Text8> for $name {
            fn from(text: Text8) -> Self {
                Self(text)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

text_id! {
    /// The id of an object: one address. Distinct kinds of object have distinct id spaces.
    ObjectId
}
text_id! {
    /// The id of a host in the store. It survives a restart; the lease generation does not.
    OwnerId
}
text_id! {
    /// The stable name of an object's type.
    TypeName
}

/// The routing id of a node: opaque, 1 to 255 bytes, compared as bytes and never as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingId(Bytes);

impl RoutingId {
    /// Checks `bytes` and keeps the slice itself.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, IdError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            Err(IdError::Empty)
        } else if bytes.len() > TEXT8_MAX {
            Err(IdError::TooLong { len: bytes.len(), limit: TEXT8_MAX })
        } else {
            Ok(Self(bytes))
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same id in storage of its own (see [`Text8::detached`]).
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Lower-case hex, as store records hold it.
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'?'));
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    /// The inverse of [`RoutingId::to_hex`]; `None` for anything else than lower-case hex of 1 to 255 bytes.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c.wrapping_sub(b'0')),
            b'a'..=b'f' => Some(c.wrapping_sub(b'a').wrapping_add(10)),
            _ => None,
        };
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect();
        Self::new(bytes?).ok()
    }
}

impl fmt::Debug for RoutingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for RoutingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

macro_rules! generation {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The first generation.
            pub const FIRST: Self = Self(NonZeroU64::MIN);

            /// Checks `value`: 1 to 2^63-1.
            pub const fn new(value: u64) -> Result<Self, IdError> {
                if value > i64::MAX as u64 {
                    return Err(IdError::Generation);
                }
                match NonZeroU64::new(value) {
                    Some(value) => Ok(Self(value)),
                    None => Err(IdError::Generation),
                }
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0.get()
            }

            /// The following generation; `None` after 2^63-1.
            pub const fn next(self) -> Option<Self> {
                match self.0.checked_add(1) {
                    Some(value) => match Self::new(value.get()) {
                        Ok(generation) => Some(generation),
                        Err(_) => None,
                    },
                    None => None,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

generation! {
    /// Distinguishes two incarnations of one object id. Never changes in a move. Protocol rules compare it for
    /// equality only; the order exists so that it can be a map key.
    ObjectGeneration
}
generation! {
    /// Grows by one with each owner change within one incarnation.
    OwnerGeneration
}
generation! {
    /// Distinguishes two runs of a node that use the same routing id.
    NodeGeneration
}
generation! {
    /// One tenure of an owner id. A restarted host gets a new one: a different owner.
    LeaseGeneration
}
generation! {
    /// Tells a second try to the same target from the first. Protocol rules compare it for equality only.
    AttemptGeneration
}
generation! {
    /// One binding of a client session to an object.
    BindingGeneration
}

/// The id of one relocation attempt: nonzero, 128 bits, from entropy that the caller gave. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelocationId(u128);

impl RelocationId {
    /// Checks that `value` is not zero.
    pub const fn new(value: u128) -> Result<Self, IdError> {
        if value == 0 { Err(IdError::Zero) } else { Ok(Self(value)) }
    }

    /// The number; the wire carries its high half first.
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for RelocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for RelocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of one message or request: 128 bits. Zero only on a one-way record of a peer that gives it none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u128);

impl OperationId {
    /// No operation.
    pub const NONE: Self = Self(0);
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Where a reply goes at its requester: chosen by the requester, opaque to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyRoute(pub u64);

/// One object inside a unit: 1 + its index in the unit's authority keys, sorted by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParticipantId(pub u64);

impl ParticipantId {
    /// The only participant of a unit of one.
    pub const FIRST: Self = Self(1);
}

/// The version that the store gave a record on its last write: opaque UTF-8 of 1 to 4,096 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreVersion(ByteString);

impl StoreVersion {
    /// The most bytes a version has.
    pub const MAX: usize = 4096;

    /// Checks and copies `text`.
    pub fn new(text: &str) -> Result<Self, IdError> {
        Self::from_bytes(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// Checks `bytes` and keeps the slice itself.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, IdError> {
        if bytes.is_empty() {
            return Err(IdError::Empty);
        }
        if bytes.len() > Self::MAX {
            return Err(IdError::TooLong { len: bytes.len(), limit: Self::MAX });
        }
        ByteString::try_from(bytes).map(Self).map_err(|_| IdError::NotUtf8)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same version in storage of its own (see [`Text8::detached`]).
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(ByteString::from(self.as_str()))
    }
}

impl fmt::Debug for StoreVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
