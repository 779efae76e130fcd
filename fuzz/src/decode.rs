//! Bytes from outside into every decoder. The first byte chooses the decoder. What decodes must encode to the same
//! bytes again, or, where a form is not canonical, decode to the same value again; nothing may panic.

use rehome::Rope;
use rehome::fence::{CoordinatorFence, NodeFence, ObjectIdentity, OwnerPair, PeerFence, RelocationIdentity};
use rehome::id::{
    AttemptGeneration, LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OwnerGeneration, OwnerId,
    RelocationId, RoutingId, StoreVersion, Text8,
};
use rehome::link::{Class, Conn, Hello, LINK_CAPABILITY, LinkSettings, Mesh, MeshEvent, SendId};
use rehome::link::{V13_CAPABILITY, V14_CAPABILITY};
use rehome::state::StateWriter;
use rehome::store::record::{AuthorityLayout, AuthorityRecord, CapacityRecord, DescriptorRecord};
use rehome::store::record::{LeaseRecord, OwnerRecord};
use rehome::time::Instant;
use rehome::wire::{
    Data, DecodeError, Frames, FrozenRecord, Record, StreamContents, StreamDecoder, authority_key, decode,
    decode_frame, encode, encode_frozen, encode_stream, frozen_crc, parse_authority_key,
};
use std::sync::LazyLock;

/// How many decoders the first byte chooses from.
pub const DECODERS: u8 = 8;

/// Feeds `data` to the decoder that its first byte names, modulo [`DECODERS`].
///
/// # Panics
/// At a fault.
pub fn run(data: &[u8]) {
    let Some((selector, data)) = data.split_first() else { return };
    match selector % DECODERS {
        0 => link_bytes(data),
        1 => link_records(data),
        2 => one_frame(data),
        3 => two_frames(data),
        4 => frozen(data),
        5 => stream(data),
        6 => store_records(data),
        _ => keys(data),
    }
}

/// Two meshes with a connection that is up, as it is on the side of the first.
static UP: LazyLock<(Mesh, Conn)> = LazyLock::new(|| {
    let (mut a, mut b) = (mesh(b"b"), mesh(b"a"));
    let (on_a, on_b) = (a.connect(Instant::ZERO, None), b.accept(Instant::ZERO));
    while a.wants_write(on_a) || b.wants_write(on_b) {
        carry(&mut a, on_a, &mut b, on_b);
        carry(&mut b, on_b, &mut a, on_a);
    }
    assert!(matches!(a.poll_event(), Some(MeshEvent::Up { .. })));
    (a, on_a)
});

fn mesh(name: &[u8]) -> Mesh {
    let hello = Hello {
        peer: peer(name),
        application_version: 1,
        capabilities: [V13_CAPABILITY, V14_CAPABILITY, LINK_CAPABILITY].map(|name| Text8::new(name).unwrap()).into(),
        chunk_limit: 64 << 10,
        mesh: Text8::new("mesh").unwrap(),
    };
    Mesh::new(hello, LinkSettings::default()).unwrap()
}

fn peer(name: &[u8]) -> PeerFence {
    PeerFence {
        node: NodeFence { rid: RoutingId::new(name.to_vec()).unwrap(), generation: NodeGeneration::FIRST },
        owner: OwnerPair { owner: OwnerId::new("owner").unwrap(), lease: LeaseGeneration::FIRST },
    }
}

fn carry(from: &mut Mesh, conn: Conn, to: &mut Mesh, far: Conn) {
    while from.wants_write(conn) {
        let mut slices = Vec::new();
        from.transmit(conn, &mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        drop(slices);
        from.transmitted(Instant::ZERO, conn, bytes.len()).unwrap();
        to.receive(Instant::ZERO, far, bytes.into()).unwrap();
    }
}

/// The first byte is where the rest is cut.
fn link_bytes(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let (mut whole, conn) = UP.clone();
    let (mut cut_up, _) = UP.clone();
    whole.receive(Instant::ZERO, conn, data.to_vec().into()).unwrap();
    for piece in data.chunks(usize::from(*cut).max(1)) {
        cut_up.receive(Instant::ZERO, conn, piece.to_vec().into()).unwrap();
    }
    let (events, of_pieces) = (events(&mut whole), events(&mut cut_up));
    assert_eq!(events, of_pieces, "the cuts of a stream changed what was read");
    for event in events {
        match event {
            MeshEvent::Record { record, .. } => send_on(&record),
            MeshEvent::Up { .. } | MeshEvent::Sent { .. } | MeshEvent::Down { .. } => {}
        }
    }
    // It must end the connection by itself, in time.
    whole.tick(Instant::from_millis(60_000));
    whole.closed(Instant::from_millis(60_000), conn);
    while whole.poll_event().is_some() {}
}

fn events(mesh: &mut Mesh) -> Vec<MeshEvent> {
    std::iter::from_fn(|| mesh.poll_event()).collect()
}

/// A record that was accepted can be sent on, and arrives as it was.
fn send_on(record: &Record) {
    let (mut mesh, conn) = UP.clone();
    if mesh.send(conn, SendId(1), Class::Small, record).is_err() {
        return;
    }
    let (mut far, _) = UP.clone();
    carry(&mut mesh, conn, &mut far, conn);
    let arrived = events(&mut far);
    assert!(matches!(arrived.first(), Some(MeshEvent::Record { record: arrived, .. }) if arrived == record));
}

/// Bodies of link records, each behind a kind and a length byte; the head with its checksum is put before them, which
/// the engine would hardly ever guess.
fn link_records(data: &[u8]) {
    let mut bytes = vec![data.len().to_le_bytes()[0] | 1];
    let mut rest = data;
    while let [kind, len, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = tail;
        let length = (body.len() as u32).saturating_add(5).to_be_bytes();
        let mut covered = StateWriter::new();
        covered.write(&length);
        covered.write(&[*kind]);
        covered.write(body);
        bytes.extend_from_slice(&length);
        bytes.push(*kind);
        bytes.extend_from_slice(&covered.finish().crc.to_be_bytes());
        bytes.extend_from_slice(body);
    }
    link_bytes(&bytes);
}

fn rope(data: &[u8]) -> Rope {
    Rope::from(data.to_vec())
}

fn one_frame(data: &[u8]) {
    let decoded = decode_frame(data.to_vec().into());
    assert_eq!(decoded, decode(Frames::from(rope(data))));
    let bytewise: Rope = data.iter().map(|byte| vec![*byte].into()).collect();
    assert_eq!(decoded, decode(Frames::from(bytewise)), "the pieces of a frame changed what was read");
    if let Some(record) = within(decoded, data.len()) {
        let frames = encode(&record).unwrap();
        assert_eq!(frames.len(), 1);
        assert!(frames.iter().all(|frame| frame.to_bytes() == data), "another form of {record:?}");
    }
}

/// The value, or nothing; an error points into the bytes.
fn within<T>(decoded: Result<T, DecodeError>, len: usize) -> Option<T> {
    match decoded {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.offset <= len, "{error} is outside the {len} bytes");
            None
        }
    }
}

