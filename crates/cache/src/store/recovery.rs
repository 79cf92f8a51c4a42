//! Finding a cache again, after a shutdown or a crash.
//!
//! **The rule.** The superblock says which generation of the map holds and from which block of the journal on changes are newer.
//! Pages first, then the journal in its order, each block only if it is the one that follows: of this cache, with the next
//! number, and with the checksum of the block before. The first that is not is the end, because a block is written only when
//! the one before it is durable.
//!
//! **Pages of one snapshot are not of one moment.** A block that moved meanwhile can be in two of them, or in none. The record of
//! its move is in the journal behind the snapshot's start, so whatever the pages say, the journal has the last word.
//!
//! **What is lost is noticed.** Behind the end there can be no newer block of the journal: if there is one, the end is damage and
//! not an end. A page whose valid slot was damaged would be replaced by its older slot: the digest in the superblock says that.
//!
//! **The journal has room for the end of a snapshot.** Some of its blocks are kept for that. Whoever was killed there has used some of them,
//! and the next snapshot might not come to its end: then the map is written as a whole first, and the journal begins anew.
//!
//! **Nothing is served that a crash could take back**: what was read here may still be in the device's volatile cache, if it was
//! the program that died and not the machine. So the device is flushed at the end.

use super::bytes::Block;
use super::commit::BLOCKS_KEPT;
use super::error::{DeviceError, OpenError};
use super::format::{Blocks, Identity, PAGES_AT_ONCE, newest, read_superblocks, write_superblocks};
use super::journal::{self, RECORDS};
use super::layout::BLOCK_BYTES;
use super::loader::{Loader, Shelf};
use super::map::{self, ENTRIES, PageHead};
use super::pages::Pages;
use super::superblock::{Found, Superblock};
use crate::cache::Cache;
use crate::config::CacheConfig;
use crate::policy::PolicyEntry;
use crate::threads::on_threads;
use crate::units::UnitId;
use std::sync::Mutex;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Units that hold a block.
    pub units: u32,
    /// Of those the ones that the store lacks.
    pub dirty_units: u32,
    /// Blocks of the journal that were newer than the map: none after a shutdown.
    pub journal_blocks: u64,
    /// Their records.
    pub records: u64,
    /// Superblocks that were damaged or old, and were written again.
    pub repaired_superblocks: u32,
    /// Pages of the map that were damaged: what they said is lost.
    pub lost_pages: u32,
    /// Blocks of the journal that were damaged, or came after one that was.
    pub lost_journal_blocks: u64,
}

/// A cache that was found.
pub struct Opened {
    pub(super) superblock: Superblock,
    pub(super) cache: Cache,
    pub(super) marks: super::marks::Marks,
    pub(super) pages: Pages,
    /// The next block of the journal, and the checksum of the one before it.
    pub(super) sequence: u64,
    pub(super) previous: u32,
    /// What was found.
    pub report: Report,
}

/// Finds the cache on `device` that is one of `identity`. `config.units` is of no account.
///
/// # Errors
/// There is none, it is of another store, or some of it is damaged; the last is no error if `accepts_losses`, and what is damaged is
/// forgotten then.
pub fn open(
    device: &mut dyn Blocks,
    identity: Identity,
    config: &CacheConfig,
    policy: &PolicyEntry,
    accepts_losses: bool,
) -> Result<Opened, OpenError> {
    let mut report = Report::default();
    let superblock = find_superblock(device, identity)?;
    let config = CacheConfig { units: superblock.layout.units, is_on_device: true, ..config.clone() };
    let mut loader = Loader::new(&config, policy, superblock.store_blocks)?;
    let mut pages = Pages::new(&superblock);
    read_map(device, &superblock, &mut loader, &mut pages, &mut report)?;
    let mut end = replay(device, &superblock, &mut loader, &mut pages, &mut report)?;
    if report.lost_pages > 0 || report.lost_journal_blocks > 0 {
        if !accepts_losses {
            let Report { lost_pages, lost_journal_blocks, .. } = report;
            return Err(OpenError::Damaged { lost_pages, lost_journal_blocks });
        }
        // What was behind the damage must never be taken for what comes next.
        end.sequence += report.lost_journal_blocks + 1;
    }
    report.repaired_superblocks = repair(device, &superblock)?;
    device.flush().map_err(DeviceError::flush)?;
    let (cache, marks) = loader.finish();
    (report.units, report.dirty_units) = (superblock.layout.units - cache.empty_units(), marks.dirty_units);
    let mut opened = Opened { superblock, cache, marks, pages, sequence: end.sequence, previous: end.previous, report };
    let is_damaged = report.lost_pages > 0 || report.lost_journal_blocks > 0;
    // Killed at the end of a snapshot, it may have used what is kept for the end of the next one, too.
    if is_damaged || report.journal_blocks + BLOCKS_KEPT > u64::from(superblock.layout.journal_blocks) {
        opened.write_whole_map(device)?;
    }
    Ok(opened)
}

