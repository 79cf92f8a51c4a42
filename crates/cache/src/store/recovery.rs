//! Finding a cache again, after a shutdown or a crash.
//!
//! **The rule.** The superblock says which generation of the map holds and from which block of the journal on changes
//! are newer. Pages come first, then the journal in order. A block counts only if it follows the block before: of this
//! cache, with the next number, and with that block's checksum. The first block that does not follow is the end,
//! because a block is written only when the one before it is durable.
//!
//! **Pages of one snapshot are not of one moment.** A block that moved meanwhile can be in two of them, or in none. The
//! record of its move is in the journal behind the snapshot's start, so whatever the pages say, the journal has the
//! last word.
//!
//! **Losses are noticed.** Behind the end there can be no newer block of the journal. If there is one, the end is
//! damage and not an end. A page with a damaged valid slot would be replaced by its older slot: the digest in the
//! superblock says that.
//!
//! **What may be old is not believed**, also when losses are accepted. If either slot of a page is damaged, it is
//! unknown what the page said, unless the digest says that the other slot holds. A lost block of the journal may have
//! spoken of any unit: that its block has left it, and was written to the store since. So only what is recorded behind
//! the damage is believed then.
//!
//! **The journal has room for the end of a snapshot.** Some of its blocks are kept for that. A process that was killed
//! there has used some of them, and the next snapshot might not come to its end. Then the map is written as a whole
//! first, and the journal begins anew.
//!
//! **A crash cannot take back what is served.** The bytes that were read here may still be in the device's volatile
//! cache, if the program ended and not the machine. So the device is flushed before anything is written, a superblock
//! first.

use super::blocks::Blocks;
use super::bytes::{BLOCK_BYTES, Block};
use super::error::{DeviceError, OpenError};
use super::format::{Identity, PAGES_AT_ONCE, newest, read_superblocks, write_superblocks};
use super::layout::BLOCKS_KEPT;
use super::loader::{Loader, RANK_OF_CHANGED, RANK_OF_PROVEN, Shelf};
use super::map::{self, ENTRIES, PageHead};
use super::opened::Opened;
use super::pages::Pages;
use super::reading::Unreadable;
use super::replay::{JournalPosition, Ring, Run};
use super::report::Report;
use super::superblock::{Found, Superblock};
use crate::config::CacheConfig;
use crate::policy::PolicyEntry;
use crate::threads::on_threads;
use crate::units::UnitId;
use std::sync::Mutex;

/// Finds the cache on `device` that is one of `identity`. `config.units` is of no account.
///
/// # Errors
/// There is no cache, it is of another store, or some of it is damaged. Damage is no error if `accepts_losses`: damaged
/// records are forgotten then, with every unit that may be old because of them.
pub fn open(
    device: &mut dyn Blocks,
    identity: Identity,
    config: &CacheConfig,
    policy: &PolicyEntry,
    accepts_losses: bool,
) -> Result<Opened, OpenError> {
    let superblock = find_superblock(device, identity)?;
    let mut report = Report { cache_units: superblock.layout.units, ..Report::default() };
    let mut unreadable = Unreadable::default();
    let config = CacheConfig { units: superblock.layout.units, is_on_device: true, ..config.clone() };
    let mut loader = Loader::new(&config, policy, superblock.store_blocks)?;
    let mut pages = Pages::new(&superblock);
    let MapRead { lost, unfinished } = read_map(device, &superblock, &mut loader, &mut pages, &mut unreadable)?;
    report.lost_pages = lost.len() as u32;
    let ring = Ring::read(device, &superblock, &mut unreadable)?;
    report.unreadable_blocks = unreadable.count();
    let end = replay(&ring, &mut loader, &mut pages, &mut report);
    if report.has_losses() && !accepts_losses {
        return Err(OpenError::Damaged { report: Box::new(report) });
    }
    // The superblock that holds may be volatile, and must not be when the other one is written: a power failure could
    // tear both.
    device.flush().map_err(DeviceError::flush)?;
    report.repaired_superblocks = repair(device, &superblock)?;
    let (cache, marks) = loader.finish();
    (report.units, report.dirty_units) = (superblock.layout.units - cache.empty_units(), marks.dirty_units);
    let JournalPosition { sequence, previous } = end;
    let mut opened = Opened { superblock, cache, marks, pages, sequence, previous, report };
    let has_lost_tail = report.lost_journal_blocks > 0;
    if !lost.is_empty() && !has_lost_tail {
        opened.write_lost_pages(device, lost.iter().chain(&unfinished))?;
    }
    // Killed at the end of a snapshot, it may have used what is kept for the end of the next one, too.
    if has_lost_tail || report.journal_blocks + BLOCKS_KEPT > u64::from(superblock.layout.journal_blocks) {
        opened.write_whole_map(device)?;
    }
    Ok(opened)
}