/// The first two bytes are the length of the first frame.
fn two_frames(data: &[u8]) {
    let [high, low, data @ ..] = data else { return };
    let (first, second) = data.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(data.len()));
    let frames: Frames = [rope(first), rope(second)].into_iter().collect();
    if let Ok(record) = decode(frames.clone()) {
        assert_eq!(encode(&record).unwrap(), frames, "another form of {record:?}");
    }
}

/// What stands before the message in a record of the boundary batch.
static DATA_HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let placeholder = vec![0xEE];
    let record = Record::Data(Data {
        identity: RelocationIdentity {
            relocation: RelocationId::new(9).unwrap(),
            attempt: AttemptGeneration::FIRST,
            coordinator: CoordinatorFence {
                owner: peer(b"a").owner,
                node: peer(b"a").node,
                version: StoreVersion::new("1").unwrap(),
            },
        },
        object: ObjectIdentity::Actor {
            id: ObjectId::new("object").unwrap(),
            generation: ObjectGeneration::FIRST,
            owner_generation: OwnerGeneration::FIRST,
        },
        record: FrozenRecord::Opaque { kind: 0xEE, bytes: placeholder.into() },
    });
    let frames = encode(&record).unwrap();
    let mut head: Vec<u8> = frames.iter().flat_map(|frame| frame.to_bytes()).collect();
    assert_eq!(head.pop(), Some(0xEE));
    head
});

fn frozen(data: &[u8]) {
    let frame = [DATA_HEAD.as_slice(), data].concat();
    let Some(record) = within(decode_frame(frame.into()), DATA_HEAD.len() + data.len()) else { return };
    let Record::Data(Data { record, .. }) = record else { panic!("the head is that of another record") };
    assert_eq!(encode_frozen(&record).unwrap().to_bytes(), data, "another form of {record:?}");
    let mut writer = StateWriter::new();
    writer.write(data);
    assert_eq!(frozen_crc(0, &record).unwrap(), writer.finish().crc);
    assert_eq!(data.first(), Some(&record.kind()));
}

/// The first byte is where the rest is cut.
fn stream(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let whole = read_stream(std::iter::once(data));
    let cut_up = read_stream(data.chunks(usize::from(*cut).max(1)));
    match (whole, cut_up) {
        (Ok(contents), Ok(of_pieces)) => {
            assert_eq!(contents, of_pieces, "the cuts of a stream changed what was read");
            let (rope, crc) = encode_stream(&contents).unwrap();
            assert_eq!(rope.to_bytes(), data, "another form of {contents:?}");
            let mut writer = StateWriter::new();
            writer.write(data);
            assert_eq!(crc, writer.finish().crc);
        }
        (Err(error), Err(_)) => assert!(error.offset <= data.len(), "{error} is outside the {} bytes", data.len()),
        (whole, of_pieces) => panic!("whole: {whole:?}, in pieces: {of_pieces:?}"),
    }
}

fn read_stream<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<StreamContents, DecodeError> {
    let mut decoder = StreamDecoder::new();
    for piece in pieces {
        decoder.feed(piece.to_vec().into())?;
    }
    decoder.finish()
}

/// JSON may come in another form, so only the value must survive.
fn store_records(data: &[u8]) {
    if let Ok(record) = AuthorityLayout::decode(data) {
        assert_eq!(AuthorityLayout::decode(&record.encode()).as_ref(), Ok(&record));
    }
    if let Ok(record) = AuthorityRecord::decode(data) {
        assert_eq!(AuthorityRecord::decode(&record.encode()).as_ref(), Ok(&record));
    }
    if let Ok(record) = OwnerRecord::decode(data) {
        assert_eq!(OwnerRecord::decode(&record.encode()), Ok(record));
    }
    if let Ok(record) = LeaseRecord::decode(data) {
        assert_eq!(LeaseRecord::decode(&record.encode()).as_ref(), Ok(&record));
    }
    if let Ok(record) = DescriptorRecord::decode(data) {
        assert_eq!(DescriptorRecord::decode(&record.encode()).as_ref(), Ok(&record));
    }
    if let Ok(record) = CapacityRecord::decode(data) {
        assert_eq!(CapacityRecord::decode(&record.encode()), Ok(record));
    }
}

fn keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = parse_authority_key(text) {
        assert_eq!(authority_key(&key), text, "another form of {key:?}");
    }
}
