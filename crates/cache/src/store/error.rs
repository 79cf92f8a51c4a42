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

fn unreadable_words(report: &Report) -> String {
    match report.unreadable_blocks {
        0 => String::new(),
        blocks => format!(" ({blocks} blocks cannot be read)"),
    }
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
    #[error("the cache belongs to another store, or to this one when it had {store_blocks} blocks")]
    OtherStore {
        /// Blocks of the store that it is of.
        store_blocks: u64,
    },
    /// Some of what it knew is lost, and the operator has not accepted that.
    #[error(
        "{} pages of the cache's map and {} blocks of its journal are damaged{}, and {} other units cannot be believed any more, {} of \
         them dirty: data that was only in the cache may be lost", report.lost_pages, report.lost_journal_blocks,
        unreadable_words(report), report.given_up_units, report.given_up_dirty_units
    )]
    Damaged {
        /// What there is and what would be given up; its units are not counted.
        report: Box<Report>,
    },
    /// The pages of its map are whole, and not those that the superblock speaks of: some are older, and it is unknown
    /// which.
    #[error("the pages of the cache's map are whole, but some of them are not those of which its superblock speaks")]
    OtherMap,
    /// The policy cannot be given to it.
    #[error("{0}")]
    Config(#[from] ConfigError),
}
