//! Records of single happenings, for callers that ask for them ([`Options::event_bytes`](crate::Options::event_bytes)).

use crate::shared::{CallEvent, PageEvent, Plain, RequestEvent};
use plimsoll_core::Class;

/// One record. Times are nanoseconds of CLOCK_MONOTONIC, causes masks of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Pages of a file became dirty, or dirty on behalf of one more account.
    Dirtied {
        /// When.
        time_ns: u64,
        /// The file's inode.
        inode: u64,
        /// Number of the first page, of 4 KiB.
        first_page: u64,
        /// Number of pages.
        pages: u32,
        /// The accounts that dirtied them now.
        causes: u64,
        /// The accounts that had dirtied them before; 0: they were clean.
        previous: u64,
    },
    /// Dirty pages left the page cache without being written: truncated or deleted.
    Freed {
        /// When.
        time_ns: u64,
        /// The file's inode.
        inode: u64,
        /// Number of the first page that was dirty, of 4 KiB.
        first_page: u64,
        /// Number of dirty pages.
        pages: u32,
        /// The accounts that had dirtied them.
        causes: u64,
    },
    /// A file is written past the page cache (`O_DIRECT`): no page of it becomes dirty.
    WrittenDirect {
        /// When.
        time_ns: u64,
        /// The file's inode; 0: not known.
        inode: u64,
        /// The account that writes.
        causes: u64,
    },
    /// The device's driver got a request, if those are recorded ([`Options::has_request_events`]).
    ///
    /// [`Options::has_request_events`]: crate::Options::has_request_events
    Issued {
        /// When.
        time_ns: u64,
        /// Names the request until it completes.
        id: u64,
        /// The first sector of 512 bytes, from the start of the device or partition.
        sector: u64,
        /// Its length.
        bytes: u32,
        /// `REQ_OP_*` of the kernel: 0 read, 1 write, 2 flush, 3 discard.
        operation: u8,
        /// The accounts that caused its blocks.
        causes: u64,
        /// The class of its first block.
        class: Class,
        /// Whether a process waits for it, as the kernel says.
        is_sync: bool,
        /// The inode of the file of its first block; 0 for a block of no file.
        inode: u64,
    },
    /// A part of a request, usually all of it, is done.
    Completed {
        /// When.
        time_ns: u64,
        /// Its name.
        id: u64,
        /// The first sector of what is done.
        sector: u64,
        /// What is done of it.
        bytes: u32,
        /// `blk_status_t`: 0 went well.
        status: u8,
    },
    /// A registered thread returned from one of the system calls in [`Options::returns`]. Where no program tells of it:
    /// by that time, the thread was in none of these calls that it had entered.
    ///
    /// [`Options::returns`]: crate::Options::returns
    Returned {
        /// When.
        time_ns: u64,
        /// The thread.
        thread: u32,
    },
}

impl Event {
    /// Reads a record as the programs write it.
    pub(crate) fn parse(mut record: &[u8]) -> Option<Event> {
        let kind = u32::take(&mut { record })?;
        if matches!(kind, 1 | 2 | 6) {
            let PageEvent { time_ns, inode, first_page, pages, causes, previous, .. } = PageEvent::take(&mut record)?;
            return match kind {
                1 => Some(Event::Dirtied { time_ns, inode, first_page, pages, causes, previous }),
                2 => Some(Event::Freed { time_ns, inode, first_page, pages, causes }),
                _ => Some(Event::WrittenDirect { time_ns, inode, causes }),
            };
        }
        if kind == 5 {
            let CallEvent { thread, time_ns, .. } = CallEvent::take(&mut record)?;
            return Some(Event::Returned { time_ns, thread });
        }
        let event = RequestEvent::take(&mut record)?;
        let RequestEvent { time_ns, request: id, sector, bytes, operation, causes, inode, block_class, status, .. } =
            event;
        let is_sync = event.is_sync != 0;
        let class = Class::new(block_class).unwrap_or_default();
        match kind {
            3 => Some(Event::Issued { time_ns, id, sector, bytes, operation, causes, class, inode, is_sync }),
            4 => Some(Event::Completed { time_ns, id, sector, bytes, status }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_by_their_kind_and_broken_ones_are_none() {
        let page = PageEvent { kind: 1, pages: 2, time_ns: 3, inode: 4, first_page: 5, causes: 6, previous: 7 };
        let dirtied = Event::Dirtied { time_ns: 3, inode: 4, first_page: 5, pages: 2, causes: 6, previous: 7 };
        assert_eq!(Event::parse(&page.bytes()), Some(dirtied));
        let freed = Event::Freed { time_ns: 3, inode: 4, first_page: 5, pages: 2, causes: 6 };
        assert_eq!(Event::parse(&PageEvent { kind: 2, ..page }.bytes()), Some(freed));
        let direct = Event::WrittenDirect { time_ns: 3, inode: 4, causes: 6 };
        assert_eq!(Event::parse(&PageEvent { kind: 6, ..page }.bytes()), Some(direct));
        assert_eq!(Event::parse(&PageEvent { kind: 9, ..page }.bytes()), None);
        assert_eq!(Event::parse(&page.bytes()[..40]), None);
        assert_eq!(Event::parse(&[]), None);
        let call = CallEvent { kind: 5, thread: 8, time_ns: 9 };
        assert_eq!(Event::parse(&call.bytes()), Some(Event::Returned { time_ns: 9, thread: 8 }));
        let request = RequestEvent {
            kind: 3,
            bytes: 4096,
            time_ns: 1,
            request: 2,
            sector: 8,
            causes: 5,
            inode: 6,
            operation: 1,
            block_class: 7,
            status: 0,
            is_sync: 1,
            spare: [0; 4],
        };
        let class = Class::new(7).unwrap();
        let (operation, causes, inode, is_sync) = (1, 5, 6, true);
        let (time_ns, id, sector, bytes) = (1, 2, 8, 4096);
        let issued = Event::Issued { time_ns, id, sector, bytes, operation, causes, class, inode, is_sync };
        assert_eq!(Event::parse(&request.bytes()), Some(issued));
    }
}
