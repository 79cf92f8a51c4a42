//! Requests to the cache at work, its operations for the host, and their outcomes.

use crate::units::Pool;
use plimsoll_core::Class;
use thiserror::Error;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semantics {
    /// When the device has it; it is durable after the next flush. What a disk with a volatile write cache does.
    #[default]
    WriteCache,
    /// When it is durable.
    Strict,
    /// When the store has it: nothing is dirty. It is durable after the next flush.
    WriteThrough,
}

impl Semantics {
    /// Whether a write is acknowledged before it is durable.
    pub fn is_loose(self) -> bool {
        self != Semantics::Strict
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes of a block.
    Read,
    /// Bytes of a block.
    Write,
    /// The client does not need the whole block any more.
    Trim,
    /// Makes all acknowledged writes durable; the block has no effect.
    Flush,
}

/// A request for one block, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host's name for it.
    pub token: u64,
    /// What is asked for.
    pub kind: RequestKind,
    /// The block. Blocks behind the last whole one of the store go past the cache.
    pub block: u64,
    /// The first byte of it.
    pub from: u16,
    /// The byte behind the last, at most 4096.
    pub to: u16,
    /// What the block is.
    pub class: Class,
    /// The pool that it belongs to.
    pub pool: Pool,
}

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The cache's device failed.
    #[error("the cache's device failed")]
    Device,
    /// The store failed.
    #[error("the store failed")]
    Store,
    /// The cache's version of the block is damaged, and the store has only an older one.
    #[error("what the cache had is damaged")]
    Damaged,
}

/// Which of the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The fast one.
    Cache,
    /// The slow one.
    Store,
}

/// What to do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Into the operation's buffer.
    Read,
    /// From the operation's buffer.
    Write,
    /// Makes every operation durable that was reported as done before this one was handed out.
    Flush,
    /// The bytes are not needed any more.
    Trim,
}

/// Something that the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// For [`CacheStore::completed`](super::CacheStore::completed).
    pub id: u32,
    /// Where.
    pub target: Target,
    /// What.
    pub action: Action,
    /// The first byte there.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u32,
}

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The request with this token, for a block of this class.
    Request(u64, Class),
    /// The syncer, which copies a block of this class.
    Syncer(Class),
    /// The cache: its journal, its map, its flushes.
    Own,
}
