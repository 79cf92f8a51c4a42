//! A volume as a client sees it: its name, its size, its block sizes and its abilities.

use super::limits::{PAYLOAD_BYTES_MAX, STRING_BYTES_MAX};
use std::sync::{Arc, RwLock};
use thiserror::Error;

/// Largest minimum block size, bytes (specification, "Block size constraints").
pub const MINIMUM_BLOCK_BYTES_MAX: u32 = 64 * 1024;
/// Smallest preferred block size, bytes (specification, "Block size constraints").
pub const PREFERRED_BLOCK_BYTES_MIN: u32 = 512;
/// Default of an export's preferred block size, in bytes: a page, and the specification's default.
pub const PREFERRED_BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Bits of the transmission flags (specification, "Transmission flags").
mod bit {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// What an export can do beyond reading and writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Flush is understood.
    pub flush: bool,
    /// A command can ask to be durable before it is answered (FUA).
    pub force_unit_access: bool,
    /// Trim is understood.
    pub trim: bool,
    /// Writing zeroes without sending them is understood.
    pub write_zeroes: bool,
    /// Zeroing can be asked to fail at once where it would be no faster than writing.
    pub fast_zero: bool,
    /// Cache (read ahead) is understood.
    pub cache: bool,
    /// A flush on one connection covers what every connection had been answered before.
    pub multi_connection: bool,
    /// The medium turns.
    pub rotational: bool,
}

/// One volume as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name, at most 4096 bytes, without control characters. A client that names none gets the only export there is, or
    /// `""`.
    pub name: String,
    /// For people; at most 4096 bytes.
    pub description: String,
    /// Size, a multiple of `minimum_block_bytes`.
    pub size_bytes: u64,
    /// Whether everything that would change it is refused.
    pub is_read_only: bool,
    /// Smallest piece that can be addressed, and its alignment: a power of two, 1 to 65,536.
    pub minimum_block_bytes: u32,
    /// Smallest piece that is efficient: a power of two, at least 512 and at least the minimum.
    pub preferred_block_bytes: u32,
    /// Largest request: a multiple of the minimum, at least the preferred size, at most 32 MiB.
    pub maximum_block_bytes: u32,
    /// What it can do.
    pub features: Features,
    /// Whether the export is hidden: not listed, and not given to a client that names none. A client that may have it
    /// knows its name.
    pub is_hidden: bool,
}

/// What is wrong with an [`ExportInfo`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExportError {
    /// The name or the description is too long, or contains control characters.
    #[error("the {what} of an export has {got_bytes} bytes, allowed are {STRING_BYTES_MAX} without control characters")]
    BadText {
        /// "name" or "description".
        what: &'static str,
        /// Its length in bytes.
        got_bytes: usize,
    },
    /// The minimum block size is not usable.
    #[error("minimum block size of {got} bytes, allowed are powers of two from 1 to {MINIMUM_BLOCK_BYTES_MAX}")]
    BadMinimum {
        /// Bytes.
        got: u32,
    },
    /// The preferred block size is not usable.
    #[error("preferred block size of {got} bytes, allowed are powers of two from {least}")]
    BadPreferred {
        /// Bytes.
        got: u32,
        /// Bytes at the least.
        least: u32,
    },
    /// The maximum block size is not usable.
    #[error(
        "maximum block size of {got} bytes, allowed are multiples of {minimum} from {least} to {PAYLOAD_BYTES_MAX}"
    )]
    BadMaximum {
        /// Bytes.
        got: u32,
        /// The minimum block size in bytes.
        minimum: u32,
        /// Bytes at the least.
        least: u32,
    },
    /// The end of the export could not be addressed.
    #[error("size of {got} bytes, which is not a multiple of the minimum block size of {minimum} bytes")]
    BadSize {
        /// Bytes.
        got: u64,
        /// The minimum block size in bytes.
        minimum: u32,
    },
    /// Two exports have the same name.
    #[error("there is already an export named {name:?}")]
    NameTaken {
        /// The name.
        name: String,
    },
}

