//! Events since the last turn: pages dirtied and freed, requests of an observed disk, returns from calls.

use super::Levels;
use crate::block_tags::file_of_block;
use plimsoll_core::{BlockRequest, CauseSet, FileId, Operation, PageEvent, RequestId, ThreadId, Time};
use plimsoll_engine::{Below, session_of};
use plimsoll_tags::Event;

/// Most events in one turn, whichever account makes them. At some 150 ns each a scheduler takes less than a millisecond
/// for them, which bounds the delay of others' requests. The ring holds what comes meanwhile.
pub(super) const EVENTS_MAX: usize = 4096;
const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

impl Levels {
    /// Fetches what happened, and again as soon as something more can be worth it. O([`EVENTS_MAX`]).
    pub(super) fn fetch(&mut self, now: Time, below: &mut Below<'_>) {
        let mut events = std::mem::take(&mut self.events);
        let mut may_be_more = self.parts.tags.events(EVENTS_MAX, |event| events.push(event));
        if events.is_empty() && self.pace.is_silence(now) {
            self.parts.tags.wake();
            // What came before it could wake us.
            may_be_more |= self.parts.tags.events(EVENTS_MAX, |event| events.push(event));
        }
        if !events.is_empty() {
            events.iter().for_each(|event| self.pace.found(event));
            self.pace.next(now, self.is_anybody_waiting());
        }
        if may_be_more {
            // Others' requests first.
            self.pace.at_once(now);
        }
        for event in events.drain(..) {
            self.happened(now, below, event);
        }
        self.events = events;
    }

    /// Whether a call is kept back until something happens, or was until lately.
    fn is_anybody_waiting(&self) -> bool {
        self.calls.waiting() > 0 || self.calls.admitted_until().is_some() || self.readers.are_held()
    }

    fn happened(&mut self, now: Time, below: &mut Below<'_>, event: Event) {
        match event {
            Event::Dirtied { time_ns, inode, first_page, pages, causes, previous } => {
                let event = self.page_event(inode, first_page, pages, causes, previous);
                // Metadata may become dirty later, by a thread of the kernel.
                if event.file != FileId::DEVICE {
                    self.has_written(below.time_of(time_ns), &event.causes);
                }
                for account in event.causes.iter() {
                    self.wrote.insert(account, event.file);
                }
                below.scheduler().pages_dirtied(now, &event);
            }
            Event::Freed { inode, first_page, pages, causes, .. } => {
                let event = self.page_event(inode, first_page, pages, causes, 0);
                below.scheduler().pages_freed(now, &event);
            }
            Event::WrittenDirect { time_ns, inode, causes } => {
                let accounts = self.members.causes(causes);
                self.has_written(below.time_of(time_ns), &accounts);
                self.wrote.extend(accounts.iter().map(|account| (account, FileId(inode))));
            }
            Event::Issued { .. } => self.issued(below, event),
            Event::Completed { time_ns, id, status, .. } => below.completed(id, below.time_of(time_ns), status == 0),
            Event::Returned { time_ns, thread } => {
                let seen = below.time_of(time_ns);
                self.calls.outside(now, below.scheduler(), ThreadId(thread), seen);
            }
        }
    }

    /// Accounts wrote at `at`, which is no news of accounts that wait at their gates.
    fn has_written(&mut self, at: Time, causes: &CauseSet) {
        if let Some(freezing) = &mut self.freezing {
            causes.iter().for_each(|account| freezing.wrote(account, at));
        }
    }

    /// A request went to an observed disk: the scheduler hears of it.
    fn issued(&mut self, below: &mut Below<'_>, event: Event) {
        let Event::Issued { time_ns, id, sector, bytes, operation, causes, class, inode, is_sync } = event else {
            return;
        };
        let Some(operation) = operation_of(operation) else { return };
        let Some(others) = self.parts.others else { return };
        let causes = self.members.causes(causes);
        let session = session_of(&causes, others);
        let (offset, arrived) = (sector * SECTOR_BYTES, below.time_of(time_ns));
        let mut request = BlockRequest::new(RequestId(0), session, operation, offset, bytes, arrived);
        (request.causes, request.class, request.file) = (causes, class, file_of_block(class, inode));
        request.is_sync |= is_sync;
        below.issued(id, request);
    }

    fn page_event(&self, inode: u64, first_page: u64, pages: u32, causes: u64, previous: u64) -> PageEvent {
        PageEvent {
            file: FileId(inode),
            offset: first_page * PAGE_BYTES,
            length: u64::from(pages) * PAGE_BYTES,
            causes: self.members.causes(causes),
            previous: self.members.causes(previous),
        }
    }
}

/// What the kernel calls `REQ_OP_*`; `None` for what moves no data and makes none durable.
fn operation_of(number: u8) -> Option<Operation> {
    match number {
        0 => Some(Operation::Read),
        1 => Some(Operation::Write),
        2 => Some(Operation::Flush),
        3 => Some(Operation::Trim),
        9 => Some(Operation::WriteZeroes),
        _ => None,
    }
}
