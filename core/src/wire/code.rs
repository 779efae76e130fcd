//! The numbers of failures and terminal results, and their names. Says nothing about when one is used.

use super::record::{FailureCode, TerminalResult};
use core::num::NonZeroU32;

const fn failure(number: u32) -> FailureCode {
    match NonZeroU32::new(number) {
        Some(number) => FailureCode(number),
        None => FailureCode(NonZeroU32::MIN),
    }
}

macro_rules! failures {
    ($($number:literal $name:ident $text:literal)*) => {
        impl FailureCode {
            $(#[doc = concat!("Code ", stringify!($number), ": ", $text, ".")]
            pub const $name: Self = failure($number);)*

            /// Every code that this version knows, by number.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The code's name in words; `None` for one that this version does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self.0.get() {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

failures! {
    1 ACTOR_ROUTE_NOT_FOUND "actor route not found"
    2 ACTOR_CREATE_FAILED "actor create failed"
    3 ACTOR_ALREADY_EXISTS "actor already exists"
    4 ACTOR_TYPE_MISMATCH "actor type mismatch"
    5 SPOT_CREATE_FAILED "spot create failed"
    6 SPOT_ROUTE_NOT_FOUND "spot route not found"
    7 SPOT_TYPE_MISMATCH "spot type mismatch"
    8 ACTOR_SESSION_NOT_BOUND "actor session not bound"
    9 HANDLER_NOT_FOUND "handler not found"
    10 ROUTE_HANDLER_NOT_FOUND "route handler not found"
    11 ACTOR_DISPATCH_HANDLER_NOT_FOUND "actor dispatch handler not found"
    12 PAYLOAD_DECODE_FAILED "payload decode failed"
    13 ROUTE_NOT_CONNECTED "route not connected"
    14 REQUEST_TARGET_NOT_FOUND "request target not found"
    15 REJECTED "rejected"
    16 PROTOCOL_ERROR "protocol error"
    17 REQUEST_FAILED "request failed"
    18 WORKER_QUEUE_FULL "worker queue full"
    19 WORKER_TIMED_OUT "worker timed out"
    20 WORKER_FAILED "worker failed"
    21 ACTOR_LOCATION_STALE "actor location stale"
    22 ACTOR_CREATE_REJECTED "actor create rejected"
    33 SPOT_GENERATION_STALE "spot generation stale"
    34 SPOT_MOVING "spot moving"
    35 DATA_LOST "data lost"
}

impl FailureCode {
    /// The code of `number`; `None` for 0, which means no failure.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The code as a receiver acts on it: itself, or [`FailureCode::REQUEST_FAILED`] for one that it does not know.
    #[must_use]
    pub const fn mapped(self) -> Self {
        if self.name().is_some() { self } else { Self::REQUEST_FAILED }
    }
}

impl core::fmt::Display for FailureCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "failure {}", self.0),
        }
    }
}

macro_rules! results {
    ($($number:literal $name:ident $text:literal)*) => {
        impl TerminalResult {
            $(#[doc = concat!("Result ", stringify!($number), ": ", $text, ".")]
            pub const $name: Self = Self($number);)*

            /// Every result that this version knows, by number.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The result's name in words; `None` for one that this version does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

results! {
    0 OK "ok"
    101 TIMED_OUT "timed out"
    102 NOT_FOUND "not found"
    103 TERMINATED "terminated"
    104 PROTOCOL_ERROR "protocol error"
    105 INTERNAL_ERROR "internal error"
    106 REJECTED "rejected"
    107 CONFLICT "conflict"
    108 BUSY "busy"
    109 NOT_CONNECTED "not connected"
    110 INVALID_ARGUMENT "invalid argument"
    111 INVALID_STATE "invalid state"
    112 NOT_SUPPORTED "not supported"
    113 BACKPRESSURED "backpressured"
}

impl core::fmt::Display for TerminalResult {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "result {}", self.0),
        }
    }
}
