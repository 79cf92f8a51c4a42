//! The text that describes a handed-over listener's tenant: `listenerMetadata` of an OCI profile.
//!
//! A text of `KEY=VALUE` with commas between: `pool=web/batch,name=backup,limit=10MB/s,weight=50`. Everything may be
//! left out; a container that says nothing gets a session in the volume's own account, under the container's name.
//! `bit=N` alone is said by commands of tenants that have joined already.
//!
//! The author of the container's configuration wrote it, so it is bounded, and an unknown key or value is refused.

use plimsoll_core::account::{WEIGHT_MAX, WEIGHT_MIN};
use plimsoll_core::units::deadline;
use plimsoll_core::{Allocation, Priority, Rate};
use std::str::FromStr;
use thiserror::Error;

/// Bytes of the text.
pub const METADATA_BYTES_MAX: usize = 1024;
/// Bytes of a session's name.
const NAME_BYTES_MAX: usize = 128;
/// The name of a session of a nameless container.
const NAMELESS: &str = "container";
const BIT: &str = "bit=";
/// What may be said.
const KEYS: &str = "pool, name, reserve, limit, weight, priority, read_deadline, write_deadline, fsync_deadline";

/// The tenant of a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Metadata {
    /// A tenant's that has joined: its bit.
    Joined(u32),
    /// A container's that is to join.
    Container(ContainerWish),
}

/// What a container asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ContainerWish {
    /// The path of the pool that its session opens in.
    pub(crate) pool: Option<String>,
    /// Its session's name.
    pub(crate) name: Option<String>,
    /// Its promises.
    pub(crate) allocation: Allocation,
}

/// Why a text is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// More than is read.
    #[error("listenerMetadata has {got} bytes, allowed are {METADATA_BYTES_MAX}")]
    Size {
        /// How many it has.
        got: usize,
    },
    /// Not what is expected between two commas.
    #[error("listenerMetadata has {got:?}, allowed is KEY=VALUE with commas between")]
    Form {
        /// What stands there.
        got: String,
    },
    /// Not a key.
    #[error("listenerMetadata has the key {got:?}, allowed are {KEYS}")]
    Key {
        /// What stands there.
        got: String,
    },
    /// The same key again.
    #[error("listenerMetadata has the key {got:?} twice")]
    Twice {
        /// The key.
        got: String,
    },
    /// Not a value of that key.
    #[error("listenerMetadata has {key}={got:?}, allowed is {allowed}")]
    Value {
        /// The key.
        key: String,
        /// What it is set to.
        got: String,
        /// What it can be set to.
        allowed: String,
    },
}

/// Whether a container may send this text: it is valid, and names no tenant that has joined already.
///
/// # Errors
/// What is not understood, and what is allowed.
pub fn check(text: &str) -> Result<(), MetadataError> {
    match text.parse()? {
        Metadata::Container(_) => Ok(()),
        Metadata::Joined(_) => Err(MetadataError::Key { got: BIT.trim_end_matches('=').to_owned() }),
    }
}

/// As a launched command says it.
pub(crate) fn of_joined(bit: u32) -> String {
    format!("{BIT}{bit}")
}

impl FromStr for Metadata {
    type Err = MetadataError;

    fn from_str(text: &str) -> Result<Metadata, MetadataError> {
        if text.len() > METADATA_BYTES_MAX {
            return Err(MetadataError::Size { got: text.len() });
        }
        if let Some(bit) = text.strip_prefix(BIT).and_then(|bit| bit.parse().ok()) {
            return Ok(Metadata::Joined(bit));
        }
        let (mut wish, mut seen) = (ContainerWish::default(), Vec::new());
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let form = || MetadataError::Form { got: part.to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(form)?;
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(MetadataError::Twice { got: key.to_owned() });
            }
            seen.push(key);
            wish.set(key, value)?;
        }
        Ok(Metadata::Container(wish))
    }
}

impl ContainerWish {
    fn set(&mut self, key: &str, value: &str) -> Result<(), MetadataError> {
        let refusal = |allowed: &str| MetadataError::Value {
            key: key.to_owned(),
            got: value.to_owned(),
            allowed: allowed.to_owned(),
        };
        let rate = || Rate::from_str(value).map_err(|error| refusal(error.expected()));
        let time = || deadline(value).map(Some).map_err(|error| refusal(error.expected()));
        let Allocation { reserve, limit, weight, priority, deadlines } = &mut self.allocation;
        match key {
            "pool" if !value.is_empty() => self.pool = Some(value.to_owned()),
            "pool" => return Err(refusal("the path of a pool")),
            "name" if is_name(value) => self.name = Some(value.to_owned()),
            "name" => return Err(refusal("1 to 128 of the letters A to Z and a to z, digits, '.', '_' and '-'")),
            "reserve" => *reserve = rate()?,
            "limit" => match rate()? {
                above_zero if above_zero.runs_per_second(1.0) > 0.0 => *limit = Some(above_zero),
                _ => return Err(refusal("a rate above zero")),
            },
            "weight" => match value.parse() {
                Ok(number @ WEIGHT_MIN..=WEIGHT_MAX) => *weight = number,
                _ => return Err(refusal(&format!("{WEIGHT_MIN} to {WEIGHT_MAX}"))),
            },
            "priority" if value == "idle" => *priority = Priority::Idle,
            "priority" => match value.parse() {
                Ok(level @ 0..=7) => *priority = Priority::Level(level),
                _ => return Err(refusal("0 to 7 or idle")),
            },
            "read_deadline" => deadlines.read = time()?,
            "write_deadline" => deadlines.write = time()?,
            "fsync_deadline" => deadlines.fsync = time()?,
            _ => return Err(MetadataError::Key { got: key.to_owned() }),
        }
        Ok(())
    }

    /// The session's name: the requested one, or the container's with replacements for forbidden letters.
    pub(crate) fn session_name(&self, container: &str) -> String {
        let replaced = |letter: char| if is_letter(letter) { letter } else { '-' };
        match &self.name {
            Some(name) => name.clone(),
            None if container.is_empty() => NAMELESS.to_owned(),
            None => container.chars().map(replaced).take(NAME_BYTES_MAX).collect(),
        }
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests;
