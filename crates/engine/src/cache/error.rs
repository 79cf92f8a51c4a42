//! Why a cache cannot be made, or is not used.

use super::CacheNote;
use crate::content::Content;
use crate::notes::DamagedNote;
use plimsoll_cache::store::{FormatError, OpenError};
use plimsoll_core::ByteCount;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a cache cannot be made, or is not used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The system refused something.
    #[error("cache {cache}: cannot {action} {}: {source}", path.display())]
    System {
        /// The cache.
        cache: String,
        /// What was tried.
        action: &'static str,
        /// Its device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process or cache has the device.
    #[error("cache {cache}: {} is {by}", path.display())]
    Locked {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// Which process has it, in words.
        by: String,
    },
    /// Something else than Plimsoll has it.
    #[error("cache {cache}: {} is in use: {by}", path.display())]
    InUse {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// What uses it.
        by: String,
    },
    /// Something else is on it.
    #[error("cache {cache}: {} holds {content}; --replace gives it up", path.display())]
    Content {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// What it holds.
        content: Content,
    },
    /// No cache can have this size.
    #[error("cache {cache}: size: got {}, allowed {allowed}", ByteCount(*.bytes))]
    Size {
        /// The cache.
        cache: String,
        /// The size.
        bytes: u64,
        /// The sizes that there are.
        allowed: String,
    },
    /// Its file would be longer than its file system has room for.
    #[error(
        "cache {cache}: size: got {}, allowed what {} has room for: the file can grow by {}",
        ByteCount(*.wanted_bytes), path.display(), ByteCount(*.room_bytes)
    )]
    NoRoom {
        /// The cache.
        cache: String,
        /// Its file.
        path: PathBuf,
        /// Bytes that are free.
        room_bytes: u64,
        /// Bytes that the cache should have.
        wanted_bytes: u64,
    },
    /// The device is too small for any cache.
    #[error("cache {cache}: {} has {}, a cache needs 128 KiB or more", path.display(), ByteCount(*.bytes))]
    TooSmall {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// Bytes that there are.
        bytes: u64,
    },
    /// There is less than it should have.
    #[error(
        "cache {cache}: {} has {}, which is less than the cache's {}", path.display(),
        ByteCount(*.has_bytes).beside(ByteCount(*.wanted_bytes)), ByteCount(*.wanted_bytes).beside(ByteCount(*.has_bytes))
    )]
    TooLarge {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// Bytes that there are.
        has_bytes: u64,
        /// Bytes that it should have.
        wanted_bytes: u64,
    },
    /// There is one already.
    #[error("cache {cache}: there is a cache on {} already; --replace gives up what only that one has", path.display())]
    Exists {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
    },
    /// The volume has another one.
    #[error(
        "cache {cache}: the newest data of volume {volume} may be in its cache {}, on {}, which was not detached",
        note.cache, note.path.display()
    )]
    Noted {
        /// The cache.
        cache: String,
        /// The volume.
        volume: String,
        /// Which cache the volume has.
        note: Box<CacheNote>,
    },
    /// It was given up.
    #[error(
        "cache {cache}: the cache on {} was given up: its data may be older than that of volume {volume}",
        path.display()
    )]
    GivenUp {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// The volume.
        volume: String,
    },
    /// A copy from before.
    #[error(
        "cache {cache}: what is on {} is an older copy of the cache of volume {volume}: it has started {starts} times \
         and written {generation} maps, expected {noted_starts} and {noted_generation} or more", path.display()
    )]
    Older {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// The volume.
        volume: String,
        /// How often the copy began to work.
        starts: u64,
        /// Which map it has.
        generation: u64,
        /// How often the cache itself has.
        noted_starts: u64,
        /// Which map that has.
        noted_generation: u64,
    },
    /// Its slow device may be another one, which has got its name.
    #[error(
        "cache {cache}: the slow device of volume {volume} is known by its path only, and holds {is}, expected {was}: \
         it may be another device"
    )]
    OtherContent {
        /// The cache.
        cache: String,
        /// The volume.
        volume: String,
        /// What it held.
        was: String,
        /// What it holds.
        is: String,
    },
    /// It is not empty, and it is noted nowhere that the volume has it.
    #[error(
        "cache {cache}: {} has {} of volume {volume}, {} of that not yet on the slow device, and no note says that \
         the volume has not been written without it since", path.display(), ByteCount(u64::from(*.units) << 12), ByteCount(u64::from(*.dirty_units) << 12)
    )]
    Unnoted {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// The volume.
        volume: String,
        /// Units of 4 KiB that hold a block.
        units: u32,
        /// Those that the store lacks.
        dirty_units: u32,
    },
    /// No whole note says which cache the volume has.
    #[error(
        "cache {cache}: {damage}, and no whole note says which cache volume {volume} has: {}{}",
        path.display(), content_words(*content)
    )]
    NoteDamaged {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// The volume.
        volume: String,
        /// What is damaged.
        damage: Box<DamagedNote>,
        /// Units of 4 KiB that hold a block, and the dirty ones among them; `None` if the device was not read.
        content: Option<(u32, u32)>,
        /// Whether the readable part of the note names another cache than the device has.
        names_another: bool,
    },
    /// Nothing on the volume's side says that the cache of another store is its.
    #[error("cache {cache}: nothing shows that the cache on {} belongs to volume {volume}: {why}", path.display())]
    NoEvidence {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// The volume.
        volume: String,
        /// What is missing.
        why: String,
    },
    /// It cannot be made.
    #[error("cache {cache}: {source}")]
    Format {
        /// The cache.
        cache: String,
        /// Why.
        source: FormatError,
    },
    /// The kernel takes no writes to the block device.
    #[error("cache {cache}: {} is a read-only block device, allowed is one that takes writes", path.display())]
    ReadOnlyDevice {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
    },
    /// It is not there, or not to be used.
    #[error("cache {cache} on {}: {source}", path.display())]
    Open {
        /// The cache.
        cache: String,
        /// Its device.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// A cache of it would be in front of nothing that may be written.
    #[error("volume {volume} is read-only and cannot have a cache")]
    ReadOnly {
        /// The volume.
        volume: String,
    },
    /// Its fast device would hold what the slow one may not.
    #[error("volume {volume} is encrypted and cannot have a cache: a cache is not encrypted")]
    Encrypted {
        /// The volume.
        volume: String,
    },
}

fn content_words(content: Option<(u32, u32)>) -> String {
    let bytes = |units: u32| ByteCount(u64::from(units) << 12);
    content.map_or(" may have its newest data".to_owned(), |(units, dirty_units)| {
        format!(" has {} of it, {} of that not yet on the slow device", bytes(units), bytes(dirty_units))
    })
}