/// What the superblock of the cache on `device` says, whatever it is a cache of.
///
/// # Errors
/// There is none, or none that can be read.
pub fn probe(device: &mut dyn Blocks) -> Result<Superblock, OpenError> {
    let found = read_superblocks(device)?;
    let Some((_, superblock)) = newest(&found) else {
        return Err(match found {
            [Found::Version(version), _] | [_, Found::Version(version)] => OpenError::Version { version },
            [Found::Damaged, _] | [_, Found::Damaged] => OpenError::NoSuperblock,
            _ => OpenError::NoCache,
        });
    };
    match superblock {
        spent if spent.is_spent() => Err(OpenError::Spent),
        ready if ready.is_ready => Ok(ready),
        _ => Err(OpenError::NoCache),
    }
}

fn find_superblock(device: &mut dyn Blocks, identity: Identity) -> Result<Superblock, OpenError> {
    let superblock = probe(device)?;
    if superblock.layout.blocks() > device.blocks() {
        return Err(OpenError::TooSmall { blocks: device.blocks(), needs: superblock.layout.blocks() });
    }
    if (superblock.store, superblock.store_blocks) != (identity.store, identity.store_blocks) {
        return Err(OpenError::OtherStore { store_blocks: superblock.store_blocks });
    }
    Ok(superblock)
}

/// Writes again the superblock that is not as the one that holds: a snapshot counts on both.
fn repair(device: &mut dyn Blocks, superblock: &Superblock) -> Result<u32, DeviceError> {
    let found = read_superblocks(device)?;
    let is_right = |found: &Found| *found == Found::Superblock(*superblock);
    let Some(wrong) = found.iter().position(|found| !is_right(found)) else { return Ok(0) };
    write_superblocks(device, superblock, wrong as u64)?;
    Ok(1)
}

fn block_of(blocks: &[u8], at: usize) -> &Block {
    blocks[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].try_into().expect("a block")
}

/// What became of a page.
struct PageRead {
    page: u32,
    /// The slot that holds and what it says, if one does.
    best: Option<(usize, PageHead)>,
    /// One slot is damaged: as a rule by a snapshot that was not finished.
    is_suspect: bool,
    /// One slot is of a snapshot that was not finished.
    has_too_new: bool,
}

/// What the threads that read the map share: the device, and which pages come next.
struct Source<'a, S> {
    device: &'a mut dyn Blocks,
    shelves: S,
}

/// Reads both slots of every page and takes what the one that holds says.
fn read_map(
    device: &mut dyn Blocks,
    superblock: &Superblock,
    loader: &mut Loader,
    pages: &mut Pages,
    report: &mut Report,
) -> Result<(), OpenError> {
    let threads = loader.threads;
    let source = Mutex::new(Source { device, shelves: loader.shelves(PAGES_AT_ONCE) });
    let read = on_threads((0..threads).map(|_| &source), |source| read_pages(source, superblock));
    drop(source);
    let mut dirty_units = 0;
    // Pages of which one slot is damaged.
    let mut suspects = Vec::new();
    for read in read {
        let (pages_read, dirty) = read?;
        dirty_units += dirty;
        for PageRead { page, best, is_suspect, has_too_new } in pages_read {
            if is_suspect {
                suspects.push(page);
            }
            if has_too_new {
                pages.set_changed(page);
            }
            match best {
                Some((slot, head)) => {
                    pages.set_valid(page, head.generation, slot);
                    loader.note_page(&head);
                }
                None => {
                    pages.set_changed(page);
                    report.lost_pages += 1;
                }
            }
        }
    }
    loader.index_all(dirty_units, pages);
    if report.lost_pages == 0 && pages.digest() != superblock.map_digest {
        for page in suspects {
            report.lost_pages += 1;
            pages.set_changed(page);
            loader.clear_page(page);
        }
        report.lost_pages = report.lost_pages.max(1);
    }
    Ok(())
}

