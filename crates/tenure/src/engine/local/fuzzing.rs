//! Entry point for the fuzz target of the local engine: stored records and messages.

use super::storage::record;
use super::waiting::message;

/// A record that can be read is read the same after it is written again; so is a message.
pub(crate) fn record(data: &[u8]) {
    if let Ok(lock) = record::decode_lock(data) {
        let written = record::encode_lock(&lock);
        let again = record::decode_lock(&written).expect("a lock that was written can be read");
        assert_eq!(record::encode_lock(&again), written);
    }
    if let Ok(meta) = record::Meta::decode(data) {
        assert_eq!(record::Meta::decode(&meta.encode()), Ok(meta));
    }
    if let Ok(forced) = record::decode_forced(data) {
        let written = record::encode_forced(&forced);
        let again = record::decode_forced(&written).expect("a record that was written can be read");
        assert_eq!(record::encode_forced(&again), written);
    }
    let _ = record::forced_at(data);
    if let Ok(wakeup) = message::decode(data) {
        assert_eq!(message::decode(&message::encode(&wakeup)), Ok(wakeup));
    }
}
