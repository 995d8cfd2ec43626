//! Records and messages of the local engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure::fuzzing::record(data));
