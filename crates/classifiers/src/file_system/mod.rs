//! What a file system keeps at fixed places: the classes of its blocks, by their numbers alone.
//!
//! ```text
//!   superblock -> group descriptors -> bitmaps, inode tables     [`ext4`]     -> ranges of bytes, each with a class
//!              -> the journal's inode -> its extents
//!   superblock -> heads of allocation groups, internal log       [`xfs`]
//! ```
//!
//! **The rule.** It is read from the volume's bytes, without a mount and without the file system's own tools. It is for
//! volumes with a file system that runs elsewhere: in a guest, behind NBD or iSCSI. What is made while the file system
//! is used (directories, indirect blocks, files) is at no fixed place and stays unclassified.
//!
//! **The complication.** A user of the volume may have written anything there. Each number is checked before it is
//! used, the bytes read are bounded by [`BYTES_READ_MAX`], and ranges by [`RANGES_MAX`]. A file system that is not
//! understood is an error of one line, and no classes. A layout that lies says wrong classes of its own volume's
//! blocks, as its user may do in other ways.

pub mod ext4;
pub mod xfs;

use plimsoll_core::Class;
use std::io;
use thiserror::Error;

/// Bytes that are read of a volume at the most: the descriptors of 64 TiB with 4 KiB blocks are 32 MiB.
pub const BYTES_READ_MAX: u64 = 64 << 20;
/// Most ranges of a layout: five in each of 131,072 groups (16 TiB) if none of them touch, 24 bytes each.
pub const RANGES_MAX: usize = 5 << 17;
/// Bytes that a class is asked for at a time.
const UNIT_BYTES: u64 = 4096;

/// The classes of the schemes `ext4` and `xfs` that have fixed places.
pub(crate) const SUPERBLOCK: Class = Class::new(1).expect("below 32");
pub(crate) const GROUP_DESCRIPTOR: Class = Class::new(2).expect("below 32");
pub(crate) const BITMAP: Class = Class::new(3).expect("below 32");
pub(crate) const INODE_TABLE: Class = Class::new(4).expect("below 32");

/// The bytes of a volume.
pub trait Bytes {
    /// Fills `buffer` with what is at `offset`.
    ///
    /// # Errors
    /// They cannot be read; beyond the end is an error too.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Bytes for &[u8] {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|at| self.get(at..)?.get(..buffer.len()));
        found.map(|found| buffer.copy_from_slice(found)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Bytes for std::fs::File {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, offset)
    }
}

/// Why a volume has no known layout.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// It cannot be read.
    #[error("{what} at byte {offset} cannot be read: {source}")]
    Read {
        /// What is there.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A number cannot be.
    #[error("{what} is {got}, allowed is {allowed}")]
    Number {
        /// Which.
        what: &'static str,
        /// What it is.
        got: u64,
        /// What it may be.
        allowed: String,
    },
    /// More would have to be read, or remembered, than is allowed.
    #[error("{what}: more than {max} are not looked at")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much is.
        max: u64,
    },
}

/// Which file system is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext2, ext3 or ext4.
    Ext4,
    /// XFS.
    Xfs,
}

/// Bytes `start` to `end` (exclusive) have a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
    /// The class.
    pub class: Class,
}

/// The fixed places of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which file system it is.
    pub file_system: FileSystem,
    /// Sorted, without overlaps.
    ranges: Vec<Range>,
}

impl Layout {
    /// Reads the layout of a volume of `size_bytes`; `None` if it has no file system that is known.
    ///
    /// # Errors
    /// It has one, but what it says of itself cannot be.
    pub fn read(bytes: &mut dyn Bytes, size_bytes: u64) -> Result<Option<Layout>, LayoutError> {
        let mut reading = Reading { bytes, size_bytes, left_bytes: BYTES_READ_MAX, ranges: Vec::new() };
        if size_bytes < FILE_SYSTEM_BYTES_MIN {
            return Ok(None);
        }
        let file_system = match () {
            () if ext4::read(&mut reading)? => FileSystem::Ext4,
            () if xfs::read(&mut reading)? => FileSystem::Xfs,
            () => return Ok(None),
        };
        Ok(Some(Layout { file_system, ranges: without_overlaps(reading.ranges) }))
    }

