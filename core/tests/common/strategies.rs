//! Strategies for all values of the wire: every variant, ids up to their longest, payloads on both sides of the size
//! from which they are written as slices.

use bytes::Bytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use rehome::Rope;
use rehome::fence::{
    CoordinatorFence, NodeFence, ObjectIdentity, OwnerPair, PeerFence, RelocationIdentity, RouteFence, SessionFence,
};
use rehome::id::{
    AttemptGeneration, BindingGeneration, LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OperationId,
    OwnerGeneration, OwnerId, ParticipantId, RelocationId, ReplyRoute, RoutingId, StoreVersion, Text8, TypeName,
};
use rehome::time::UnixMillis;
use rehome::wire::{
    ApplicationState, Cutover, Data, Delivery, Destination, Failed, FailureCode, FollowNotice, FrozenRecord,
    LinkRecord, Marker, Message, Ordered, Outcome, OverrunPolicy, Payload, PendingTick, Prepare, Ready, Record,
    Refusal, RelayStatus, Reply, ReplyRelay, ReplyRelayAck, Role, RouteChange, SavedWork, Sender, SessionRoute,
    SessionSeal, SessionSealed, SourceIdentity, State, StreamContents, TerminalResult, TimerRegistration,
    encode_frozen,
};
use std::collections::BTreeMap;

fn ascii(byte: u8) -> char {
    char::from(byte)
}

pub fn text8() -> BoxedStrategy<Text8> {
    let short = vec(prop_oneof![(b'a'..=b'z').prop_map(ascii), Just('é'), Just('\u{1F980}')], 1..8)
        .prop_map(|chars| chars.into_iter().collect::<String>());
    let long = Just("m".repeat(255));
    prop_oneof![9 => short, 1 => long].prop_map(|text| Text8::new(&text).unwrap()).boxed()
}

fn object_id() -> BoxedStrategy<ObjectId> {
    text8().prop_map(ObjectId::from).boxed()
}

fn rid() -> BoxedStrategy<RoutingId> {
    prop_oneof![9 => vec(any::<u8>(), 1..10), 1 => vec(any::<u8>(), 255)]
        .prop_map(|bytes| RoutingId::new(bytes).unwrap())
        .boxed()
}

/// 1 to 2^63-1, with both ends.
fn generation() -> BoxedStrategy<u64> {
    let last = i64::MAX.cast_unsigned();
    prop_oneof![Just(1), Just(last), 1..=last].boxed()
}

fn node() -> BoxedStrategy<NodeFence> {
    (rid(), generation())
        .prop_map(|(rid, generation)| NodeFence { rid, generation: NodeGeneration::new(generation).unwrap() })
        .boxed()
}

fn lease() -> BoxedStrategy<LeaseGeneration> {
    generation().prop_map(|value| LeaseGeneration::new(value).unwrap()).boxed()
}

fn owner_generation() -> BoxedStrategy<OwnerGeneration> {
    generation().prop_map(|value| OwnerGeneration::new(value).unwrap()).boxed()
}

fn object_generation() -> BoxedStrategy<ObjectGeneration> {
    generation().prop_map(|value| ObjectGeneration::new(value).unwrap()).boxed()
}

fn binding() -> BoxedStrategy<BindingGeneration> {
    generation().prop_map(|value| BindingGeneration::new(value).unwrap()).boxed()
}

fn peer() -> BoxedStrategy<PeerFence> {
    (node(), text8(), lease())
        .prop_map(|(node, owner, lease)| PeerFence { node, owner: OwnerPair { owner: OwnerId::from(owner), lease } })
        .boxed()
}

fn coordinator() -> BoxedStrategy<CoordinatorFence> {
    let version = prop_oneof![9 => "[ -~]{1,12}", 1 => Just("v".repeat(4096))];
    (peer(), version)
        .prop_map(|(peer, version)| CoordinatorFence {
            owner: peer.owner,
            node: peer.node,
            version: StoreVersion::new(&version).unwrap(),
        })
        .boxed()
}

fn relocation() -> BoxedStrategy<RelocationId> {
    (1..=u128::MAX).prop_map(|value| RelocationId::new(value).unwrap()).boxed()
}

fn identity() -> BoxedStrategy<RelocationIdentity> {
    (relocation(), generation(), coordinator())
        .prop_map(|(relocation, attempt, coordinator)| RelocationIdentity {
            relocation,
            attempt: AttemptGeneration::new(attempt).unwrap(),
            coordinator,
        })
        .boxed()
}

