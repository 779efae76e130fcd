//! Two meshes and the records that the tests of the link send. Owns no rule.
#![allow(dead_code, reason = "each test file uses a part of it")]

use bytes::Bytes;
use rehome::Rope;
use rehome::fence::{CoordinatorFence, NodeFence, ObjectIdentity, OwnerPair, PeerFence, RelocationIdentity};
use rehome::id::{
    AttemptGeneration, LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration, OwnerId,
    ParticipantId, RelocationId, ReplyRoute, RoutingId, StoreVersion, Text8,
};
use rehome::link::{
    Class, Conn, Hello, LINK_CAPABILITY, LinkSettings, Mesh, MeshEvent, SendId, V13_CAPABILITY, V14_CAPABILITY,
};
use rehome::time::{Instant, UnixMillis};
use rehome::wire::{LinkRecord, Payload, Prepare, Record, ReplyRelay, State, TerminalResult};

pub(crate) fn rid(name: &str) -> RoutingId {
    RoutingId::new(name.as_bytes().to_vec()).unwrap()
}

pub(crate) fn peer(name: &str, generation: u64) -> PeerFence {
    PeerFence {
        node: NodeFence { rid: rid(name), generation: NodeGeneration::new(generation).unwrap() },
        owner: OwnerPair { owner: OwnerId::new("owner").unwrap(), lease: LeaseGeneration::new(3).unwrap() },
    }
}

pub(crate) fn hello(name: &str, generation: u64) -> Hello {
    Hello {
        peer: peer(name, generation),
        application_version: 7,
        capabilities: [V13_CAPABILITY, V14_CAPABILITY, LINK_CAPABILITY].map(|name| Text8::new(name).unwrap()).into(),
        chunk_limit: 64 << 10,
        mesh: Text8::new("mesh").unwrap(),
    }
}

pub(crate) fn mesh(name: &str, generation: u64) -> Mesh {
    Mesh::new(hello(name, generation), LinkSettings::default()).unwrap()
}

pub(crate) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Everything that the mesh wants to write, taken in one write after another.
pub(crate) fn drain(mesh: &mut Mesh, conn: Conn) -> Vec<u8> {
    let mut all = Vec::new();
    while mesh.wants_write(conn) {
        let bytes = write(mesh, conn, usize::MAX);
        all.extend(bytes);
    }
    all
}

/// One write, of which the transport takes at most `most` bytes.
pub(crate) fn write(mesh: &mut Mesh, conn: Conn, most: usize) -> Vec<u8> {
    let mut slices = Vec::new();
    mesh.transmit(conn, &mut slices);
    let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    drop(slices);
    bytes.truncate(most);
    mesh.transmitted(Instant::ZERO, conn, bytes.len()).unwrap();
    bytes
}

pub(crate) fn events(mesh: &mut Mesh) -> Vec<MeshEvent> {
    std::iter::from_fn(|| mesh.poll_event()).collect()
}

/// A connection from `a` to `b`.
pub(crate) struct Pair {
    pub(crate) a: Mesh,
    pub(crate) b: Mesh,
    pub(crate) on_a: Conn,
    pub(crate) on_b: Conn,
}

impl Pair {
    /// Dialed, nothing exchanged.
    pub(crate) fn dialed(mut a: Mesh, mut b: Mesh) -> Self {
        let on_a = a.connect(at(0), None);
        let on_b = b.accept(at(0));
        Self { a, b, on_a, on_b }
    }

    /// Up on both sides; the events of that are taken.
    pub(crate) fn up() -> Self {
        Self::up_of(mesh("a", 1), mesh("b", 1))
    }

    pub(crate) fn up_of(a: Mesh, b: Mesh) -> Self {
        let mut pair = Self::dialed(a, b);
        pair.exchange(at(0));
        assert!(matches!(events(&mut pair.a).as_slice(), [MeshEvent::Up { .. }]));
        assert!(matches!(events(&mut pair.b).as_slice(), [MeshEvent::Up { .. }]));
        pair
    }

    /// Carries bytes both ways until none are left.
    pub(crate) fn exchange(&mut self, now: Instant) {
        while self.a.wants_write(self.on_a) || self.b.wants_write(self.on_b) {
            let bytes = drain(&mut self.a, self.on_a);
            self.b.receive(now, self.on_b, bytes.into()).unwrap();
            let bytes = drain(&mut self.b, self.on_b);
            self.a.receive(now, self.on_a, bytes.into()).unwrap();
        }
    }
}

pub(crate) fn ack(received: u64) -> Record {
    Record::Link(LinkRecord::Ack { received })
}

pub(crate) fn identity() -> RelocationIdentity {
    RelocationIdentity {
        relocation: RelocationId::new(9).unwrap(),
        attempt: AttemptGeneration::FIRST,
        coordinator: CoordinatorFence {
            owner: peer("a", 1).owner,
            node: peer("a", 1).node,
            version: StoreVersion::new("v1").unwrap(),
        },
    }
}

pub(crate) fn object() -> ObjectIdentity {
    ObjectIdentity::Actor {
        id: ObjectId::new("object").unwrap(),
        generation: ObjectGeneration::FIRST,
        owner_generation: OwnerGeneration::FIRST,
    }
}

pub(crate) fn state(ordinal: u32, len: usize) -> Record {
    let data = Bytes::from(vec![u8::try_from(ordinal % 251).unwrap(); len]);
    Record::State(State { identity: identity(), object: object(), ordinal, data: Rope::from(data) })
}

pub(crate) fn prepare(deadline: Option<UnixMillis>) -> Record {
    Record::Prepare(Prepare {
        identity: identity(),
        target: peer("b", 1),
        object: object(),
        source: peer("a", 1).node,
        total_length: 10,
        chunk_count: 1,
        checksum: 1,
        application_version: 7,
        deadline,
    })
}

/// A record of two frames.
pub(crate) fn relay(len: usize) -> Record {
    Record::ReplyRelay(ReplyRelay {
        operation: rehome::id::OperationId(5),
        reply_route: ReplyRoute(6),
        identity: identity(),
        participant: ParticipantId::FIRST,
        sequence: 1,
        result: TerminalResult(0),
        failure: 0,
        payload: Some(Payload {
            name: Text8::new("name").unwrap(),
            content_type: Text8::new("type").unwrap(),
            bytes: vec![4; len].into(),
        }),
    })
}

/// Queues all, small ones as such, with send ids from 0.
pub(crate) fn send_all(mesh: &mut Mesh, conn: Conn, records: &[Record]) {
    for (id, record) in (0..).zip(records) {
        let class = if matches!(record, Record::State(_)) { Class::Bulk } else { Class::Small };
        mesh.send(conn, SendId(id), class, record).unwrap();
    }
}

/// The records among `events`.
pub(crate) fn records(events: &[MeshEvent]) -> Vec<Record> {
    let record = |event: &MeshEvent| match event {
        MeshEvent::Record { record, .. } => Some(record.clone()),
        MeshEvent::Up { .. } | MeshEvent::Sent { .. } | MeshEvent::Down { .. } => None,
    };
    events.iter().filter_map(record).collect()
}
