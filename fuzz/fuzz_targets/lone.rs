//! See [`rehome_fuzz::lone`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rehome_fuzz::lone::run(data));
