//! The fields that a vector names, as the value that its bytes must decode to. Written from the vectors alone, without
//! the codec.

use super::vectors::bytes_of;
use bytes::Bytes;
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
    ApplicationState, Cutover, Data, Destination, Failed, FailureCode, FrozenRecord, Message, OverrunPolicy, Payload,
    PendingTick, Prepare, Ready, Record, RelayStatus, ReplyRelay, ReplyRelayAck, Role, RouteChange, SavedWork, Sender,
    SessionRoute, SessionSeal, SessionSealed, SourceIdentity, State, StreamContents, TerminalResult, TimerRegistration,
};
use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn short(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap()
}

fn text8(value: &Value) -> Text8 {
    Text8::new(text(value)).unwrap()
}

fn rid(value: &Value) -> RoutingId {
    RoutingId::new(text(value).to_owned()).unwrap()
}

fn object_id(value: &Value) -> ObjectId {
    ObjectId::new(text(value)).unwrap()
}

fn object_generation(value: &Value) -> ObjectGeneration {
    ObjectGeneration::new(number(value)).unwrap()
}

fn owner_generation(value: &Value) -> OwnerGeneration {
    OwnerGeneration::new(number(value)).unwrap()
}

fn lease(value: &Value) -> LeaseGeneration {
    LeaseGeneration::new(number(value)).unwrap()
}

fn node(rid_field: &Value, generation: &Value) -> NodeFence {
    NodeFence { rid: rid(rid_field), generation: NodeGeneration::new(number(generation)).unwrap() }
}

fn owner(id: &Value, generation: &Value) -> OwnerPair {
    OwnerPair { owner: OwnerId::new(text(id)).unwrap(), lease: lease(generation) }
}

fn wide(value: &Value) -> u128 {
    u128::from(number(&value["high"])) << 64 | u128::from(number(&value["low"]))
}

fn relocation(f: &Value) -> RelocationId {
    RelocationId::new(wide(&f["relocation"])).unwrap()
}

fn operation(value: &Value) -> OperationId {
    OperationId(wide(value))
}

fn coordinator(f: &Value) -> CoordinatorFence {
    let f = &f["coordinator"];
    CoordinatorFence {
        owner: owner(&f["ownerId"], &f["leaseGeneration"]),
        node: node(&f["nodeRid"], &f["nodeGeneration"]),
        version: StoreVersion::new(text(&f["expectedStoreVersion"])).unwrap(),
    }
}

fn identity(f: &Value) -> RelocationIdentity {
    RelocationIdentity {
        relocation: relocation(f),
        attempt: AttemptGeneration::new(number(&f["attempt"])).unwrap(),
        coordinator: coordinator(f),
    }
}

fn peer(f: &Value) -> PeerFence {
    PeerFence {
        node: node(&f["nodeRid"], &f["nodeGeneration"]),
        owner: owner(&f["ownerId"], &f["ownerLeaseGeneration"]),
    }
}

fn object(f: &Value) -> ObjectIdentity {
    let f = &f["object"];
    let (id, generation) = (object_id(&f["id"]), object_generation(&f["objectGeneration"]));
    match text(&f["kind"]) {
        "actor" => ObjectIdentity::Actor { id, generation, owner_generation: owner_generation(&f["ownerGeneration"]) },
        "userSpot" => {
            ObjectIdentity::UserSpot { id, generation, owner_generation: owner_generation(&f["ownerGeneration"]) }
        }
        "instanceSpot" => {
            ObjectIdentity::InstanceSpot { stable_type: TypeName::new(text(&f["stableType"])).unwrap(), id, generation }
        }
        other => panic!("{other}"),
    }
}

fn route(f: &Value) -> RouteFence {
    RouteFence {
        object: object_id(&f["id"]),
        generation: object_generation(&f["objectGeneration"]),
        node: node(&f["nodeRid"], &f["nodeGeneration"]),
        owner_generation: owner_generation(&f["ownerGeneration"]),
        lease: lease(&f["ownerLeaseGeneration"]),
    }
}