/// What the superblock of the cache on `device` says, for any store.
///
/// # Errors
/// There is none, or none that can be read.
pub fn probe(device: &mut dyn Blocks) -> Result<Superblock, OpenError> {
    let (found, unreadable) = read_superblocks(device)?;
    let Some((_, superblock)) = newest(&found) else {
        // It is unknown whether there is a cache.
        if let Some(error) = unreadable.into_error() {
            return Err(error.into());
        }
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
    if superblock.store != identity.store {
        return Err(OpenError::OtherStore);
    }
    // A store that became longer could be taken: no block of it behind the old end is in the cache. It is refused all
    // the same. The size is evidence where a device is known by its path only. A store that is made longer is often
    // written in the same breath (`resize2fs`), past the cache, and what the cache has would go over that. The way back
    // costs nothing: with its old size the store is served as before. A shorter store may lack blocks that only the
    // cache has.
    if superblock.store_blocks != identity.store_blocks {
        let (was_blocks, is_blocks) = (superblock.store_blocks, identity.store_blocks);
        return Err(OpenError::OtherSize { was_blocks, is_blocks });
    }
    Ok(superblock)
}

/// Overwrites the other superblock with the valid one if they differ: a snapshot relies on both.
pub(super) fn repair(device: &mut dyn Blocks, superblock: &Superblock) -> Result<u32, DeviceError> {
    let (found, unreadable) = read_superblocks(device)?;
    let is_right = |found: &Found| *found == Found::Superblock(*superblock);
    if !found.iter().any(is_right)
        && let Some(error) = unreadable.into_error()
    {
        // One superblock was right a moment ago: the device fails, and nothing of the cache is to be given up.
        return Err(error);
    }
    let Some(wrong) = found.iter().position(|found| !is_right(found)) else { return Ok(0) };
    write_superblocks(device, superblock, wrong as u64)?;
    Ok(1)
}

fn block_of(blocks: &[u8], at: usize) -> &Block {
    blocks[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].try_into().expect("a block")
}

/// What a start read of a page.
struct PageRead {
    page: u32,
    /// The valid slot and its head, if one is valid.
    best: Option<(usize, PageHead)>,
    /// One slot is damaged: as a rule by a snapshot that was not finished.
    is_suspect: bool,
    /// One slot is of a snapshot that was not finished.
    has_too_new: bool,
}

/// What of the map is not as after a shutdown.
struct MapRead {
    /// Pages without a slot that is known to be valid.
    lost: Vec<u32>,
    /// Other pages with a slot of an unfinished snapshot: the next finished snapshot has to write them.
    unfinished: Vec<u32>,
}

/// State that the threads reading the map share: the device, its unreadable blocks, and the next pages.
struct Source<'a, S> {
    device: &'a mut dyn Blocks,
    unreadable: &'a mut Unreadable,
    shelves: S,
}