impl ExportInfo {
    /// A plain export: readable and writable in any piece from one byte to 32 MiB.
    pub fn new(name: &str, size_bytes: u64) -> ExportInfo {
        ExportInfo {
            name: name.to_owned(),
            description: String::new(),
            size_bytes,
            is_read_only: false,
            minimum_block_bytes: 1,
            preferred_block_bytes: PREFERRED_BLOCK_BYTES_DEFAULT,
            maximum_block_bytes: PAYLOAD_BYTES_MAX,
            features: Features::default(),
            is_hidden: false,
        }
    }

    /// Checks everything that the specification asks of an export.
    pub fn check(&self) -> Result<(), ExportError> {
        for (what, text) in [("name", &self.name), ("description", &self.description)] {
            if text.len() > STRING_BYTES_MAX || text.chars().any(char::is_control) {
                return Err(ExportError::BadText { what, got_bytes: text.len() });
            }
        }
        let (minimum, preferred, maximum) =
            (self.minimum_block_bytes, self.preferred_block_bytes, self.maximum_block_bytes);
        if !minimum.is_power_of_two() || minimum > MINIMUM_BLOCK_BYTES_MAX {
            return Err(ExportError::BadMinimum { got: minimum });
        }
        let least = minimum.max(PREFERRED_BLOCK_BYTES_MIN);
        if !preferred.is_power_of_two() || preferred < least {
            return Err(ExportError::BadPreferred { got: preferred, least });
        }
        if maximum % minimum != 0 || maximum < preferred || maximum > PAYLOAD_BYTES_MAX {
            return Err(ExportError::BadMaximum { got: maximum, minimum, least: preferred });
        }
        if !self.size_bytes.is_multiple_of(u64::from(minimum)) {
            return Err(ExportError::BadSize { got: self.size_bytes, minimum });
        }
        Ok(())
    }

    /// The 16 transmission flags. Unfragmented reads are offered only where structured replies were agreed on.
    pub fn transmission_flags(&self, structured_replies: bool) -> u16 {
        let features = &self.features;
        [
            (true, bit::HAS_FLAGS),
            (self.is_read_only, bit::READ_ONLY),
            (features.flush, bit::SEND_FLUSH),
            (features.force_unit_access, bit::SEND_FUA),
            (features.rotational, bit::ROTATIONAL),
            (features.trim, bit::SEND_TRIM),
            (features.write_zeroes, bit::SEND_WRITE_ZEROES),
            (structured_replies, bit::SEND_DF),
            (features.multi_connection, bit::CAN_MULTI_CONN),
            (features.cache, bit::SEND_CACHE),
            (features.fast_zero, bit::SEND_FAST_ZERO),
        ]
        .iter()
        .fold(0, |flags, &(is_set, bit)| if is_set { flags | bit } else { flags })
    }

    /// Takes over what a server's 16 transmission flags say: the client's side of [`ExportInfo::transmission_flags`].
    pub fn set_transmission_flags(&mut self, flags: u16) {
        let has = |bit: u16| flags & bit != 0;
        self.is_read_only = has(bit::READ_ONLY);
        self.features = Features {
            flush: has(bit::SEND_FLUSH),
            force_unit_access: has(bit::SEND_FUA),
            trim: has(bit::SEND_TRIM),
            write_zeroes: has(bit::SEND_WRITE_ZEROES),
            fast_zero: has(bit::SEND_FAST_ZERO),
            cache: has(bit::SEND_CACHE),
            multi_connection: has(bit::CAN_MULTI_CONN),
            rotational: has(bit::ROTATIONAL),
        };
    }
}

/// The export for a client's `name`. The empty name, if no export has it, stands for the only export that is not
/// hidden.
pub fn find_export<'list>(exports: &'list [ExportInfo], name: &[u8]) -> Option<&'list ExportInfo> {
    let named = exports.iter().find(|export| export.name.as_bytes() == name);
    let mut shown = exports.iter().filter(|export| !export.is_hidden);
    match (shown.next(), shown.next()) {
        (Some(only), None) if name.is_empty() => Some(only),
        _ => named,
    }
}

