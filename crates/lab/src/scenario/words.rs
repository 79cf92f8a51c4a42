//! Words and bounds that several sections share.

use plimsoll_core::ByteCount;

/// What the file systems need for themselves.
const VOLUME_BYTES_MIN: u64 = 256 << 20;
const VOLUME_BYTES_UNIT: u64 = 1 << 20;
pub(super) const VOLUME: &str = "a multiple of 1MiB, at least 256MiB";
pub(super) const SPAN: &str = "a time such as \"30s\"";
pub(super) const NAME: &str = "the name of an account";

/// Whether a file system can be on so many bytes.
pub(super) fn is_volume(size: &ByteCount) -> bool {
    size.0 >= VOLUME_BYTES_MIN && size.0.is_multiple_of(VOLUME_BYTES_UNIT)
}