fn object() -> BoxedStrategy<ObjectIdentity> {
    (0..3, text8(), object_id(), object_generation(), owner_generation())
        .prop_map(|(case, stable_type, id, generation, owner_generation)| match case {
            0 => ObjectIdentity::Actor { id, generation, owner_generation },
            1 => ObjectIdentity::UserSpot { id, generation, owner_generation },
            _ => ObjectIdentity::InstanceSpot { stable_type: TypeName::from(stable_type), id, generation },
        })
        .boxed()
}

fn route() -> BoxedStrategy<RouteFence> {
    (object_id(), object_generation(), node(), owner_generation(), lease())
        .prop_map(|(object, generation, node, owner_generation, lease)| RouteFence {
            object,
            generation,
            node,
            owner_generation,
            lease,
        })
        .boxed()
}

fn session() -> BoxedStrategy<SessionFence> {
    (peer(), rid(), binding()).prop_map(|(owner, session, binding)| SessionFence { owner, session, binding }).boxed()
}

/// Empty, small, and on both sides of 1 KiB.
pub fn body() -> BoxedStrategy<Bytes> {
    prop_oneof![vec(any::<u8>(), 0..40), (1020_usize..1030).prop_flat_map(|len| vec(any::<u8>(), len))]
        .prop_map(Bytes::from)
        .boxed()
}

pub fn rope() -> BoxedStrategy<Rope> {
    vec(body(), 0..4).prop_map(Rope::from_iter).boxed()
}

fn payload() -> BoxedStrategy<Payload> {
    (text8(), text8(), body()).prop_map(|(name, content_type, bytes)| Payload { name, content_type, bytes }).boxed()
}

fn some_operation() -> BoxedStrategy<OperationId> {
    (1..=u128::MAX).prop_map(OperationId).boxed()
}

fn reply_route() -> BoxedStrategy<ReplyRoute> {
    any::<u64>().prop_map(ReplyRoute).boxed()
}

fn sender() -> BoxedStrategy<Sender> {
    prop_oneof![
        Just(Sender::Node),
        object_id().prop_map(Sender::Spot),
        (object_id(), object_generation()).prop_map(|(id, generation)| Sender::Actor(id, generation)),
        (object_id(), object_generation(), rid(), binding(), any::<u64>()).prop_map(
            |(actor, generation, session, binding, sequence)| Sender::BoundSession {
                actor,
                generation,
                session,
                binding,
                sequence
            }
        ),
    ]
    .boxed()
}

fn destination() -> BoxedStrategy<Destination> {
    prop_oneof![
        Just(Destination::Node),
        text8().prop_map(Destination::Channel),
        route().prop_map(Destination::Spot),
        route().prop_map(Destination::Actor),
    ]
    .boxed()
}

pub fn message() -> BoxedStrategy<Message> {
    let metadata = option::of(prop_oneof![vec(any::<u8>(), 0..20), vec(any::<u8>(), 1024)].prop_map(Bytes::from));
    (peer(), sender(), metadata, some_operation(), option::of(reply_route()), destination(), payload(), any::<bool>())
        .prop_map(|(node, sender, metadata, operation, reply, to, payload, named)| Message {
            source: SourceIdentity { node, sender },
            metadata,
            operation: if reply.is_none() && !named { OperationId::NONE } else { operation },
            reply,
            to,
            payload,
        })
        .boxed()
}

/// A spot multicast: a one-way spot message with another kind byte.
pub fn multicast() -> BoxedStrategy<FrozenRecord> {
    (message(), route())
        .prop_map(|(message, route)| {
            let message = Message { reply: None, to: Destination::Spot(route), ..message };
            let mut bytes = encode_frozen(&FrozenRecord::Known(Box::new(message))).unwrap().to_bytes().to_vec();
            bytes[0] = 7;
            FrozenRecord::Opaque { kind: 7, bytes: bytes.into() }
        })
        .boxed()
}

pub fn frozen() -> BoxedStrategy<FrozenRecord> {
    let kinds = prop_oneof![Just(7_u8), Just(8), 11..=14_u8, 15..=255_u8];
    let opaque = (kinds, body()).prop_map(|(kind, rest)| {
        let bytes = [kind].into_iter().chain(rest).collect();
        FrozenRecord::Opaque { kind, bytes }
    });
    prop_oneof![3 => message().prop_map(|message| FrozenRecord::Known(Box::new(message))), 1 => opaque, 1 => multicast()].boxed()
}