    /// The class of the 4 KiB at `offset`, a multiple of that; unclassified where nothing has a fixed place. Where they
    /// hold several things, the first of them counts. O(log ranges).
    pub fn class(&self, offset: u64) -> Class {
        let next = self.ranges.partition_point(|range| range.end <= offset);
        let found = self.ranges.get(next).filter(|range| range.start < offset.saturating_add(UNIT_BYTES));
        found.map_or(Class::UNCLASSIFIED, |range| range.class)
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }
}

/// No file system is smaller.
const FILE_SYSTEM_BYTES_MIN: u64 = 64 << 10;

/// A volume that is being read.
pub(crate) struct Reading<'volume> {
    bytes: &'volume mut dyn Bytes,
    size_bytes: u64,
    left_bytes: u64,
    ranges: Vec<Range>,
}

impl Reading<'_> {
    /// The `length` bytes at `offset`.
    pub(crate) fn read(&mut self, what: &'static str, offset: u64, length: u64) -> Result<Vec<u8>, LayoutError> {
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(LayoutError::Read { what, offset, source });
        }
        let Some(left_bytes) = self.left_bytes.checked_sub(length) else {
            return Err(LayoutError::TooMuch { what: "bytes of the layout", max: BYTES_READ_MAX });
        };
        self.left_bytes = left_bytes;
        let mut buffer = vec![0; length as usize];
        self.bytes.read_at(offset, &mut buffer).map_err(|source| LayoutError::Read { what, offset, source })?;
        Ok(buffer)
    }

    /// These blocks have a class.
    pub(crate) fn add(
        &mut self,
        what: &'static str,
        block: u64,
        blocks: u64,
        block_bytes: u64,
        class: Class,
    ) -> Result<(), LayoutError> {
        let start = block.checked_mul(block_bytes);
        let end = block.checked_add(blocks).and_then(|end| end.checked_mul(block_bytes));
        let (Some(start), Some(end)) = (start, end.filter(|&end| end <= self.size_bytes)) else {
            let allowed = format!("a block below {}", self.size_bytes / block_bytes);
            return Err(LayoutError::Number { what, got: block, allowed });
        };
        let is_full = self.ranges.len() == RANGES_MAX;
        match self.ranges.last_mut() {
            _ if start == end => {}
            Some(last) if last.end == start && last.class == class => last.end = end,
            _ if is_full => {
                return Err(LayoutError::TooMuch { what: "ranges of a layout", max: RANGES_MAX as u64 });
            }
            _ => self.ranges.push(Range { start, end, class }),
        }
        Ok(())
    }
}

/// Checks a number that a volume says of itself.
pub(crate) fn check(
    what: &'static str,
    got: u64,
    allowed: impl std::ops::RangeBounds<u64> + std::fmt::Debug,
) -> Result<u64, LayoutError> {
    if allowed.contains(&got) {
        Ok(got)
    } else {
        Err(LayoutError::Number { what, got, allowed: format!("{allowed:?}") })
    }
}

/// Checks a size that a volume says of itself: a power of two.
pub(crate) fn check_size(
    what: &'static str,
    got: u64,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<u64, LayoutError> {
    let is_allowed = got.is_power_of_two() && allowed.contains(&got);
    let allowed = format!("a power of two in {allowed:?}");
    if is_allowed { Ok(got) } else { Err(LayoutError::Number { what, got, allowed }) }
}

/// The same in order; where two overlap, the one that begins first keeps what it has.
fn without_overlaps(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut kept: Vec<Range> = Vec::with_capacity(ranges.len());
    for mut range in ranges {
        if let Some(last) = kept.last_mut() {
            range.start = range.start.max(last.end);
            if last.end == range.start && last.class == range.class {
                last.end = last.end.max(range.end);
                continue;
            }
        }
        if range.start < range.end {
            kept.push(range);
        }
    }
    kept
}
