//! A hold that another process printed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure::fuzzing::handle(data));
