//! See [`rehome_fuzz::decode`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rehome_fuzz::decode::run(data));
