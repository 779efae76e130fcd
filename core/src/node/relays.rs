//! Answers of requests that moved here: each is relayed to its requester until that node has it.

use super::io::Class;
use super::{Node, SendPurpose, TimerKey};
use crate::fence::{NodeFence, PeerFence, RelocationIdentity};
use crate::id::{OperationId, ParticipantId, ReplyRoute, Text8};
use crate::machine::relay::{RelayEffect, RelayInput, ReplyRelay};
use crate::wire::{self, Outcome, Payload, Record, ReplyRelayAck, TerminalResult};

/// One answer on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Relay {
    machine: ReplyRelay,
    requester: PeerFence,
    record: wire::ReplyRelay,
}

impl Node {
    pub(super) fn relay_reply(
        &mut self,
        identity: RelocationIdentity,
        requester: PeerFence,
        operation: OperationId,
        reply_route: ReplyRoute,
        outcome: Outcome,
    ) {
        self.relay_sequence = self.relay_sequence.saturating_add(1);
        let (result, failure, payload) = match outcome {
            Outcome::Answer(payload) => (TerminalResult::OK, 0, Some(payload)),
            Outcome::Failure { result, failure, detail } => {
                let payload = match (detail.is_empty(), Text8::new("failure"), Text8::new("text/plain")) {
                    (false, Ok(name), Ok(content_type)) => {
                        Some(Payload { name, content_type, bytes: detail.into_bytes() })
                    }
                    (true | false, _, _) => None,
                };
                (result, failure, payload)
            }
        };
        let record = wire::ReplyRelay {
            operation,
            reply_route,
            identity,
            participant: ParticipantId::FIRST,
            sequence: self.relay_sequence,
            result,
            failure,
            payload,
        };
        let relay = Relay { machine: ReplyRelay::start(self.config.limits.relay_sends), requester, record };
        self.relays.insert(operation, relay);
        self.send_relay(operation);
    }

    fn send_relay(&mut self, operation: OperationId) {
        let Some(relay) = self.relays.get(&operation) else { return };
        let record = Record::ReplyRelay(relay.record.clone());
        if let Some(conn) = self.peers.get(&relay.requester.node).and_then(|peer| peer.conn) {
            self.send(conn, Class::Small, record, SendPurpose::None);
        }
        let at = self.now.mono.after(self.config.timing.relay_resend);
        self.timers.arm(TimerKey::Relay(operation), at);
    }

    fn step_relay(&mut self, operation: OperationId, input: RelayInput) {
        let Some(relay) = self.relays.get_mut(&operation) else { return self.count_stale("relay") };
        match relay.machine.step(input) {
            RelayEffect::Send => {
                self.counters.retransmits = self.counters.retransmits.saturating_add(1);
                self.send_relay(operation);
            }
            RelayEffect::End | RelayEffect::GiveUp => {
                self.relays.remove(&operation);
                self.timers.disarm(&TimerKey::Relay(operation));
                self.shutdown_step();
            }
        }
    }

    pub(super) fn relay_timer(&mut self, operation: OperationId) {
        if !planted!("relay_sent_once") {
            self.step_relay(operation, RelayInput::Timer);
        }
    }

    pub(super) fn relay_acknowledged(&mut self, from: &PeerFence, ack: &ReplyRelayAck) {
        let fits = self.relays.get(&ack.operation).is_some_and(|relay| {
            relay.requester == *from
                && ack.requester == *from
                && relay.record.reply_route == ack.reply_route
                && relay.record.identity.relocation == ack.relocation
                && relay.record.identity.coordinator == ack.coordinator
        });
        if fits {
            self.step_relay(ack.operation, RelayInput::Acknowledged);
        } else {
            self.count_stale("ReplyRelayAck");
        }
    }

    pub(super) fn relays_requester_gone(&mut self, node: &NodeFence) {
        let gone: Vec<OperationId> =
            self.relays.iter().filter(|(_, relay)| relay.requester.node == *node).map(|(id, _)| *id).collect();
        for operation in gone {
            self.step_relay(operation, RelayInput::RequesterGone);
        }
    }
}