/// The list of exports, shared by the code that changes it and the listeners that read it.
///
/// A handshake works on the list as it was when it began; connections that exist are not touched by a change.
#[derive(Clone, Debug, Default)]
pub struct SharedExports {
    list: Arc<RwLock<Arc<[ExportInfo]>>>,
}

impl SharedExports {
    /// An empty list.
    pub fn new() -> SharedExports {
        SharedExports::default()
    }

    /// The list as it is now.
    pub fn snapshot(&self) -> Arc<[ExportInfo]> {
        self.list.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Adds a checked export at the end. O(n); refuses a name that is taken.
    pub fn add(&self, export: ExportInfo) -> Result<(), ExportError> {
        export.check()?;
        let mut list = self.list.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if list.iter().any(|other| other.name == export.name) {
            return Err(ExportError::NameTaken { name: export.name });
        }
        *list = list.iter().cloned().chain([export]).collect();
        Ok(())
    }

    /// Takes an export away; whether there was one of that name. O(n).
    pub fn remove(&self, name: &str) -> bool {
        let mut list = self.list.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = list.len();
        *list = list.iter().filter(|export| export.name != name).cloned().collect();
        list.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_for_an_export_is_checked() {
        let good = ExportInfo::new("a", 1 << 20);
        assert_eq!(good.check(), Ok(()));
        let broken = |change: fn(&mut ExportInfo)| {
            let mut export = good.clone();
            change(&mut export);
            export.check().unwrap_err().to_string()
        };
        for (got, expected) in [
            (
                broken(|export| export.name = "n".repeat(4097)),
                "the name of an export has 4097 bytes, allowed are 4096 without control characters",
            ),
            (
                broken(|export| export.description = "a\0".into()),
                "the description of an export has 2 bytes, allowed are 4096 without control characters",
            ),
            (
                broken(|export| export.minimum_block_bytes = 0),
                "minimum block size of 0 bytes, allowed are powers of two from 1 to 65536",
            ),
            (
                broken(|export| export.minimum_block_bytes = 1 << 17),
                "minimum block size of 131072 bytes, allowed are powers of two from 1 to 65536",
            ),
            (
                broken(|export| export.preferred_block_bytes = 256),
                "preferred block size of 256 bytes, allowed are powers of two from 512",
            ),
            (
                broken(|export| export.maximum_block_bytes = 1 << 26),
                "maximum block size of 67108864 bytes, allowed are multiples of 1 from 4096 to 33554432",
            ),
            (
                broken(|export| (export.minimum_block_bytes, export.size_bytes) = (512, 1000)),
                "size of 1000 bytes, which is not a multiple of the minimum block size of 512 bytes",
            ),
        ] {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn transmission_flags_are_those_of_the_specification() {
        let mut export = ExportInfo::new("a", 0);
        assert_eq!(export.transmission_flags(false), 0x0001);
        assert_eq!(export.transmission_flags(true), 0x0081);
        export.features = Features { flush: true, force_unit_access: true, trim: true, ..Features::default() };
        assert_eq!(export.transmission_flags(false), 0x002d);
        export.set_transmission_flags(0xffff);
        assert_eq!(export.transmission_flags(true), 0x0dff);
    }

    #[test]
    fn the_empty_name_means_the_only_export() {
        let exports = SharedExports::new();
        assert_eq!(find_export(&exports.snapshot(), b""), None);
        exports.add(ExportInfo::new("a", 0)).unwrap();
        assert_eq!(find_export(&exports.snapshot(), b"").unwrap().name, "a");
        exports.add(ExportInfo::new("b", 0)).unwrap();
        assert_eq!(find_export(&exports.snapshot(), b""), None);
        assert_eq!(find_export(&exports.snapshot(), b"b").unwrap().name, "b");
        assert_eq!(exports.add(ExportInfo::new("b", 1)), Err(ExportError::NameTaken { name: "b".into() }));
        assert!(exports.remove("b") && !exports.remove("b"));
        assert_eq!(exports.snapshot().len(), 1);
    }
}
