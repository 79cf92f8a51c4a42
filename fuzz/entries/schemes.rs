//! What the fuzz target of class schemes does with its bytes, and what must hold for any bytes.
//!
//! The fuzz target calls this function, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/settings/tests/scheme_corpus.rs`).

use plimsoll_core::class::PRIORITIES;
use plimsoll_settings::scheme;
use std::path::Path;

/// A text that is a scheme has classes, each within bounds; otherwise each of its mistakes is one line that names a
/// file. Says which it was. What it includes by path is looked for in a folder that does not exist.
pub fn class_scheme(bytes: &[u8]) -> bool {
    match scheme::parse(&String::from_utf8_lossy(bytes), Path::new("no-such-folder/fuzz.toml")) {
        Ok(named) => {
            assert!(named.scheme.entries().next().is_some());
            for entry in named.scheme.entries() {
                assert!(entry.priority < PRIORITIES && entry.occupancy_max > 0.0 && entry.occupancy_max <= 1.0);
            }
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.lines().all(|line| line.contains(".toml")), "{text}");
            false
        }
    }
}
