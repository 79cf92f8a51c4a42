//! What the kernel says of itself in its first request, and what this end speaks.

/// What the kernel says of itself in its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Major version; this server's is 7.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// What it can do, one bit each.
    pub flags: u32,
}

/// The protocol that we speak: 7.38, as in Linux 6.2 and later.
pub const PROTOCOL_MAJOR: u32 = 7;
/// Newest minor version that we know.
pub const PROTOCOL_MINOR_NEWEST: u32 = 38;
/// Oldest minor version that will do: 7.28 (Linux 4.20) brought `max_pages`, without which 128 KiB is the largest I/O.
pub const PROTOCOL_MINOR_OLDEST: u32 = 28;

const FLAG_ASYNC_READ: u32 = 1 << 0;
const FLAG_BIG_WRITES: u32 = 1 << 5;
const FLAG_ASYNC_DIO: u32 = 1 << 15;
const FLAG_MAX_PAGES: u32 = 1 << 22;
/// What we accept if the kernel offers it.
pub(super) const FLAGS_WANTED: u32 = FLAG_ASYNC_READ | FLAG_BIG_WRITES | FLAG_ASYNC_DIO | FLAG_MAX_PAGES;
/// What we cannot do without.
pub(super) const FLAGS_NEEDED: u32 = FLAG_BIG_WRITES | FLAG_ASYNC_DIO | FLAG_MAX_PAGES;
