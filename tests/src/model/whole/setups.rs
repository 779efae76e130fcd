//! The bounds that are searched: those of every test run, and the long ones.

use super::Bounds;
use std::time::Duration;

/// Ends before anything else is due: the first time that a clock goes on, the move's deadline passes.
const SHORT: Duration = Duration::from_micros(400);

/// Searched in every test run.
pub fn usual() -> Vec<Bounds> {
    vec![
        Bounds { ticks: 2, unknowns: 1, operation: SHORT, ..Bounds::new("whole: there and back again", 3, 1) },
        Bounds { ticks: 3, unknowns: 2, operation: SHORT, ..Bounds::new("whole: time goes on", 1, 1) },
        Bounds { ticks: 1, cuts: 1, operation: SHORT, ..Bounds::new("whole: a lost connection", 2, 1) },
        Bounds { cuts: 1, slow_turns: true, ..Bounds::new("whole: a lost connection, two requests", 1, 2) },
        Bounds {
            ticks: 1,
            unknowns: 1,
            slow_turns: true,
            operation: SHORT,
            ..Bounds::new("whole: two requests", 2, 2)
        },
        Bounds {
            ticks: 2,
            unknowns: 2,
            slow_turns: true,
            asker: 0,
            operation: SHORT,
            ..Bounds::new("whole: asked at the source", 2, 2)
        },
    ]
}

/// Searched by the binary `model`, for as long as it takes.
pub fn long() -> Vec<Bounds> {
    vec![
        Bounds { ticks: 4, unknowns: 2, ..Bounds::new("whole: polls", 1, 1) },
        Bounds { ticks: 2, cuts: 1, unknowns: 1, operation: SHORT, ..Bounds::new("whole: everything once", 1, 1) },
        Bounds { ticks: 2, unknowns: 2, slow_turns: true, operation: SHORT, ..Bounds::new("whole: slow", 2, 2) },
        Bounds { ticks: 1, cuts: 1, operation: SHORT, ..Bounds::new("whole: there and back, cut", 3, 1) },
        Bounds { ticks: 2, unknowns: 2, operation: SHORT, ..Bounds::new("whole: four moves", 4, 1) },
    ]
}