fn session(f: &Value) -> SessionFence {
    let f = &f["session"];
    SessionFence {
        owner: PeerFence {
            node: node(&f["ownerNodeRid"], &f["ownerNodeGeneration"]),
            owner: owner(&f["ownerId"], &f["ownerLeaseGeneration"]),
        },
        session: rid(&f["sessionRid"]),
        binding: BindingGeneration::new(number(&f["bindingGeneration"])).unwrap(),
    }
}

fn role(f: &Value) -> Role {
    match text(&f["role"]) {
        "source" => Role::Source,
        "target" => Role::Target,
        "coordinator" => Role::Coordinator,
        other => panic!("{other}"),
    }
}

fn message(f: &Value) -> FrozenRecord {
    let source = &f["source"];
    let sender = match text(&source["kind"]) {
        "node" => Sender::Node,
        "spot" => Sender::Spot(object_id(&source["spotId"])),
        "actor" => {
            Sender::Actor(object_id(&source["actor"]["id"]), object_generation(&source["actor"]["objectGeneration"]))
        }
        "boundSession" => Sender::BoundSession {
            actor: object_id(&source["actor"]["id"]),
            generation: object_generation(&source["actor"]["objectGeneration"]),
            session: rid(&source["sessionRid"]),
            binding: BindingGeneration::new(number(&source["bindingGeneration"])).unwrap(),
            sequence: number(&source["sessionSequence"]),
        },
        other => panic!("{other}"),
    };
    let kind = text(&f["recordKind"]);
    let to = match kind {
        "nodeSend" | "nodeRequest" => Destination::Node,
        "channelSend" | "channelRequest" => Destination::Channel(text8(&f["channel"])),
        "spotSend" | "spotRequest" => Destination::Spot(route(&f["target"])),
        "actorSend" | "actorRequest" => Destination::Actor(route(&f["target"])),
        other => panic!("{other}"),
    };
    assert!(f["metadata"].is_null());
    let payload = &f["payload"];
    FrozenRecord::Known(Box::new(Message {
        source: SourceIdentity { node: peer(source), sender },
        metadata: None,
        operation: operation(&f["operation"]),
        reply: kind.ends_with("Request").then(|| ReplyRoute(number(&f["replyRouteId"]))),
        to,
        payload: Payload {
            name: text8(&payload["packetName"]),
            content_type: text8(&payload["contentType"]),
            bytes: Bytes::copy_from_slice(text(&payload["bytes"]).as_bytes()),
        },
    }))
}

pub fn record_of(command: u64, f: &Value) -> Record {
    match command {
        30 => Record::Ready(Ready { identity: identity(f), target: peer(&f["target"]), object: object(f) }),
        31 => Record::Data(Data { identity: identity(f), object: object(f), record: message(&f["record"]) }),
        33 => Record::ReplyRelay(ReplyRelay {
            operation: operation(&f["operation"]),
            reply_route: ReplyRoute(number(&f["replyRouteId"])),
            identity: identity(f),
            participant: ParticipantId(number(&f["participantId"])),
            sequence: number(&f["sequence"]),
            result: TerminalResult(short(&f["terminalResult"])),
            failure: short(&f["failureCode"]),
            payload: None,
        }),
        34 => Record::Cutover(Cutover {
            identity: identity(f),
            object: object(f),
            record_count: number(&f["recordCount"]),
            checksum: short(&f["checksum"]),
        }),
        40 => Record::Prepare(Prepare {
            identity: identity(f),
            target: peer(&f["target"]),
            object: object(f),
            source: node(&f["sourceNodeRid"], &f["sourceNodeGeneration"]),
            total_length: number(&f["totalLength"]),
            chunk_count: short(&f["chunkCount"]),
            checksum: short(&f["checksum"]),
            application_version: f["applicationVersion"].as_i64().unwrap(),
            deadline: f.get("deadlineUnixMs").map(|at| UnixMillis(number(at))),
        }),
        42 => Record::SessionSeal(SessionSeal {
            relocation: relocation(f),
            coordinator: coordinator(f),
            actor: route(&f["actor"]),
            session: session(f),
        }),
        43 => Record::SessionSealed(SessionSealed {
            relocation: relocation(f),
            coordinator: coordinator(f),
            actor: route(&f["actor"]),
            session: session(f),
        }),
        44 => Record::SessionRoute(SessionRoute {
            relocation: relocation(f),
            coordinator: coordinator(f),
            role: role(f),
            actor: object_id(&f["actor"]["id"]),
            generation: object_generation(&f["actor"]["objectGeneration"]),
            session: session(f),
            route: route_change(&f["route"]),
        }),
        46 => Record::ReplyRelayAck(ReplyRelayAck {
            relocation: relocation(f),
            coordinator: coordinator(f),
            operation: operation(&f["operation"]),
            reply_route: ReplyRoute(number(&f["replyRouteId"])),
            requester: PeerFence {
                node: node(&f["requestSource"]["nodeRid"], &f["requestSource"]["nodeGeneration"]),
                owner: owner(&f["requestSource"]["ownerId"], &f["requestSource"]["leaseGeneration"]),
            },
            status: if number(&f["status"]) == 1 { RelayStatus::Received } else { RelayStatus::AlreadyTerminal },
        }),
        52 => Record::State(State {
            identity: identity(f),
            object: object(f),
            ordinal: short(&f["ordinal"]),
            data: Rope::from(bytes_of(&f["data"])),
        }),
        53 => Record::Failed(Failed {
            identity: identity(f),
            target: peer(&f["target"]),
            object: object(f),
            code: FailureCode::new(short(&f["failureCode"])).unwrap(),
        }),
        other => panic!("{other}"),
    }
}

