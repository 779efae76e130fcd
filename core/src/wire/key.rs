//! Authority keys: the names of object records in a store. One object has exactly one key, and a key exactly one
//! object, so that a store can be scanned by the `zla1:` prefix and its rows told apart from any other.

use crate::fence::{ObjectKey, ObjectKind};
use crate::id::{IdError, ObjectId};

/// What all authority keys begin with.
pub const AUTHORITY_PREFIX: &str = "zla1:";

/// Why text is not an authority key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum KeyError {
    /// It does not begin with `zla1:a:` or `zla1:s:`.
    #[error("an authority key begins with zla1:a: or zla1:s:")]
    Prefix,
    /// The length is not a plain decimal number, or not that of the id.
    #[error("the length is not that of the id")]
    Length,
    /// The id is not percent-encoded in the one canonical way.
    #[error("the id is not in canonical percent-encoding")]
    Encoding,
    /// The decoded bytes are not an object id.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// The authority key of `key`: `zla1:a:<byte length>:<id>` for an actor, `zla1:s:...` for a spot, with all but RFC 3986
/// unreserved bytes of the id percent-encoded in upper case.
pub fn authority_key(key: &ObjectKey) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'?'));
    let id = key.id.as_str();
    let mut text = String::with_capacity(id.len().saturating_add(16));
    text.push_str(AUTHORITY_PREFIX);
    text.push_str(match key.kind {
        ObjectKind::Actor => "a:",
        ObjectKind::Spot => "s:",
    });
    text.push_str(&id.len().to_string());
    text.push(':');
    for byte in id.bytes() {
        if is_unreserved(byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(digit(byte >> 4));
            text.push(digit(byte & 15));
        }
    }
    text
}

/// The object whose authority key is `text`.
///
/// # Errors
/// Text that [`authority_key`] gives for no object.
pub fn parse_authority_key(text: &str) -> Result<ObjectKey, KeyError> {
    let rest = text.strip_prefix(AUTHORITY_PREFIX).ok_or(KeyError::Prefix)?;
    let (kind, rest) = match (rest.strip_prefix("a:"), rest.strip_prefix("s:")) {
        (Some(rest), _) => (ObjectKind::Actor, rest),
        (None, Some(rest)) => (ObjectKind::Spot, rest),
        (None, None) => return Err(KeyError::Prefix),
    };
    let (length, encoded) = rest.split_once(':').ok_or(KeyError::Length)?;
    let mut id = Vec::with_capacity(encoded.len().min(255));
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        id.push(match byte {
            b'%' => {
                let high = bytes.next().and_then(hex).ok_or(KeyError::Encoding)?;
                let low = bytes.next().and_then(hex).ok_or(KeyError::Encoding)?;
                let byte = high << 4 | low;
                if is_unreserved(byte) {
                    return Err(KeyError::Encoding);
                }
                byte
            }
            byte if is_unreserved(byte) => byte,
            _ => return Err(KeyError::Encoding),
        });
    }
    if length != id.len().to_string() {
        return Err(KeyError::Length);
    }
    let id = crate::id::Text8::from_bytes(id.into())?;
    Ok(ObjectKey { kind, id: ObjectId::from(id) })
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// An upper-case hex digit.
const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}
