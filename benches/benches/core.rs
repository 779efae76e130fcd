//! The core alone: codec, chunks, and a whole relocation through two nodes and a store in memory.

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use rehome::chunk::{Assembly, ChunkPlan};
use rehome::fence::{
    CoordinatorFence, NodeFence, ObjectIdentity, OwnerPair, PeerFence, RelocationIdentity, RouteFence,
};
use rehome::id::{
    AttemptGeneration, LeaseGeneration, NodeGeneration, ObjectGeneration, ObjectId, OperationId, OwnerGeneration,
    OwnerId, RelocationId, ReplyRoute, RoutingId, StoreVersion, Text8,
};
use rehome::wire::{
    Delivery, Destination, LinkRecord, Message, Ordered, Payload, Record, Sender, SourceIdentity, State, decode, encode,
};
use rehome_benches::Pair;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn must<T, E: std::fmt::Debug>(made: Result<T, E>) -> T {
    made.unwrap_or_else(|error| panic!("{error:?}"))
}

fn delivery() -> Record {
    let node = NodeFence { rid: must(RoutingId::new("node-a")), generation: NodeGeneration::FIRST };
    let owner = OwnerPair { owner: must(OwnerId::new("owner-a")), lease: LeaseGeneration::FIRST };
    let fence = RouteFence {
        object: must(ObjectId::new("player-1234")),
        generation: ObjectGeneration::FIRST,
        node: node.clone(),
        owner_generation: OwnerGeneration::FIRST,
        lease: LeaseGeneration::FIRST,
    };
    let message = Message {
        source: SourceIdentity { node: PeerFence { node, owner }, sender: Sender::Node },
        metadata: None,
        operation: OperationId(12),
        reply: Some(ReplyRoute(3)),
        to: Destination::Actor(fence),
        payload: Payload {
            name: must(Text8::new("ChatRequest")),
            content_type: must(Text8::new("application/json")),
            bytes: Bytes::from_static(&[b'x'; 64]),
        },
    };
    let delivery = Delivery { message, deadline: None, hops: 0 };
    Record::Link(LinkRecord::Ordered { sequence: 9, body: Ordered::Deliver(Box::new(delivery)) })
}

/// A chunk of the largest size that a node takes by default.
fn chunk() -> Record {
    let node = NodeFence { rid: must(RoutingId::new("node-a")), generation: NodeGeneration::FIRST };
    let owner = OwnerPair { owner: must(OwnerId::new("owner-a")), lease: LeaseGeneration::FIRST };
    Record::State(State {
        identity: RelocationIdentity {
            relocation: must(RelocationId::new(9)),
            attempt: AttemptGeneration::FIRST,
            coordinator: CoordinatorFence { owner, node, version: must(StoreVersion::new("17")) },
        },
        object: ObjectIdentity::Actor {
            id: must(ObjectId::new("player-1234")),
            generation: ObjectGeneration::FIRST,
            owner_generation: OwnerGeneration::FIRST,
        },
        ordinal: 3,
        data: Bytes::from(vec![7u8; 256 << 10]).into(),
    })
}

fn codec(c: &mut Criterion) {
    let record = delivery();
    let frames = must(encode(&record));
    let chunk = chunk();
    let chunk_frames = must(encode(&chunk));
    let mut group = c.benchmark_group("codec");
    group.bench_function("encode a delivery of 64 bytes", |b| b.iter(|| encode(black_box(&record))));
    group.bench_function("decode a delivery of 64 bytes", |b| {
        b.iter_batched(|| frames.clone(), decode, BatchSize::SmallInput);
    });
    // Payloads are slices, so a chunk costs what its head costs.
    group.bench_function("encode a chunk of 256 KiB", |b| b.iter(|| encode(black_box(&chunk))));
    group.bench_function("decode a chunk of 256 KiB", |b| {
        b.iter_batched(|| chunk_frames.clone(), decode, BatchSize::SmallInput);
    });
    group.finish();
}

fn chunks(c: &mut Criterion) {
    let state = Bytes::from(vec![7u8; 64 << 20]);
    let crc = crc(&state);
    let mut group = c.benchmark_group("chunks");
    group.throughput(Throughput::Bytes(64 << 20)).sample_size(10);
    group.bench_function("cut and verify 64 MiB", |b| {
        b.iter(|| {
            let plan = must(ChunkPlan::new(64 << 20, 256 << 10, true));
            let mut assembly = must(Assembly::new(64 << 20, plan.count(), crc));
            for (ordinal, chunk) in must(plan.cut(state.clone().into())) {
                black_box(must(assembly.push(ordinal, chunk)));
            }
        });
    });
    group.finish();
}

fn crc(bytes: &Bytes) -> u32 {
    rehome::state::Captured::from(bytes.clone()).crc
}

fn relocation(c: &mut Criterion) {
    let mut pair = Pair::new(1024);
    pair.relocate();
    let (events, allocations, started) = (pair.events, ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
    const MOVES: u64 = 2000;
    for _ in 0..MOVES {
        pair.relocate();
    }
    let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let events = pair.events - events;
    println!(
        "one relocation of 1 KiB: {} events, {} ns an event, {} allocations",
        events / MOVES,
        nanos / events,
        (ALLOCATIONS.load(Ordering::Relaxed) - allocations) / MOVES
    );
    let mut group = c.benchmark_group("relocation");
    group.bench_function("1 KiB through two nodes and a store in memory", |b| b.iter(|| pair.relocate()));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    codec(&mut criterion);
    chunks(&mut criterion);
    relocation(&mut criterion);
    criterion.final_summary();
}
