//! The fuzzers' corpora once more, without a fuzzer: what was found stays found.

use rehome_fuzz::arbitrary::{Arbitrary as _, Unstructured};
use rehome_fuzz::node::{Schedule, run_schedule};

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/").to_owned() + target;
    let entries = std::fs::read_dir(&folder).expect("a corpus").flatten();
    let inputs: Vec<Vec<u8>> = entries.map(|entry| std::fs::read(entry.path()).expect("an input")).collect();
    assert!(inputs.len() >= 3, "the corpus {folder} is nearly empty");
    inputs
}

/// Every input, and every thirteenth cut of it.
fn replay(inputs: &[Vec<u8>], body: fn(&[u8])) {
    for input in inputs {
        body(input);
        for length in (0..input.len()).step_by(13) {
            body(&input[..length]);
        }
    }
}

#[test]
fn decoders() {
    let inputs = corpus("decode");
    for decoder in 0..rehome_fuzz::decode::DECODERS {
        let reaches = |input: &Vec<u8>| input.first().is_some_and(|first| first % 8 == decoder);
        assert!(inputs.iter().any(reaches), "no input for decoder {decoder}");
    }
    replay(&inputs, rehome_fuzz::decode::run);
}

#[test]
fn a_lone_node() {
    replay(&corpus("lone"), rehome_fuzz::lone::run);
}

#[test]
fn schedules_of_two_nodes() {
    let inputs = corpus("node");
    replay(&inputs, rehome_fuzz::node::run);
    let moved = |input: &Vec<u8>| {
        let schedule = Schedule::arbitrary(&mut Unstructured::new(input)).expect("any bytes are a schedule");
        run_schedule(&schedule).moved()
    };
    let moved: u64 = inputs.iter().map(moved).sum();
    assert!(moved >= 8, "only {moved} moves: these schedules try nothing");
}
