//! The core's events as `tracing` events and `metrics` counters.

use rehome::node::{Event, MoveOutcome};

pub(crate) fn event(event: &Event) {
    match event {
        Event::SourceEnded { object, target, outcome, bytes, .. } => {
            let label = match outcome {
                MoveOutcome::Moved { .. } => "moved",
                MoveOutcome::KeptSource { .. } => "kept_source",
                MoveOutcome::Refused(_) => "refused",
                MoveOutcome::Lost { .. } => "lost",
            };
            metrics::counter!("rehome_moves_total", "outcome" => label).increment(1);
            metrics::counter!("rehome_move_bytes_total").increment(*bytes);
            tracing::info!(%object, %target, outcome = label, bytes, "move ended");
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
            tracing::warn!(object = %tenure.object, command, detail, "a host hook failed");
        }
        Event::Undeliverable { object, operation } => {
            metrics::counter!("rehome_undeliverable_total").increment(1);
            tracing::warn!(%object, ?operation, "an accepted message has no object any more");
        }
        Event::OrderGap { object } => tracing::warn!(%object, "a sender's order could not be kept"),
        Event::Ignored { machine, state, input } => {
            metrics::counter!("rehome_ignored_total", "machine" => *machine).increment(1);
            tracing::debug!(machine, state, input, "ignored");
        }
        Event::Serving { peer } => tracing::info!(node = %peer.node, "serving"),
        Event::PeerUp { peer, .. } => tracing::info!(peer = %peer.node, "peer up"),
        Event::PeerDown { peer } => tracing::info!(peer = %peer.node, "peer down"),
        Event::PeerGone { peer } => tracing::info!(peer = %peer.node, "peer gone"),
        Event::Opened { tenure } => tracing::debug!(object = %tenure.object, "opened"),
        Event::Closed { tenure } => tracing::debug!(object = %tenure.object, "closed"),
        Event::Point { relocation, object, point } => tracing::debug!(%relocation, %object, ?point, "point"),
        Event::TargetEnded { relocation, object, opened, .. } => {
            tracing::debug!(%relocation, %object, opened, "stage ended");
        }
    }
}
