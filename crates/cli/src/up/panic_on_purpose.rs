//! A failure on purpose, in daemons that were built for debugging. With `PLIMSOLL_TEST_PANIC=VOLUME` the engine of that
//! volume panics at the first byte that is written to it. A released daemon has none of this.

use plimsoll_core::Operation;
use plimsoll_engine::{BlockTag, BlockTags, EngineError, EngineHandle};

struct Panics;

impl BlockTags for Panics {
    fn tag(&self, operation: Operation, _: u64) -> BlockTag {
        assert!(!operation.is_write(), "on purpose");
        BlockTag::default()
    }
}

pub(super) fn plant(volume: &str, engine: &EngineHandle) -> Result<(), EngineError> {
    match std::env::var_os("PLIMSOLL_TEST_PANIC") {
        Some(chosen) if chosen == *volume => engine.set_tags(volume, Some(Box::new(Panics))),
        _ => Ok(()),
    }
}
