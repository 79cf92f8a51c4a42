//! What is said on the control socket of caches.

use plimsoll_engine::status::CacheStatus;
use serde::{Deserialize, Serialize};

/// What changes of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheChange {
    /// The new policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The new scheme: its name, or the absolute path of a `.toml` file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<String>,
    /// Whether writes are answered only when they are durable: as `semantics` with `strict` or `write-cache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// When writes are answered: `write-cache`, `strict` or `write-through`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semantics: Option<String>,
}

/// A volume's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// The volume.
    pub volume: String,
    /// Its device, the slow one.
    pub device: String,
    /// The cache.
    pub cache: CacheStatus,
}
