//! Chunks and states: every byte once, in order, under one checksum; nothing copied that need not be.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "a test may fail"
)]

use bytes::Bytes;
use proptest::prelude::*;
use rehome::Rope;
use rehome::chunk::{Assembly, AssemblyError, ChunkError, ChunkPlan, Progress};
use rehome::state::{Captured, StateReader, StateWriter};
use std::io::{Read, Write};

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

proptest! {
    #[test]
    fn a_stream_comes_through_chunks_as_it_was(total in 1_usize..20_000, limit in 1_usize..3_000, piece in 1_usize..2_000) {
        let stream = bytes(total);
        let plan = ChunkPlan::new(total as u64, limit, false).unwrap();
        prop_assert!((1..=4096).contains(&plan.count()));
        let rope: Rope = stream.chunks(piece).map(|piece| stream.slice_ref(piece)).collect();
        let chunks = plan.cut(rope).unwrap();
        prop_assert_eq!(chunks.len(), plan.count() as usize);
        let mut assembly = Assembly::new(plan.total(), plan.count(), crc32c::crc32c(&stream)).unwrap();
        let mut all = Rope::new();
        for (ordinal, chunk) in chunks {
            prop_assert!(chunk.len() <= plan.size() && !chunk.is_empty());
            prop_assert!(!assembly.is_complete());
            match assembly.push(ordinal, chunk).unwrap() {
                Progress::More(chunk) => {
                    all.append(chunk);
                    prop_assert!(!assembly.is_complete());
                }
                Progress::Complete(chunk) => all.append(chunk),
            }
        }
        prop_assert!(assembly.is_complete());
        prop_assert_eq!(assembly.received(), total as u64);
        prop_assert!(all.pieces().all(|piece| stream.as_ptr_range().contains(&piece.as_ptr())));
        prop_assert_eq!(all.to_bytes(), stream);
    }

    #[test]
    fn a_state_is_read_as_it_was_written(parts in prop::collection::vec((0_usize..90_000, any::<bool>()), 0..7), step in 1_usize..70_000) {
        let mut writer = StateWriter::new();
        let mut all = Vec::new();
        for (len, copy) in parts {
            let part = bytes(len);
            all.extend_from_slice(&part);
            if copy {
                writer.write_all(&part).unwrap();
            } else {
                writer.push(part);
            }
            prop_assert_eq!(writer.len(), all.len());
        }
        let Captured { rope, crc } = writer.finish();
        prop_assert_eq!(crc, crc32c::crc32c(&all));
        let mut reader = StateReader::new(rope.clone());
        let mut back = Vec::new();
        let mut part = vec![0; step];
        loop {
            let count = reader.read(&mut part).unwrap();
            if count == 0 {
                break;
            }
            back.extend_from_slice(&part[..count]);
            prop_assert_eq!(reader.remaining(), all.len() - back.len());
        }
        prop_assert_eq!(&back, &all);
        let mut reader = StateReader::new(rope);
        let mut pieces = Vec::new();
        while let Some(piece) = reader.chunk() {
            pieces.extend_from_slice(&piece);
        }
        prop_assert_eq!(&pieces, &all);
    }
}

#[test]
fn a_negotiated_size_stands_and_another_gives_way() {
    let plan = ChunkPlan::new(4096 * 10, 10, true).unwrap();
    assert_eq!((plan.count(), plan.size()), (4096, 10));
    let (total, limit) = (4096 * 10 + 1, 10);
    assert_eq!(ChunkPlan::new(total, limit, true), Err(ChunkError::TooMany { total, limit }));
    let plan = ChunkPlan::new(total, limit, false).unwrap();
    assert_eq!((plan.count(), plan.size()), (3724, 11));
    let plan = ChunkPlan::new(5, 1 << 40, true).unwrap();
    assert_eq!((plan.count(), plan.total()), (1, 5));
    assert_eq!(ChunkPlan::new(0, 10, true), Err(ChunkError::Empty));
    assert_eq!(ChunkPlan::new(1, 0, true), Err(ChunkError::ZeroLimit));
    // 4,096 chunks of less than 4 GiB are the most that there can be.
    let most = 4096 * u64::from(u32::MAX);
    assert_eq!(ChunkPlan::new(most, 1, false).unwrap().count(), 4096);
    assert_eq!(ChunkPlan::new(most + 1, 1, false), Err(ChunkError::TooLong { total: most + 1 }));
    assert_eq!(ChunkPlan::new(u64::MAX, 1, false), Err(ChunkError::TooLong { total: u64::MAX }));
    let wrong = ChunkPlan::new(5, 2, true).unwrap().cut(bytes(6).into()).unwrap_err();
    assert_eq!(wrong, ChunkError::Length { planned: 5, actual: 6 });
}

#[test]
fn an_assembly_takes_only_what_was_announced() {
    let stream = bytes(10);
    let (total, count, expected) = (10, 2, crc32c::crc32c(&stream));
    let part = |range: std::ops::Range<usize>| Rope::from(stream.slice(range));
    let start = || Assembly::new(total, count, expected).unwrap();

    let mut assembly = start();
    assert_eq!(assembly.push(1, part(0..5)), Err(AssemblyError::Ordinal { expected: 0, ordinal: 1, count }));
    assert_eq!(assembly.push(0, part(0..5)), Ok(Progress::More(part(0..5))));
    assert_eq!(assembly.push(0, part(0..5)), Err(AssemblyError::Ordinal { expected: 1, ordinal: 0, count }));
    assert_eq!(assembly.push(1, part(5..9)), Err(AssemblyError::Incomplete { received: 9, total }));
    assert_eq!(assembly.push(1, bytes(6).into()), Err(AssemblyError::Overlong { total }));
    let actual = crc32c::crc32c(&[&stream[..5], &[0; 5]].concat());
    assert_eq!(assembly.push(1, Rope::from(vec![0; 5])), Err(AssemblyError::Mismatch { expected, actual }));
    assert!(!assembly.is_complete());
    // What was refused left no trace.
    assert_eq!(assembly.push(1, part(5..10)), Ok(Progress::Complete(part(5..10))));
    assert_eq!(assembly.push(2, Rope::new()), Err(AssemblyError::Ordinal { expected: 2, ordinal: 2, count }));

    // All bytes before the last chunk: the last one must come, and is empty.
    let mut early = start();
    assert!(matches!(early.push(0, part(0..10)), Ok(Progress::More(_))));
    assert!(!early.is_complete());

    for (total, count) in [(0, 1), (1, 0), (1, 4097)] {
        assert_eq!(Assembly::new(total, count, 0), Err(AssemblyError::Announcement { total, count }));
    }
}

#[test]
fn large_slices_of_a_state_are_kept_and_small_writes_are_collected() {
    let large = bytes(100_000);
    let mut writer = StateWriter::new();
    writer.push(large.clone());
    for _ in 0..200_000 {
        writer.write(b"x");
    }
    writer.push(bytes(3));
    let state = writer.finish().rope;
    let sizes: Vec<usize> = state.pieces().map(Bytes::len).collect();
    assert_eq!(sizes, [100_000, 65_536, 65_536, 65_536, 200_003 - 3 * 65_536]);
    assert_eq!(state.pieces().next().unwrap().as_ptr(), large.as_ptr());
    assert!(StateWriter::new().is_empty());
    assert_eq!(StateWriter::new().finish(), Captured { rope: Rope::new(), crc: 0 });
}
