//! The verdict: what the clients know against what the objects know.

use super::lines::{Account, Outcome, Turns};
use super::object::{Dump, Violation};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that was seen.
#[derive(Default)]
pub(crate) struct Evidence {
    pub(crate) outcomes: BTreeMap<Outcome, u64>,
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) sent: u64,
    pub(crate) ambiguous: u64,
    pub(crate) not_run: u64,
    pub(crate) unbalanced: u64,
    pub(crate) broken: Vec<(Violation, String)>,
    /// Objects whose owner died, or that were in a move with a node that died: what it had accepted may be lost.
    pub(crate) bereaved: BTreeSet<u64>,
    pub(crate) reclaimed: u64,
    pub(crate) accounts: Vec<Account>,
    pub(crate) turns: Turns,
    pub(crate) dumps: BTreeMap<u64, Dump>,
    pub(crate) silent: Vec<(u64, String)>,
    pub(crate) stops: Vec<u64>,
    pub(crate) resumes: Vec<u64>,
    pub(crate) gaps: Vec<u64>,
    pub(crate) lost_with_node: u64,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Percentiles {
    pub(crate) fn of(values: &[u64]) -> Self {
        let Ok(mut histogram) = Histogram::<u64>::new(3) else { return Self::default() };
        for value in values {
            // It grows by itself: no value is out of its range.
            let _ = histogram.record(*value);
        }
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: values.iter().copied().max().unwrap_or(0),
        }
    }
}

/// What must be nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    pub(crate) double_run: u64,
    pub(crate) texts: Vec<String>,
}

impl Counts {
    fn add(&mut self, kind: Violation, text: String) {
        let count = match kind {
            Violation::Lost => &mut self.lost,
            Violation::Duplicated => &mut self.duplicated,
            Violation::Reordered => &mut self.reordered,
            Violation::DoubleRun => &mut self.double_run,
        };
        *count += 1;
        self.texts.push(text);
    }

    pub(crate) const fn all(&self) -> u64 {
        self.lost + self.duplicated + self.reordered + self.double_run
    }
}

impl Evidence {
    pub(crate) fn judge(&mut self) -> Counts {
        let mut counts = Counts::default();
        let bereaved = std::mem::take(&mut self.bereaved);
        let mut with_node = 0;
        for (kind, text) in std::mem::take(&mut self.broken) {
            let object =
                text.split_whitespace().next().and_then(|word| word.strip_prefix("actor:object-")?.parse().ok());
            if kind == Violation::Lost && object.is_some_and(|object| bereaved.contains(&object)) {
                with_node += 1;
            } else {
                counts.add(kind, text);
            }
        }
        for account in &self.accounts {
            let Some(dump) = self.dumps.get(&account.object) else { continue };
            let floor = account.open.first().copied().unwrap_or(account.next);
            // A client that was answered by an earlier incarnation only, or never, proves nothing about this one.
            if account.incarnation != dump.incarnation && (dump.reclaimed || bereaved.contains(&account.object)) {
                with_node += 1;
                continue;
            }
            let seen = dump.seen(account.client);
            let next = seen.map_or(0, |seen| seen.next);
            if next > account.next {
                let text = format!(
                    "object {} ran message {} that client {:x} never sent",
                    account.object,
                    next - 1,
                    account.client
                );
                counts.add(Violation::Duplicated, text);
            }
            let missing = seen.map(|seen| seen.missing.as_slice()).unwrap_or_default();
            let gone: Vec<u64> =
                missing.iter().copied().filter(|number| !account.open.contains(number) && *number >= floor).collect();
            let short = (next..account.next).filter(|number| !account.open.contains(number)).count();
            if !gone.is_empty() || short > 0 {
                if bereaved.contains(&account.object) {
                    with_node += 1;
                } else {
                    let text = format!(
                        "object {}: accepted messages of client {:x} are missing at the end: {gone:?}, and {short} from {next}",
                        account.object, account.client
                    );
                    counts.add(Violation::Lost, text);
                }
            }
        }
        for ((object, incarnation), turns) in &mut self.turns {
            turns.sort_unstable();
            for pair in turns.windows(2) {
                if let [first, second] = pair
                    && first == second
                {
                    let text = format!("object {object}, incarnation {incarnation}: turn {first} was answered twice");
                    counts.add(Violation::DoubleRun, text);
                }
            }
            if let (Some(dump), Some(last)) = (self.dumps.get(object), turns.last())
                && dump.incarnation == *incarnation
                && *last > dump.turn
            {
                let text = format!("object {object}: turn {last} was answered, its last is {}", dump.turn);
                counts.add(Violation::DoubleRun, text);
            }
        }
        for (object, error) in &self.silent {
            counts.add(Violation::Lost, format!("object {object} does not answer at the end: {error}"));
        }
        self.lost_with_node = with_node;
        self.bereaved = bereaved;
        counts
    }
}