fn link() -> BoxedStrategy<LinkRecord> {
    let refusal = prop_oneof![
        Just(Refusal::NotHere),
        Just(Refusal::Busy),
        Just(Refusal::TooManyHops),
        Just(Refusal::OtherIncarnation),
        Just(Refusal::Expired),
    ];
    let deadline = option::of(any::<u64>().prop_map(UnixMillis));
    let deliver =
        (message(), route(), any::<bool>(), deadline, 0..=8_u8).prop_map(|(message, route, actor, deadline, hops)| {
            let to = if actor { Destination::Actor(route) } else { Destination::Spot(route) };
            Ordered::Deliver(Box::new(Delivery { message: Message { to, ..message }, deadline, hops }))
        });
    let marker = (some_operation(), node(), destination(), 0..=8_u8)
        .prop_map(|(marker, origin, to, hops)| Ordered::Marker(Marker { marker, origin, to, hops }));
    let detail = prop_oneof!["[a-zé]{0,12}", Just("d".repeat(1024))];
    let failure = (1..=u32::MAX, any::<u32>(), detail).prop_map(|(result, failure, detail)| Outcome::Failure {
        result: TerminalResult(result),
        failure,
        detail: detail.into(),
    });
    let outcome = prop_oneof![payload().prop_map(Outcome::Answer), failure];
    let reply = (some_operation(), reply_route(), outcome)
        .prop_map(|(operation, reply_route, outcome)| Ordered::Reply(Reply { operation, reply_route, outcome }));
    let ordered = prop_oneof![
        deliver,
        some_operation().prop_map(|operation| Ordered::Taken { operation }),
        (some_operation(), refusal).prop_map(|(operation, reason)| Ordered::Refused { operation, reason }),
        marker,
        some_operation().prop_map(|marker| Ordered::MarkerBack { marker }),
        reply,
    ];
    prop_oneof![
        1 => any::<u64>().prop_map(|received| LinkRecord::Resume { received }),
        1 => any::<u64>().prop_map(|received| LinkRecord::Ack { received }),
        6 => (any::<u64>(), ordered).prop_map(|(sequence, body)| LinkRecord::Ordered { sequence, body }),
    ]
    .boxed()
}

fn prepare() -> BoxedStrategy<Prepare> {
    let numbers = (1..=u64::MAX, 1..=4096_u32, any::<u32>(), any::<i64>());
    (identity(), peer(), object(), node(), numbers, option::of(any::<u64>().prop_map(UnixMillis)))
        .prop_map(|(identity, target, object, source, numbers, deadline)| {
            let (total_length, chunk_count, checksum, application_version) = numbers;
            Prepare {
                identity,
                target,
                object,
                source,
                total_length,
                chunk_count,
                checksum,
                application_version,
                deadline,
            }
        })
        .boxed()
}

fn session_route() -> BoxedStrategy<SessionRoute> {
    let change = prop_oneof![
        (owner_generation(), owner_generation(), node(), lease()).prop_map(|(previous, current, target, lease)| {
            RouteChange::Commit { previous, current, target, lease }
        }),
        owner_generation().prop_map(|current| RouteChange::Abort { current }),
    ];
    let role = prop_oneof![Just(Role::Source), Just(Role::Target), Just(Role::Coordinator)];
    (relocation(), coordinator(), role, object_id(), object_generation(), session(), change)
        .prop_map(|(relocation, coordinator, role, actor, generation, session, route)| SessionRoute {
            relocation,
            coordinator,
            role,
            actor,
            generation,
            session,
            route,
        })
        .boxed()
}

fn relays() -> BoxedStrategy<Record> {
    let relay =
        (some_operation(), reply_route(), identity(), any::<[u64; 2]>(), any::<[u32; 2]>(), option::of(payload()))
            .prop_map(|(operation, reply_route, identity, [participant, sequence], [result, failure], payload)| {
                Record::ReplyRelay(ReplyRelay {
                    operation,
                    reply_route,
                    identity,
                    participant: ParticipantId(participant),
                    sequence,
                    result: TerminalResult(result),
                    failure,
                    payload,
                })
            });
    let status = prop_oneof![Just(RelayStatus::Received), Just(RelayStatus::AlreadyTerminal)];
    let ack = (relocation(), coordinator(), some_operation(), reply_route(), peer(), status).prop_map(
        |(relocation, coordinator, operation, reply_route, requester, status)| {
            Record::ReplyRelayAck(ReplyRelayAck { relocation, coordinator, operation, reply_route, requester, status })
        },
    );
    let notice = (route(), route(), 1..=8_u8, any::<[u32; 2]>(), some_operation(), reply_route()).prop_map(
        |(source, target, hops, [queued_messages, queued_bytes], operation, reply_route)| {
            Record::FollowNotice(FollowNotice {
                source,
                target,
                hops,
                queued_messages,
                queued_bytes,
                operation,
                reply_route,
            })
        },
    );
    prop_oneof![relay, ack, notice].boxed()
}

