//! The drive's read buffer: what it has read and the stream that it reads on while nothing else is to be done.
//!
//! After a read the head does not stop: it reads on into the buffer, up to a limit, until another command makes it
//! move. So a host that asks for the next piece a moment later does not lose a revolution. What a stream had read when
//! it was stopped stays as a segment; a new stream replaces the oldest one.

use super::geometry::Geometry;
use plimsoll_core::{Span, Time};
use std::ops::Range;

/// A stream under way: from `anchor`, which passes the head at `anchored_at`, up to `limit`.
#[derive(Clone, Debug)]
pub struct Stream {
    /// First sector in the buffer.
    pub begin: u64,
    /// A sector with a known time.
    pub anchor: u64,
    /// Its stream time.
    pub anchor_ns: u64,
    /// When it passes the head.
    pub anchored_at: Time,
    /// The sector before which the stream stops.
    pub limit: u64,
}

impl Stream {
    /// The first sector that has not been read by `at`. O(log zones).
    pub fn position(&self, geometry: &Geometry, at: Time) -> u64 {
        let passed = geometry.sectors_passed(self.anchor_ns + at.since(self.anchored_at).as_nanos());
        passed.clamp(self.anchor, self.limit.max(self.anchor))
    }

    /// When everything before `end`, at most the limit, is in the buffer; what lies before the anchor has long been
    /// there. O(log zones).
    pub fn reaches(&self, geometry: &Geometry, end: u64) -> Time {
        if end <= self.anchor {
            return Time::ZERO;
        }
        self.anchored_at + Span::from_nanos(geometry.end_ns(end) - self.anchor_ns)
    }

    /// Whether a read that starts at `start` can be served from it without moving the arm.
    pub fn continues(&self, start: u64) -> bool {
        self.begin <= start && start <= self.limit
    }
}

/// The buffer: one stream under way and what earlier ones left.
#[derive(Clone, Debug)]
pub struct ReadBuffer {
    /// The stream under way.
    pub stream: Option<Stream>,
    segments: Vec<Range<u64>>,
    segment_next: usize,
    /// The most that one stream may keep.
    pub segment_sectors: u64,
}

impl ReadBuffer {
    /// A buffer for `segments` pieces of at most `segment_sectors` each.
    pub fn new(segments: usize, segment_sectors: u64) -> ReadBuffer {
        ReadBuffer { stream: None, segments: vec![0..0; segments], segment_next: 0, segment_sectors }
    }

    /// Whether earlier streams left all of `[start, end)`. O(segments).
    pub fn holds(&self, start: u64, end: u64) -> bool {
        self.segments.iter().any(|segment| segment.start <= start && end <= segment.end)
    }

    /// Ends the stream at `at` and keeps the last of what it read. The sector that it came to, if there was a stream.
    pub fn stop(&mut self, geometry: &Geometry, at: Time) -> Option<u64> {
        let stream = self.stream.take()?;
        let end = stream.position(geometry, at);
        let begin = stream.begin.max(end.saturating_sub(self.segment_sectors));
        if !self.segments.is_empty() && begin < end {
            self.segments[self.segment_next] = begin..end;
            self.segment_next = (self.segment_next + 1) % self.segments.len();
        }
        Some(end)
    }

    /// Forgets what `[start, end)` overwrites. O(segments).
    pub fn invalidate(&mut self, start: u64, end: u64) {
        for segment in &mut self.segments {
            if start < segment.end && segment.start < end {
                *segment = 0..0;
            }
        }
    }
}
