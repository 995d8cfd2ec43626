//! Names of locks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure::fuzzing::name(data));
