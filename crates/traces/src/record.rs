//! What every trace format is translated into: one request that once reached a device.

use plimsoll_core::{Class, Operation, Span, Time};

/// One request of a trace. What a format does not say is left at "unknown".
///
/// The zero of [`at`](Self::at) is the trace's own: 1970 where the format has a calendar, the start of the recording
/// elsewhere ([`Format::clock`](crate::Format::clock)). A replay takes `record.at.since(first.at)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When the request was issued, on the trace's clock.
    pub at: Time,
    /// What was asked.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes; 0 for a flush. `offset + length` never exceeds `u64::MAX`.
    pub length: u64,
    /// The device or volume, numbered as in the trace; 0 where a format knows only one.
    pub device: u32,
    /// The process that issued it, where the trace names one.
    pub process: Option<u32>,
    /// From issue to completion, where the trace says it.
    pub response: Option<Span>,
    /// What the bytes mean; [`Class::UNCLASSIFIED`] in every format but `hp`.
    pub class: Class,
}

impl TraceRecord {
    /// A request to device 0 of which nothing else is known.
    pub const fn new(at: Time, operation: Operation, offset: u64, length: u64) -> TraceRecord {
        TraceRecord {
            at,
            operation,
            offset,
            length,
            device: 0,
            process: None,
            response: None,
            class: Class::UNCLASSIFIED,
        }
    }

    /// The byte after its last one.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}
