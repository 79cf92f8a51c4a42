//! The first bytes of a volume with any file system.

use plimsoll_classifiers::file_system::{Bytes, Layout};
use plimsoll_core::Class;
use std::io;

const VOLUME_BYTES: u64 = 1 << 30;

/// A volume with some bytes, and zeroes behind them.
struct Volume<'bytes>(&'bytes [u8]);

impl Bytes for Volume<'_> {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert!(offset + buffer.len() as u64 <= VOLUME_BYTES, "nothing beyond the end is asked for");
        let there = self.0.get(offset as usize..).unwrap_or_default();
        let copied = there.len().min(buffer.len());
        buffer[..copied].copy_from_slice(&there[..copied]);
        buffer[copied..].fill(0);
        Ok(())
    }
}

/// Whether it is a file system; its ranges are in order and inside.
pub fn file_system_layout(bytes: &[u8]) -> bool {
    let Ok(Some(layout)) = Layout::read(&mut Volume(bytes), VOLUME_BYTES) else { return false };
    let ranges = layout.ranges();
    assert!(ranges.iter().all(|range| range.start < range.end && range.end <= VOLUME_BYTES));
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
    if let Some(range) = ranges.first() {
        assert_eq!(layout.class(range.start - range.start % 4096), range.class);
        assert_ne!(range.class, Class::UNCLASSIFIED);
    }
    true
}
