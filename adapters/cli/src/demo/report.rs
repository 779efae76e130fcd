//! The page with pictures: the distribution of pauses, and the ten slowest moves.

use super::lines::Outcome;
use super::verdict::{Counts, Evidence, Percentiles};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The points of the moves, in microseconds of each node's own clock.
#[derive(Default)]
pub(crate) struct Timelines {
    moves: HashMap<String, Timeline>,
}

#[derive(Clone, Debug, Default)]
struct Timeline {
    object: u64,
    sealed: u64,
    submitted: u64,
    committed: u64,
    opened: u64,
    moved: bool,
}

impl Timelines {
    pub(crate) fn source(&mut self, relocation: String, object: u64, sealed: u64, submitted: u64) {
        let timeline = self.moves.entry(relocation).or_default();
        (timeline.object, timeline.sealed, timeline.submitted) = (object, sealed, submitted);
    }

    pub(crate) fn target(&mut self, relocation: String, committed: u64, opened: u64) {
        let timeline = self.moves.entry(relocation).or_default();
        (timeline.committed, timeline.opened) = (committed, opened);
    }

    pub(crate) fn outcome(&mut self, relocation: &str, outcome: Outcome) {
        if let Some(timeline) = self.moves.get_mut(relocation) {
            timeline.moved = outcome == Outcome::Moved;
        }
    }
}

const WIDTH: f64 = 900.0;

fn histogram(page: &mut String, title: &str, values: &[u64]) {
    let _ = writeln!(page, "<h2>{title}</h2>");
    let Some(max) = values.iter().max() else {
        let _ = writeln!(page, "<p>No move was measured.</p>");
        return;
    };
    // Logarithmic bins, four to the octave: pauses span orders of magnitude.
    let bin = |value: u64| ((value.max(1) as f64).log2() * 4.0) as usize;
    let mut bins = vec![0u64; bin(*max) + 1];
    for value in values {
        bins[bin(*value)] += 1;
    }
    let first = bins.iter().position(|count| *count > 0).unwrap_or(0);
    let bins = &bins[first..];
    let highest = bins.iter().max().copied().unwrap_or(1).max(1);
    let width = WIDTH / bins.len() as f64;
    let _ = writeln!(page, "<svg viewBox='0 0 {WIDTH} 240' role='img' aria-label='{title}'>");
    for (index, count) in bins.iter().enumerate() {
        let height = *count as f64 / highest as f64 * 180.0;
        let from = 2f64.powf((index + first) as f64 / 4.0);
        let x = index as f64 * width;
        let _ = writeln!(
            page,
            "<rect x='{x:.1}' y='{:.1}' width='{:.1}' height='{height:.1}'><title>from {from:.0} us: {count}</title></rect>",
            200.0 - height,
            (width - 1.0).max(0.5)
        );
        if index % 8 == 0 {
            let _ = writeln!(page, "<text x='{x:.1}' y='218'>{}</text>", human(from as u64));
        }
    }
    let tallest = bins.iter().position(|count| *count == highest).unwrap_or(0) as f64 * width;
    let _ = writeln!(page, "<text x='{:.1}' y='14'>{highest}</text>", tallest + 2.0);
    let p = Percentiles::of(values);
    let _ = writeln!(
        page,
        "</svg><p>Moves by time, four bars to a doubling; the figure is that of the tallest bar. \
         {} moves; p50 {}, p99 {}, longest {}</p>",
        values.len(),
        human(p.p50),
        human(p.p99),
        human(p.max)
    );
}

fn human(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

fn slowest(page: &mut String, timelines: &Timelines) {
    let mut moves: Vec<&Timeline> =
        timelines.moves.values().filter(|t| t.moved && t.opened > 0 && t.sealed > 0).collect();
    moves.sort_by_key(|t| std::cmp::Reverse(t.opened.saturating_sub(t.sealed)));
    moves.truncate(10);
    let Some(longest) = moves.first().map(|t| t.opened.saturating_sub(t.sealed).max(1)) else { return };
    let _ = writeln!(
        page,
        "<h2>The slowest moves</h2><p>Dark: the source stops, S0 to S1. Grey: the target verifies and commits, S1 to S2. \
         Light: the target opens, S2 to S3. All nodes ran on this machine and share its boot-time clock.</p>"
    );
    let height = moves.len() * 28 + 10;
    let _ = writeln!(page, "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='the slowest moves'>");
    for (row, t) in moves.iter().enumerate() {
        let y = row * 28;
        let scale = |from: u64, to: u64| to.saturating_sub(from) as f64 / longest as f64 * (WIDTH - 260.0);
        let (a, b, c) = (scale(t.sealed, t.submitted), scale(t.submitted, t.committed), scale(t.committed, t.opened));
        let _ = writeln!(page, "<text x='0' y='{}'>object-{}</text>", y + 16, t.object);
        let _ = writeln!(page, "<rect class='stop' x='110' y='{y}' width='{a:.1}' height='20'/>");
        let _ = writeln!(page, "<rect class='wait' x='{:.1}' y='{y}' width='{b:.1}' height='20'/>", 110.0 + a);
        let _ = writeln!(
            page,
            "<rect class='open' x='{:.1}' y='{y}' width='{:.1}' height='20'/>",
            110.0 + a + b,
            c.max(1.0)
        );
        let _ = writeln!(
            page,
            "<text x='{:.1}' y='{}'>{}</text>",
            118.0 + a + b + c,
            y + 16,
            human(t.opened.saturating_sub(t.sealed))
        );
    }
    let _ = writeln!(page, "</svg>");
}

/// The whole page; it loads nothing.
pub(crate) fn page(evidence: &Evidence, timelines: &Timelines, counts: &Counts, took: Duration) -> String {
    let mut page = String::from(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>rehome demo</title><style>\
         body{font:16px/1.5 system-ui,sans-serif;max-width:920px;margin:2rem auto;padding:0 1rem;color:#1c2733}\
         svg{width:100%;background:#f5f7f9}rect{fill:#2b6ca3}rect.wait{fill:#b9c4ce}rect.open{fill:#7fc4a0}\
         text{font-size:13px;fill:#1c2733}td{padding:.15rem 1.2rem .15rem 0}td+td{text-align:right}</style></head><body>\
         <h1>rehome demo</h1><table>",
    );
    let moved = evidence.outcomes.get(&Outcome::Moved).copied().unwrap_or(0);
    let rows: [(&str, u64); 9] = [
        ("objects moved", moved),
        ("requests", evidence.requests),
        ("answered", evidence.answered),
        ("one-way messages accepted", evidence.sent),
        ("lost", counts.lost),
        ("duplicated", counts.duplicated),
        ("reordered", counts.reordered),
        ("run twice", counts.double_run),
        ("receipts that do not balance", evidence.unbalanced),
    ];
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><td>{name}</td><td>{value}</td></tr>");
    }
    let _ = writeln!(page, "<tr><td>seconds</td><td>{:.1}</td></tr></table>", took.as_secs_f64());
    histogram(&mut page, "Source stop, S0 to S1", &evidence.stops);
    histogram(&mut page, "Target resume, S2 to S3", &evidence.resumes);
    histogram(&mut page, "Longest gap that a client saw around a move", &evidence.gaps);
    slowest(&mut page, timelines);
    page.push_str("</body></html>\n");
    page
}
