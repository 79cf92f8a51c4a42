//! What can be wrong with a device.

use super::bytes::BLOCK_BYTES;
use super::report::Report;
use super::superblock::VERSION;
use crate::config::ConfigError;
use crate::units::BLOCKS_MAX;
use plimsoll_core::ByteCount;
use std::io;
use thiserror::Error;

/// The device failed.
#[derive(Debug, Error)]
#[error("cannot {action} the cache's device: {source}")]
pub struct DeviceError {
    /// What was tried.
    pub action: &'static str,
    /// What the system said.
    pub source: io::Error,
}

impl DeviceError {
    pub(super) fn read(source: io::Error) -> DeviceError {
        DeviceError { action: "read", source }
    }

    pub(super) fn write(source: io::Error) -> DeviceError {
        DeviceError { action: "write", source }
    }

    pub(super) fn flush(source: io::Error) -> DeviceError {
        DeviceError { action: "flush", source }
    }
}

/// Why no cache can be made.
#[derive(Debug, Error)]
pub enum FormatError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no room.
    #[error("the device has {blocks} blocks of {BLOCK_BYTES} bytes, and the cache needs {needs}")]
    TooSmall {
        /// Blocks of the device.
        blocks: u64,
        /// Blocks that the cache needs.
        needs: u64,
    },
    /// The store has more blocks than records and entries can name.
    #[error(
        "the store has {blocks} blocks of {BLOCK_BYTES} bytes, and a cache can be of one with at most {} (less than {})", BLOCKS_MAX - 1,
        ByteCount(BLOCKS_MAX * BLOCK_BYTES as u64)
    )]
    StoreTooLarge {
        /// Blocks of the store.
        blocks: u64,
    },
}

/// A size in blocks, as it is shown beside another one.
fn beside(blocks: u64, others: u64) -> String {
    ByteCount(blocks * BLOCK_BYTES as u64).beside(ByteCount(others * BLOCK_BYTES as u64))
}

/// What is damaged, and the bound of what accepting it would lose.
fn damaged_words(report: &Report) -> String {
    let bytes = |units: u64| ByteCount(units * BLOCK_BYTES as u64);
    let Report { lost_pages, lost_journal_blocks, unreadable_blocks, given_up_units, .. } = *report;
    let given_up_dirty_units = report.given_up_dirty_units;
    let unreadable = match unreadable_blocks {
        0 => String::new(),
        blocks => format!(" ({blocks} blocks cannot be read)"),
    };
    let (lost, unknown) = (report.lost_units_max(), report.unknown_units_max());
    format!(
        "{lost_journal_blocks} blocks of the cache's journal and {lost_pages} pages of its map are damaged{unreadable}; accepting that loses at \
         most {} ({lost} units) that the slow device lacks: {} ({given_up_dirty_units} units) that cannot be believed any more, and at most \
         {unknown} units that the damaged records named; {} clean units are forgotten, too",
        bytes(lost),
        bytes(given_up_dirty_units.into()),
        given_up_units - given_up_dirty_units
    )
}

/// Why a cache cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No cache was made there, or it was given up.
    #[error("there is no cache on the device")]
    NoCache,
    /// Both superblocks are damaged.
    #[error("there was a cache on the device, but neither of its superblocks can be read")]
    NoSuperblock,
    /// Its numbers are not those of a cache.
    #[error("the cache's superblock counts further than any cache can have counted")]
    Spent,
    /// Made by another program.
    #[error("the cache is of version {version}, this program reads version {VERSION}")]
    Version {
        /// The version.
        version: u32,
    },
    /// The superblock speaks of more blocks than there are.
    #[error("the cache has {needs} blocks, but its device has only {blocks}")]
    TooSmall {
        /// Blocks of the device.
        blocks: u64,
        /// Blocks of the cache.
        needs: u64,
    },
    /// The cache belongs to another store.
    #[error("the cache belongs to another store")]
    OtherStore,
    /// The store had another size when the cache was made.
    #[error(
        "the cache is of this store when it had {}, and it has {} now", beside(*.was_blocks, *.is_blocks), beside(*.is_blocks, *.was_blocks)
    )]
    OtherSize {
        /// Blocks that the store had.
        was_blocks: u64,
        /// Blocks that it has.
        is_blocks: u64,
    },
    /// Some of what it knew is lost, and the operator has not accepted that.
    #[error("{}", damaged_words(report))]
    Damaged {
        /// What there is and what would be given up; its units are not counted.
        report: Box<Report>,
    },
    /// The pages of its map are whole, but not those of the superblock: some are older, and it is unknown which.
    #[error("the pages of the cache's map are whole, but some of them are not those of which its superblock speaks")]
    OtherMap,
    /// The policy cannot be given to it.
    #[error("{0}")]
    Config(#[from] ConfigError),
}
