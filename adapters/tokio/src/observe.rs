//! The core's events as `tracing` events, and as counters and histograms of the `metrics` facade. Nothing depends on it.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `rehome_moves_total` | counter | `outcome` |
//! | `rehome_move_bytes_total` | counter | |
//! | `rehome_source_stop_seconds` | histogram: sealed to submitted | |
//! | `rehome_target_resume_seconds` | histogram: commit confirmed to open | |
//! | `rehome_convergence_seconds` | histogram: submitted to settled | |
//! | `rehome_cutover_late_total` | counter | |
//! | `rehome_undeliverable_total`, `rehome_order_gaps_total` | counters | |
//! | `rehome_host_failures_total` | counter | `command` |
//! | `rehome_ignored_total` | counter | `machine` |
//! | `rehome_peers_up_total`, `rehome_peers_down_total` | counters | |
//! | `rehome_connections_down_total` | counter | `blame` |
//! | `rehome_connections_refused_total` | counter: not authenticated | |
//! | `rehome_records_unsendable_total` | counter: a fault of this library | |
//! | `rehome_turns_panicked_total`, `rehome_turns_timed_out_total` | counters | |

use rehome::fence::PeerFence;
use rehome::id::RelocationId;
use rehome::link::{Blame, DownReason};
use rehome::node::{Event, MoveOutcome, Point};
use rehome::time::Instant;
use std::collections::HashMap;

/// Remembers what an interval needs: the begin of it.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// The last point of each move that goes on.
    points: HashMap<RelocationId, Instant>,
}

impl Observer {
    pub(crate) fn event(&mut self, at: Instant, event: &Event) {
        match event {
            Event::SourceEnded { object, target, outcome, bytes, .. } => {
                let (label, relocation) = match outcome {
                    MoveOutcome::Moved { relocation, .. } => ("moved", Some(relocation)),
                    MoveOutcome::KeptSource { relocation, .. } => ("kept_source", Some(relocation)),
                    MoveOutcome::Refused(_) => ("refused", None),
                    MoveOutcome::Lost { relocation } => ("lost", Some(relocation)),
                };
                if let Some(relocation) = relocation {
                    self.points.remove(relocation);
                }
                metrics::counter!("rehome_moves_total", "outcome" => label).increment(1);
                metrics::counter!("rehome_move_bytes_total").increment(*bytes);
                tracing::info!(%object, %target, ?outcome, bytes, "move ended");
            }
            Event::TargetEnded { relocation, object, opened, .. } => {
                self.points.remove(relocation);
                tracing::debug!(%relocation, %object, opened, "stage ended");
            }
            Event::Point { relocation, object, point } => {
                self.point(at, *relocation, *point);
                tracing::debug!(%relocation, %object, ?point, "point");
            }
            Event::CutoverLate { relocation } => {
                metrics::counter!("rehome_cutover_late_total").increment(1);
                tracing::warn!(%relocation, "the cutover is late");
            }
            Event::Unbalanced { relocation } => tracing::error!(%relocation, "a move's receipt does not balance"),
            Event::GuardPassed => tracing::warn!("the lease guard has passed: dispatch pauses"),
            Event::GuardRestored => tracing::info!("the lease was renewed: dispatch goes on"),
            Event::Over { reason } => tracing::info!(?reason, "the node is over"),
            Event::HostFailed { tenure, command, detail } => {
                metrics::counter!("rehome_host_failures_total", "command" => *command).increment(1);
                tracing::warn!(object = %tenure.object, command, detail, "a host hook failed");
            }
            Event::Undeliverable { object, operation } => {
                metrics::counter!("rehome_undeliverable_total").increment(1);
                tracing::warn!(%object, ?operation, "an accepted message has no object any more");
            }
            Event::OrderGap { object } => {
                metrics::counter!("rehome_order_gaps_total").increment(1);
                tracing::warn!(%object, "a sender's order could not be kept");
            }
            Event::Ignored { machine, state, input } => {
                metrics::counter!("rehome_ignored_total", "machine" => *machine).increment(1);
                tracing::debug!(machine, state, input, "ignored");
            }
            Event::Serving { peer } => tracing::info!(node = %peer.node, "serving"),
            Event::PeerUp { peer, .. } => {
                metrics::counter!("rehome_peers_up_total").increment(1);
                tracing::info!(peer = %peer.node, "peer up");
            }
            Event::PeerDown { peer } => {
                metrics::counter!("rehome_peers_down_total").increment(1);
                tracing::info!(peer = %peer.node, "peer down");
            }
            Event::PeerGone { peer } => tracing::info!(peer = %peer.node, "peer gone"),
            Event::Opened { tenure } => {
                tracing::debug!(object = %tenure.object, owner_generation = %tenure.owner_generation, "opened");
            }
            Event::Closed { tenure } => {
                tracing::debug!(object = %tenure.object, owner_generation = %tenure.owner_generation, "closed");
            }
        }
    }

    fn point(&mut self, at: Instant, relocation: RelocationId, point: Point) {
        let before = match point {
            Point::Sealed | Point::Submitted | Point::Committed => self.points.insert(relocation, at),
            Point::Opened | Point::Settled => self.points.remove(&relocation),
        };
        let Some(took) = before.map(|before| at.since(before)) else { return };
        match point {
            Point::Submitted => metrics::histogram!("rehome_source_stop_seconds").record(took),
            Point::Settled => metrics::histogram!("rehome_convergence_seconds").record(took),
            Point::Opened => metrics::histogram!("rehome_target_resume_seconds").record(took),
            Point::Sealed | Point::Committed => {}
        }
    }

    pub(crate) fn connection_down(&self, peer: Option<&PeerFence>, reason: &DownReason) {
        let peer = peer.map(|peer| peer.node.to_string());
        let label = match reason.blame() {
            Blame::Nobody => "nobody",
            Blame::PeerMisbehaved => "peer_misbehaved",
            Blame::PeerIncompatible => "peer_incompatible",
            Blame::Local => "local",
        };
        metrics::counter!("rehome_connections_down_total", "blame" => label).increment(1);
        match reason.blame() {
            Blame::Nobody | Blame::Local => tracing::debug!(peer, %reason, "connection down"),
            Blame::PeerMisbehaved | Blame::PeerIncompatible => tracing::warn!(peer, %reason, "connection down"),
        }
    }
}
