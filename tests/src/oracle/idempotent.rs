//! Promise 8: whatever comes twice, late, or for a move that ended changes nothing: no message runs twice.

use super::{Faults, Hit};
use std::collections::BTreeSet;

/// Every message that ran, in any incarnation.
#[derive(Debug, Default)]
pub(crate) struct Idempotent {
    ran: BTreeSet<Hit>,
}

impl Idempotent {
    pub(super) fn ran(&mut self, faults: &mut Faults, hit: &Hit) {
        if !self.ran.insert(hit.clone()) {
            faults.promise(8, format!("message {} of client {} to {} ran twice", hit.2, hit.1, hit.0));
        }
    }
}
