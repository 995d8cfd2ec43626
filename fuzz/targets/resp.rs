//! Replies of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure::fuzzing::resp(data));
