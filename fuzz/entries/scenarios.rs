//! What the fuzz target of scenarios does with its bytes, and what must hold for any bytes.
//!
//! The fuzz target calls this function, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/lab/tests/corpus.rs`).

use plimsoll_lab::scenario;
use std::path::Path;

/// A text that is a scenario has something to run; otherwise each of its mistakes is one line that names the file. Says
/// which it was.
pub fn scenario(bytes: &[u8]) -> bool {
    match scenario::parse(&String::from_utf8_lossy(bytes), Path::new("fuzz.toml"), &[]) {
        Ok(scenario) => {
            assert!(!scenario.variants.is_empty() && scenario.seeds > 0);
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.lines().all(|line| line.starts_with("fuzz.toml:")), "{text}");
            false
        }
    }
}