pub fn record() -> BoxedStrategy<Record> {
    let ready = (identity(), peer(), object());
    let session_words = (relocation(), coordinator(), route(), session());
    prop_oneof![
        1 => prepare().prop_map(Record::Prepare),
        1 => (identity(), object(), any::<u32>(), rope())
            .prop_map(|(identity, object, ordinal, data)| Record::State(State { identity, object, ordinal, data })),
        1 => ready.prop_map(|(identity, target, object)| Record::Ready(Ready { identity, target, object })),
        1 => (identity(), peer(), object(), 1..=u32::MAX).prop_map(|(identity, target, object, code)| {
            Record::Failed(Failed { identity, target, object, code: FailureCode::new(code).unwrap() })
        }),
        3 => (identity(), object(), frozen())
            .prop_map(|(identity, object, record)| Record::Data(Data { identity, object, record })),
        1 => (identity(), object(), any::<u64>(), any::<u32>()).prop_map(|(identity, object, record_count, checksum)| {
            Record::Cutover(Cutover { identity, object, record_count, checksum })
        }),
        1 => (session_words, any::<bool>()).prop_map(|((relocation, coordinator, actor, session), seal)| {
            if seal {
                Record::SessionSeal(SessionSeal { relocation, coordinator, actor, session })
            } else {
                Record::SessionSealed(SessionSealed { relocation, coordinator, actor, session })
            }
        }),
        1 => session_route().prop_map(Record::SessionRoute),
        3 => relays(),
        4 => link().prop_map(Record::Link),
    ]
    .boxed()
}

fn states() -> BoxedStrategy<Vec<ApplicationState>> {
    // The last size is one from which a known checksum is combined.
    let state = prop_oneof![4 => rope(), 1 => vec(any::<u8>(), 17_000).prop_map(Rope::from)];
    btree_map(any::<u64>(), option::of((state, any::<bool>())), 0..4)
        .prop_map(|states| {
            let states = states.into_iter().map(|(participant, state)| ApplicationState {
                participant: ParticipantId(participant),
                state: state.map(|(rope, known)| rehome::wire::SavedState {
                    crc: known.then(|| crc32c::crc32c(&rope.to_bytes())),
                    rope,
                }),
            });
            states.collect()
        })
        .boxed()
}

fn timers() -> BoxedStrategy<Vec<TimerRegistration>> {
    let overrun =
        prop_oneof![Just(OverrunPolicy::SkipLate), Just(OverrunPolicy::BoundedCatchUp), Just(OverrunPolicy::DelayNext)];
    btree_map((0..4_u64, text8()), (text8(), overrun, any::<[u64; 5]>(), any::<bool>()), 0..4)
        .prop_map(|timers| {
            let timers = timers.into_iter().map(|((participant, name), (handler, overrun, numbers, stop_on_error))| {
                let [period_ms, max_catch_up, last_delivery, last_scheduled, next] = numbers;
                TimerRegistration {
                    participant: ParticipantId(participant),
                    name,
                    handler,
                    period_ms,
                    overrun,
                    max_catch_up,
                    stop_on_error,
                    last_delivery,
                    last_scheduled,
                    next: UnixMillis(next),
                }
            });
            timers.collect()
        })
        .boxed()
}

pub fn stream() -> BoxedStrategy<StreamContents> {
    let record = prop_oneof![
        4 => message().prop_map(|message| FrozenRecord::Known(Box::new(message))),
        1 => multicast(),
    ];
    // One place in the shared order is either work or a tick.
    let tick = (text8(), any::<[u64; 4]>());
    let places = btree_set((0..4_u64, any::<u64>()), 0..6)
        .prop_flat_map(move |places| {
            let count = places.len();
            (Just(places), vec(any::<bool>(), count))
        })
        .prop_map(|(places, kinds)| places.into_iter().zip(kinds).collect::<BTreeMap<_, _>>());
    let head = (relocation(), object(), any::<i64>());
    (head, states(), places, vec(record, 6), timers(), vec(tick, 6))
        .prop_map(|((relocation, object, application_version), states, places, records, timers, ticks)| {
            let at = |work| places.iter().filter(move |(_, kind)| **kind == work).map(|(place, _)| *place);
            let work = at(true).zip(records).map(|((participant, order), record)| SavedWork {
                participant: ParticipantId(participant),
                order,
                record,
            });
            let ticks = at(false).zip(ticks).map(|((participant, order), (timer, numbers))| {
                let [delivery, scheduled, due, skipped] = numbers;
                PendingTick {
                    participant: ParticipantId(participant),
                    order,
                    timer,
                    delivery,
                    scheduled,
                    due: UnixMillis(due),
                    skipped,
                }
            });
            let (work, ticks) = (work.collect(), ticks.collect());
            StreamContents { relocation, object, application_version, states, work, timers, ticks }
        })
        .boxed()
}
