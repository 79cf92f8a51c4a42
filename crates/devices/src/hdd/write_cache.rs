//! The drive's volatile write cache: what the host was told is written and the platters do not have yet.
//!
//! Neighbouring writes are merged into extents, kept in order of their place. They leave the cache as the arm sweeps
//! inwards and begin again at the rim (one-way elevator), a bounded piece at a time.

use super::geometry::SECTOR_BYTES;
use std::ops::Range;

/// The most that goes to the platters in one piece: a read that comes meanwhile waits for that long.
const DESTAGE_SECTORS_MAX: u64 = (1 << 20) / SECTOR_BYTES;
/// The most extents; beyond, a write waits as if the cache were full. Bounds the time for inserting one.
const EXTENTS_MAX: usize = 1024;

/// Dirty extents: sorted, disjoint, never touching.
#[derive(Clone, Debug)]
pub struct WriteCache {
    extents: Vec<Range<u64>>,
    sectors_dirty: u64,
    sectors_max: u64,
}

impl WriteCache {
    /// A cache of `bytes`; of 0 it takes nothing.
    pub fn new(bytes: u64) -> WriteCache {
        let extents = Vec::with_capacity(if bytes == 0 { 0 } else { EXTENTS_MAX + 1 });
        WriteCache { extents, sectors_dirty: 0, sectors_max: bytes / SECTOR_BYTES }
    }

    /// Whether everything is on the platters.
    pub fn is_clean(&self) -> bool {
        self.extents.is_empty()
    }

    /// Whether a write of so many sectors could ever be taken.
    pub fn can_hold(&self, sectors: u64) -> bool {
        sectors <= self.sectors_max
    }

    /// Whether so many sectors fit now, `sectors_leaving` being on their way to the platters.
    pub fn has_room(&self, sectors: u64, sectors_leaving: u64) -> bool {
        self.sectors_dirty + sectors_leaving + sectors <= self.sectors_max && self.extents.len() < EXTENTS_MAX
    }

    /// Whether all of `[start, end)` is dirty, so that a read needs no platter. O(log extents).
    pub fn holds(&self, start: u64, end: u64) -> bool {
        let after = self.extents.partition_point(|extent| extent.start <= start);
        after > 0 && end <= self.extents[after - 1].end
    }

    /// Makes `[start, end)` dirty, merging what touches it. O(extents) at worst, moving 16 bytes for each.
    pub fn insert(&mut self, start: u64, end: u64) {
        let first = self.extents.partition_point(|extent| extent.end < start);
        let last = self.extents.partition_point(|extent| extent.start <= end);
        if first == last {
            self.extents.insert(first, start..end);
            self.sectors_dirty += end - start;
            return;
        }
        let merged = self.extents[first].start.min(start)..self.extents[last - 1].end.max(end);
        let before: u64 = self.extents[first..last].iter().map(|extent| extent.end - extent.start).sum();
        self.sectors_dirty += merged.end - merged.start - before;
        self.extents[first] = merged;
        self.extents.drain(first + 1..last);
    }

    /// Takes the next piece for an arm that stands at `head_sector`. O(extents).
    pub fn take_next(&mut self, head_sector: u64) -> Option<Range<u64>> {
        let ahead = self.extents.partition_point(|extent| extent.start < head_sector);
        let position = if ahead < self.extents.len() { ahead } else { 0 };
        let extent = self.extents.get_mut(position)?;
        let piece = extent.start..extent.end.min(extent.start + DESTAGE_SECTORS_MAX);
        extent.start = piece.end;
        if extent.start == extent.end {
            self.extents.remove(position);
        }
        self.sectors_dirty -= piece.end - piece.start;
        Some(piece)
    }

    /// Forgets `[start, end)`, which goes to the platters by itself. O(extents).
    pub fn remove(&mut self, start: u64, end: u64) {
        let first = self.extents.partition_point(|extent| extent.end <= start);
        let last = self.extents.partition_point(|extent| extent.start < end);
        if first >= last {
            return;
        }
        let (left, right) = (self.extents[first].start..start, end..self.extents[last - 1].end);
        let before: u64 = self.extents[first..last].iter().map(|extent| extent.end - extent.start).sum();
        let kept = [left, right].into_iter().filter(|piece| piece.start < piece.end);
        let after: u64 = kept.clone().map(|piece| piece.end - piece.start).sum();
        self.extents.splice(first..last, kept);
        self.sectors_dirty -= before - after;
    }
}
