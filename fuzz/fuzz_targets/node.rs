//! See [`rehome_fuzz::node`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rehome_fuzz::node::run(data));
