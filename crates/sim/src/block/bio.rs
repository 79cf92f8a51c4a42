//! What rooms above the block layer hand to it, and how neighbours become one request.

use crate::cache::PageSpan;
use crate::executor::TaskId;
use crate::executor::wait::Group;
use plimsoll_core::{AccountId, CauseSet, Class, FileId, Operation};

/// One contiguous piece of I/O and what is to happen when it is done.
#[derive(Clone, Debug)]
pub struct Bio {
    /// The session that submits it and has it in its queue.
    pub session: AccountId,
    /// The accounts that caused it.
    pub causes: CauseSet,
    /// What the bytes mean.
    pub class: Class,
    /// What is asked.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub length: u32,
    /// A process waits for it.
    pub is_sync: bool,
    /// The write must be durable when it completes.
    pub is_forced: bool,
    /// The file that it belongs to, where known.
    pub file: Option<FileId>,
    /// What happens when it is done.
    pub end: BioEnd,
}

/// What happens when a bio is done.
#[derive(Clone, Debug, Default)]
pub enum BioEnd {
    /// Nothing.
    #[default]
    Nothing,
    /// The group has one less under way. The maker of the bio has added it to the group.
    Group(Group),
    /// The task that performs it continues.
    Task(TaskId),
    /// The pages are read (unlocked and up to date) or written (their writeback ends, unless the file system says
    /// later). Then the group, if there is one, has one less under way.
    Pages(PageSpan, Option<Group>),
}

impl Bio {
    /// The byte after its last one.
    pub fn end_offset(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// Whether `next` may become part of the same request. It must begin where this one ends, and agree in all that a
    /// scheduler or a cache distinguishes. Causes may differ: the request has all of them.
    fn takes(&self, next: &Bio, bytes_max: u32) -> bool {
        let is_data = |bio: &Bio| matches!(bio.operation, Operation::Read | Operation::Write) && !bio.is_forced;
        is_data(self)
            && is_data(next)
            && self.operation == next.operation
            && self.end_offset() == next.offset
            && self.length.checked_add(next.length).is_some_and(|bytes| bytes <= bytes_max)
            && (self.session, self.class, self.is_sync, self.file)
                == (next.session, next.class, next.is_sync, next.file)
    }
}

/// Bios that one task collects before it hands them on, so that neighbours can become one request. (Linux: the plug of
/// `blk_start_plug`; sorted by place before it is emptied, as `blk_flush_plug_list` does.)
#[derive(Default)]
pub struct Plug {
    bios: Vec<Bio>,
}

impl Plug {
    /// Adds one.
    pub fn add(&mut self, bio: Bio) {
        self.bios.push(bio);
    }

    /// How many it holds.
    pub fn len(&self) -> usize {
        self.bios.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.bios.is_empty()
    }

    /// Empties it: one bio for each request, none longer than `bytes_max`, and for each the ends of those that it
    /// took in. The place of a write that follows another to the same bytes stays behind it.
    pub(crate) fn merged(&mut self, bytes_max: u32) -> Vec<(Bio, Vec<BioEnd>)> {
        self.bios.sort_by_key(|bio| bio.offset);
        let mut requests: Vec<(Bio, Vec<BioEnd>)> = Vec::new();
        for mut bio in self.bios.drain(..) {
            match requests.last_mut() {
                Some((last, ends)) if last.takes(&bio, bytes_max) => {
                    last.length += bio.length;
                    last.causes.union_with(&bio.causes);
                    ends.push(std::mem::take(&mut bio.end));
                }
                _ => {
                    let end = std::mem::take(&mut bio.end);
                    requests.push((bio, vec![end]));
                }
            }
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u32 = 4096;

    fn bio() -> impl Strategy<Value = Bio> {
        (0u64..40, 1u32..4, 0u32..2, 0u8..2, any::<bool>(), any::<bool>(), 0u64..2, 0u32..20).prop_map(
            |(page, pages, session, class, is_write, is_forced, file, cause)| Bio {
                session: AccountId(session),
                causes: CauseSet::of(AccountId(cause)),
                class: Class::new(class).unwrap(),
                operation: if is_write { Operation::Write } else { Operation::Read },
                offset: page * u64::from(PAGE),
                length: pages * PAGE,
                is_sync: !is_write,
                is_forced: is_forced && is_write && cause == 0,
                file: Some(FileId(file)),
                end: BioEnd::Nothing,
            },
        )
    }

    /// Everything that must not be mixed, for each page that the bios cover, with how often it is covered.
    fn pages(bios: &[Bio]) -> Vec<(u64, u32, u8, bool, bool, Option<FileId>)> {
        let mut pages = Vec::new();
        for bio in bios {
            let is_write = bio.operation == Operation::Write;
            for page in 0..bio.length / PAGE {
                let place = bio.offset + u64::from(page * PAGE);
                pages.push((place, bio.session.0, bio.class.number(), is_write, bio.is_forced, bio.file));
            }
        }
        pages.sort();
        pages
    }

    proptest! {
        #[test]
        fn merging_covers_the_same_once_and_mixes_nothing(
            bios in proptest::collection::vec(bio(), 0..40), pages_max in 1u32..8,
        ) {
            let bytes_max = pages_max.max(3) * PAGE;
            let mut plug = Plug::default();
            bios.iter().cloned().for_each(|bio| plug.add(bio));
            let merged = plug.merged(bytes_max);
            let requests: Vec<Bio> = merged.iter().map(|(bio, _)| bio.clone()).collect();
            prop_assert_eq!(pages(&bios), pages(&requests), "each page as before, with its session, class and file");
            prop_assert_eq!(merged.iter().map(|(_, ends)| ends.len()).sum::<usize>(), bios.len());
            prop_assert!(requests.iter().all(|request| request.length <= bytes_max));
            for bio in &bios {
                let is_held = |request: &&Bio| {
                    request.offset <= bio.offset && request.end_offset() >= bio.end_offset()
                        && bio.causes.iter().all(|cause| request.causes.contains(cause))
                };
                prop_assert!(requests.iter().any(|request| is_held(&request)), "no cause is lost");
            }
            for pair in requests.windows(2) {
                prop_assert!(!pair[0].takes(&pair[1], bytes_max), "neighbours that may be one are one");
            }
        }
    }
}