fn route_change(f: &Value) -> RouteChange {
    match text(&f["action"]) {
        "commit" => RouteChange::Commit {
            previous: owner_generation(&f["previousOwnerGeneration"]),
            current: owner_generation(&f["targetOwnerGeneration"]),
            target: node(&f["targetNodeRid"], &f["targetNodeGeneration"]),
            lease: lease(&f["targetOwnerLeaseGeneration"]),
        },
        "abort" => RouteChange::Abort { current: owner_generation(&f["currentOwnerGeneration"]) },
        other => panic!("{other}"),
    }
}

pub fn stream_of(f: &Value) -> StreamContents {
    let list = |name: &str| f[name].as_array().unwrap().clone();
    let participant = |f: &Value| ParticipantId(number(&f["participantId"]));
    StreamContents {
        relocation: relocation(f),
        object: object(f),
        application_version: f["applicationVersion"].as_i64().unwrap(),
        states: list("applicationStates")
            .iter()
            .map(|f| ApplicationState {
                participant: participant(f),
                state: f["state"].as_str().map(|text| Rope::from(text.as_bytes().to_vec()).into()),
            })
            .collect(),
        work: list("savedWork")
            .iter()
            .map(|f| SavedWork {
                participant: participant(f),
                order: number(&f["order"]),
                record: message(&f["record"]),
            })
            .collect(),
        timers: list("timers")
            .iter()
            .map(|f| TimerRegistration {
                participant: participant(f),
                name: text8(&f["name"]),
                handler: text8(&f["handlerType"]),
                period_ms: number(&f["periodMs"]),
                overrun: match number(&f["overrunPolicy"]) {
                    1 => OverrunPolicy::SkipLate,
                    2 => OverrunPolicy::BoundedCatchUp,
                    3 => OverrunPolicy::DelayNext,
                    other => panic!("{other}"),
                },
                max_catch_up: number(&f["maxCatchUpTicks"]),
                stop_on_error: f["stopOnUnhandled"].as_bool().unwrap(),
                last_delivery: number(&f["lastDeliveryIndex"]),
                last_scheduled: number(&f["lastScheduledIndex"]),
                next: UnixMillis(number(&f["nextUnixMs"])),
            })
            .collect(),
        ticks: list("pendingTicks")
            .iter()
            .map(|f| PendingTick {
                participant: participant(f),
                order: number(&f["order"]),
                timer: text8(&f["timerName"]),
                delivery: number(&f["deliveryIndex"]),
                scheduled: number(&f["scheduledIndex"]),
                due: UnixMillis(number(&f["scheduledUnixMs"])),
                skipped: number(&f["skippedTicks"]),
            })
            .collect(),
    }
}