/// Reads both slots of every page and takes what the valid slot says.
fn read_map(
    device: &mut dyn Blocks,
    superblock: &Superblock,
    loader: &mut Loader,
    pages: &mut Pages,
    unreadable: &mut Unreadable,
) -> Result<MapRead, OpenError> {
    let threads = loader.threads;
    let source = Mutex::new(Source { device, unreadable, shelves: loader.shelves(PAGES_AT_ONCE) });
    let read = on_threads((0..threads).map(|_| &source), |source| read_pages(source, superblock));
    drop(source);
    // Pages of which both slots are damaged; those of which one is, and the other one.
    let (mut lost, mut suspects, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
    for read in read {
        let (pages_read, dirty) = read?;
        loader.add_dirty(dirty);
        for PageRead { page, best, is_suspect, has_too_new } in pages_read {
            match best {
                Some((slot, head)) => {
                    pages.set_valid(page, head.generation, slot);
                    loader.note_page(&head);
                    unfinished.extend(has_too_new.then_some(page));
                    suspects.extend(is_suspect.then_some((page, slot, head.generation)));
                }
                None => lost.push(page),
            }
        }
    }
    if !lost.is_empty() || pages.digest() != superblock.map_digest {
        if lost.is_empty() && suspects.is_empty() {
            return Err(OpenError::OtherMap);
        }
        for (page, slot, generation) in suspects {
            loader.clear_page(page);
            lost.push(page);
            // The other slot was valid. The next write replaces the older page, so that, should that be the
            // last event, the next start still knows this of the page.
            pages.set_valid(page, generation, 1 - slot);
        }
    }
    lost.iter().chain(&unfinished).for_each(|&page| pages.set_changed(page));
    loader.index_all(pages);
    Ok(MapRead { lost, unfinished })
}

/// Takes shelves until there are none. One thread at a time reads the device; all threads decode at once. Answers what
/// became of the pages, and how many of their units the store lacks.
fn read_pages<'a>(
    source: &Mutex<Source<'_, impl Iterator<Item = Shelf<'a>>>>,
    superblock: &Superblock,
) -> Result<(Vec<PageRead>, u32), OpenError> {
    let layout = &superblock.layout;
    let chunk = PAGES_AT_ONCE.min(layout.map_pages() as usize) * BLOCK_BYTES;
    let mut slots = [vec![0; chunk], vec![0; chunk]];
    let (mut read, mut dirty_units) = (Vec::new(), 0);
    loop {
        let mut turn = source.lock().expect("no thread panics that has it");
        let Some(mut shelf) = turn.shelves.next() else { return Ok((read, dirty_units)) };
        let (first, count) = shelf.pages();
        for (slot, blocks) in slots.iter_mut().enumerate() {
            let bytes = count as usize * BLOCK_BYTES;
            let Source { device, unreadable, .. } = &mut *turn;
            unreadable.read(*device, layout.map_block(slot, first), &mut blocks[..bytes])?;
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
            let is_suspect = heads.iter().any(|head| matches!(head, SlotContent::Damaged));
            let has_too_new = heads.iter().any(|head| matches!(head, SlotContent::TooNew));
            read.push(PageRead { page, best, is_suspect, has_too_new });
        }
        dirty_units += shelf.dirty_units;
    }
}

/// What a slot is.
enum SlotContent {
    /// A page that may hold.
    Page(PageHead),
    /// A page of a snapshot that was not finished.
    TooNew,
    /// Neither.
    Damaged,
}

fn head_of(block: &Block, superblock: &Superblock, page: u32) -> SlotContent {
    match map::head(block, &superblock.uuid) {
        Some(head) if head.page != page => SlotContent::Damaged,
        Some(head) if head.generation > superblock.generation => SlotContent::TooNew,
        Some(head) => SlotContent::Page(head),
        None => SlotContent::Damaged,
    }
}

fn best(heads: &[SlotContent; 2]) -> Option<(usize, PageHead)> {
    let pages = heads.iter().enumerate().filter_map(|(slot, head)| match head {
        SlotContent::Page(head) => Some((slot, *head)),
        SlotContent::TooNew | SlotContent::Damaged => None,
    });
    pages.max_by_key(|(_, head)| head.generation)
}

/// Does again what the journal says. Answers where it goes on.
fn replay(ring: &Ring, loader: &mut Loader, pages: &mut Pages, report: &mut Report) -> JournalPosition {
    let run = ring.follow(ring.start(), |records| loader.apply(records, pages, RANK_OF_CHANGED));
    let newer = ring.blocks_from(&run.end);
    (report.journal_blocks, report.records) = (run.blocks, run.records);
    if newer == 0 {
        return run.end;
    }
    report.lost_journal_blocks = newer;
    (report.journal_blocks, report.records) = (0, 0);
    if let Some(proven_start) = ring.behind(&run.end) {
        let proven: Run = ring.follow(proven_start, |records| loader.apply(records, pages, RANK_OF_PROVEN));
        (report.journal_blocks, report.records) = (proven.blocks, proven.records);
        report.lost_journal_blocks -= proven.blocks;
    }
    (report.given_up_units, report.given_up_dirty_units) = loader.forget_below(RANK_OF_PROVEN);
    // Journal blocks behind the damage must never be taken for the blocks that come next.
    JournalPosition { sequence: run.end.sequence + newer + 1, previous: run.end.previous }
}
