//! Authority keys: one for each object, and no other text.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use common::strategies::text8;
use proptest::prelude::*;
use rehome::fence::{ObjectKey, ObjectKind};
use rehome::id::ObjectId;
use rehome::wire::{KeyError, authority_key, parse_authority_key};

proptest! {
    #[test]
    fn every_object_has_one_key(id in prop_oneof![text8(), "[ -~]{1,20}".prop_map(|id| rehome::id::Text8::new(&id).unwrap())], actor in any::<bool>()) {
        let kind = if actor { ObjectKind::Actor } else { ObjectKind::Spot };
        let key = ObjectKey { kind, id: ObjectId::from(id) };
        let text = authority_key(&key);
        prop_assert!(text.is_ascii());
        prop_assert_eq!(parse_authority_key(&text).unwrap(), key);
    }

    #[test]
    fn any_text_that_is_a_key_is_the_key_of_its_object(text in "(zla1:[as]:)?[0-9]{0,3}:?([a-z~/ ]|%[0-9A-Fa-f]{2}){0,4}") {
        if let Ok(key) = parse_authority_key(&text) {
            prop_assert_eq!(authority_key(&key), text);
        }
    }
}

#[test]
fn text_that_is_not_canonical_is_no_key() {
    for (text, error) in [
        ("", KeyError::Prefix),
        ("zla2:a:1:x", KeyError::Prefix),
        ("zla1:b:1:x", KeyError::Prefix),
        ("zla1:a:x", KeyError::Length),
        ("zla1:a:01:x", KeyError::Length),
        ("zla1:a:+1:x", KeyError::Length),
        ("zla1:a:2:x", KeyError::Length),
        ("zla1:a:3:%3A", KeyError::Length),
        ("zla1:a:1:%3a", KeyError::Encoding),
        ("zla1:a:1::", KeyError::Encoding),
        ("zla1:a:1:%41", KeyError::Encoding),
        ("zla1:a:1:%3", KeyError::Encoding),
        ("zla1:a:0:", KeyError::Id(rehome::id::IdError::Empty)),
        ("zla1:a:1:%00", KeyError::Id(rehome::id::IdError::Nul)),
        ("zla1:a:1:%FF", KeyError::Id(rehome::id::IdError::NotUtf8)),
    ] {
        assert_eq!(parse_authority_key(text), Err(error), "{text}");
    }
}
