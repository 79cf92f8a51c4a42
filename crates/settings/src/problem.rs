//! What is wrong with a configuration, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Characters of a value that a message repeats at the most.
const GOT_CHARACTERS_MAX: usize = 80;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Line in the file, from 1.
    pub line: usize,
    /// The dotted key, as `pool.web.reserve`.
    pub key: String,
    /// What was found.
    pub got: String,
    /// What would have been right.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: got {}, allowed {}", self.line, self.key, self.got, self.allowed)
    }
}

/// Everything that is wrong with one file, in the order of its lines.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}", .problems.iter().map(|problem| format!("{}:{problem}", file.display())).collect::<Vec<_>>().join("\n"))]
pub struct ConfigurationError {
    /// The file.
    pub file: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

/// Place of a section and its keys in the file, so that a later check that finds a fault can name the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The section's dotted key, as `pool.web`; empty for the file itself.
    pub path: String,
    /// The line of its header.
    pub line: usize,
    pub(crate) keys: BTreeMap<String, usize>,
    /// Keys with a wrong value, or that are missing though they must be there.
    pub(crate) wrong: BTreeSet<String>,
}

impl Place {
    /// Whether the file sets `key` in this section.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether what `key` says was understood, or its absence is. What depends on a key that was not is left alone, so
    /// that one mistake makes one message.
    pub fn is_understood(&self, key: &str) -> bool {
        !self.wrong.contains(key)
    }

    /// Takes note that what `key` says is not known, for a reason that is reported elsewhere.
    pub fn not_understood(&mut self, key: &str) {
        self.wrong.insert(key.to_owned());
    }

    /// The line of `key`, or of the section's header if the file does not set it.
    pub fn line_of(&self, key: &str) -> usize {
        self.keys.get(key).copied().unwrap_or(self.line)
    }

    /// The full dotted name of `key`; the section's own for the empty key.
    pub fn dotted(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => quoted_key(key),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{}", self.path, quoted_key(key)),
        }
    }

    /// A problem with `key` of this section, or with the section itself if `key` is empty.
    pub fn problem(&self, key: &str, got: impl fmt::Display, allowed: impl fmt::Display) -> Problem {
        Problem { line: self.line_of(key), key: self.dotted(key), got: got.to_string(), allowed: allowed.to_string() }
    }
}

/// `key` as TOML would have it: bare where that is possible.
fn quoted_key(key: &str) -> String {
    let is_bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare { key.to_owned() } else { quoted(key) }
}

/// `text` in quotation marks, on one line and not longer than a message should be.
pub fn quoted(text: &str) -> String {
    if text.chars().count() <= GOT_CHARACTERS_MAX {
        return format!("{text:?}");
    }
    format!("{:?}...", text.chars().take(GOT_CHARACTERS_MAX).collect::<String>())
}
