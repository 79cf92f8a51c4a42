//! The scenarios that the binary has in it: all of the repository's folder `scenarios`.

use std::path::PathBuf;

/// Name and text of each, by name.
static SCENARIOS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// The names, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name)
}

/// The scenario called `name`.
pub fn find(name: &str) -> Option<(&'static str, &'static str)> {
    SCENARIOS.iter().find(|(known, _)| *known == name).copied()
}

/// Where the scenario called `name` is in the repository; messages name it so.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("scenarios/{name}.toml"))
}
