//! URLs of stores.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure::fuzzing::url(data));
