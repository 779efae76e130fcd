//! The fuzzers' corpora once more, without a fuzzer: what was found stays found.

fn replay(target: &str, body: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/").to_owned() + target;
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus").flatten() {
        let input = std::fs::read(entry.path()).expect("an input");
        body(&input);
        // Every cut of it, too.
        for length in (0..input.len()).step_by(13) {
            body(&input[..length]);
        }
        count += 1;
    }
    assert!(count >= 3, "the corpus {folder} is nearly empty");
}

#[test]
fn decoders() {
    replay("decode", rehome_fuzz::decode);
}

#[test]
fn a_node() {
    replay("node", rehome_fuzz::node);
}