/// Takes shelves, one after the other, as long as there are some: the device is read by one thread at a time, and what was read
/// is looked at by all at once. Answers what became of the pages, and how many of their units the store lacks.
fn read_pages<'a>(
    source: &Mutex<Source<'_, impl Iterator<Item = Shelf<'a>>>>,
    superblock: &Superblock,
) -> Result<(Vec<PageRead>, u32), OpenError> {
    let layout = &superblock.layout;
    let chunk = PAGES_AT_ONCE.min(layout.map_pages() as usize) * BLOCK_BYTES;
    let mut slots = [vec![0; chunk], vec![0; chunk]];
    let (mut read, mut dirty_units) = (Vec::new(), 0);
    loop {
        let mut turn = source.lock().expect("nobody panics who has it");
        let Some(mut shelf) = turn.shelves.next() else { return Ok((read, dirty_units)) };
        let (first, count) = shelf.pages();
        for (slot, blocks) in slots.iter_mut().enumerate() {
            let bytes = count as usize * BLOCK_BYTES;
            turn.device.read(layout.map_block(slot, first), &mut blocks[..bytes]).map_err(DeviceError::read)?;
        }
        drop(turn);
        for page in first..first + count {
            let at = (page - first) as usize;
            let heads = [0, 1].map(|slot| head_of(block_of(&slots[slot], at), superblock, page));
            let best = best(&heads);
            if let Some((slot, _)) = best {
                let units = (page * ENTRIES as u32..).map(UnitId);
                for (unit, entry) in units.zip(map::entries(block_of(&slots[slot], at))) {
                    entry.inspect(|entry| shelf.place(unit, entry));
                }
            }
            let is_suspect = heads.iter().any(|head| matches!(head, Slot::Damaged));
            let has_too_new = heads.iter().any(|head| matches!(head, Slot::TooNew));
            read.push(PageRead { page, best, is_suspect, has_too_new });
        }
        dirty_units += shelf.dirty_units;
    }
}

/// What a slot is.
enum Slot {
    /// A page that may hold.
    Page(PageHead),
    /// A page of a snapshot that was not finished.
    TooNew,
    /// Neither.
    Damaged,
}

fn head_of(block: &Block, superblock: &Superblock, page: u32) -> Slot {
    match map::head(block, &superblock.uuid) {
        Some(head) if head.page != page => Slot::Damaged,
        Some(head) if head.generation > superblock.generation => Slot::TooNew,
        Some(head) => Slot::Page(head),
        None => Slot::Damaged,
    }
}

fn best(heads: &[Slot; 2]) -> Option<(usize, PageHead)> {
    let pages = heads.iter().enumerate().filter_map(|(slot, head)| match head {
        Slot::Page(head) => Some((slot, *head)),
        Slot::TooNew | Slot::Damaged => None,
    });
    pages.max_by_key(|(_, head)| head.generation)
}

struct End {
    sequence: u64,
    previous: u32,
}

/// Reads the journal and does again what it says.
fn replay(
    device: &mut dyn Blocks,
    superblock: &Superblock,
    loader: &mut Loader,
    pages: &mut Pages,
    report: &mut Report,
) -> Result<End, OpenError> {
    let layout = &superblock.layout;
    let ring = layout.journal_blocks as usize;
    let mut blocks = vec![0; ring * BLOCK_BYTES];
    for first in (0..ring).step_by(PAGES_AT_ONCE) {
        let last = ring.min(first + PAGES_AT_ONCE);
        let into = &mut blocks[first * BLOCK_BYTES..last * BLOCK_BYTES];
        device.read(layout.journal_block(first as u64), into).map_err(DeviceError::read)?;
    }
    let at = |sequence: u64| block_of(&blocks, (sequence % ring as u64) as usize);
    let mut records = Vec::with_capacity(RECORDS);
    let mut end = End { sequence: superblock.journal_sequence, previous: superblock.journal_previous };
    while let Some(head) = journal::head(at(end.sequence), &superblock.uuid)
        .filter(|head| head.sequence == end.sequence && head.previous == end.previous)
    {
        records.clear();
        records.extend(journal::records(at(end.sequence), &head));
        loader.apply(&records, pages);
        report.records += records.len() as u64;
        end = End { sequence: head.sequence + 1, previous: head.checksum };
        report.journal_blocks += 1;
        if report.journal_blocks == ring as u64 {
            break;
        }
    }
    let heads = (0..ring).filter_map(|at| journal::head(block_of(&blocks, at), &superblock.uuid));
    // No journal gets further than that: such a block is none of it, and the next one's number must fit a superblock.
    let newest = heads.map(|head| head.sequence).filter(|&sequence| sequence < 1 << 62).max().unwrap_or(0);
    report.lost_journal_blocks = (newest + 1).saturating_sub(end.sequence);
    Ok(end)
}
