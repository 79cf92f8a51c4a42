//! What the fuzz target of `plimsoll load`'s arguments does with its bytes, and what must hold for any bytes.
//!
//! The fuzz target calls this function, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/lab/tests/corpus.rs`).

use plimsoll_lab::load::{Mix, TargetName};
use std::net::{IpAddr, SocketAddr};

/// The first line is a mix, the second a target. What is understood is printed as it was; otherwise the error is one
/// line. Says whether both were.
pub fn load_arguments(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (mix, target) = text.split_once('\n').unwrap_or((&text, ""));
    let is_mix = match mix.parse::<Mix>() {
        Ok(parsed) => is_printed_as(&parsed.to_string(), mix),
        Err(error) => is_told(&error),
    };
    // A host's name would be looked up, outside of this process.
    if target.strip_prefix("nbd://").is_some_and(|rest| !is_number(rest.split('/').next().unwrap_or(rest))) {
        return false;
    }
    let is_target = match target.parse::<TargetName>() {
        Ok(parsed) => is_printed_as(&parsed.to_string(), target),
        Err(error) => is_told(&error),
    };
    is_mix && is_target
}

fn is_number(authority: &str) -> bool {
    authority.parse::<SocketAddr>().is_ok() || authority.parse::<IpAddr>().is_ok()
}

fn is_printed_as(printed: &str, given: &str) -> bool {
    assert_eq!(printed, given, "what was understood is printed as it was given");
    true
}

/// An error says something in one line; it is none of what was understood.
fn is_told(error: &str) -> bool {
    assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    false
}
