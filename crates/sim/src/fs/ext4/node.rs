//! A file or directory as ext4 knows it, and how its places change.

use super::allocator::{Allocator, by_group, group_of};
use super::layout::Ext4Layout;
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange};
use crate::fs::class;
use crate::fs::directory::Directory;
use crate::fs::extent_tree::{ExtentTree, TreeShape};
use crate::fs::extents::Run;
use crate::fs::space::Blocks;
use plimsoll_core::Class;
use std::collections::BTreeMap;

/// Pages of an extent at the most: 128 MiB (`EXT_INIT_MAX_LEN`).
pub const EXTENT_PAGES_MAX: u64 = 32768;
/// The inode holds a header and four records (`i_data`), a block 340 of 12 bytes each after a header of 12.
const TREE: TreeShape = TreeShape { inode_records: 4, block_records: 340, extent_pages_max: EXTENT_PAGES_MAX };
/// Files up to this many bytes are not preallocated for (`s_mb_stream_request`: 16 blocks).
const STREAM_BYTES: u64 = 16 * PAGE_BYTES;
const MIB: u64 = 1 << 20;

/// A file or directory.
pub struct Ext4Node {
    /// Its inode on the device.
    pub slot: u64,
    /// Where its pages lie.
    pub tree: ExtentTree,
    /// Blocks taken from the free ones to go on with; nothing on the device says so.
    window: Option<Blocks>,
    /// Its entries, if it is a directory.
    pub directory: Option<Directory>,
    /// When its times last changed, in ticks.
    pub tick: u64,
    /// The transaction with its last change.
    pub sync_id: u64,
    /// The transaction with its last change that is needed to find data.
    pub datasync_id: u64,
}

impl Ext4Node {
    /// Without data.
    pub fn new(slot: u64, is_directory: bool) -> Ext4Node {
        Ext4Node {
            slot,
            tree: ExtentTree::new(TREE),
            window: None,
            directory: is_directory.then(Directory::default),
            tick: u64::MAX,
            sync_id: 0,
            datasync_id: 0,
        }
    }

    #[cfg(test)]
    /// Blocks that it has, of data and of extents, and those kept to go on with.
    pub fn all_blocks(&self) -> Vec<Blocks> {
        let data = self.tree.extents.iter().map(|run| Blocks { first: run.block, count: run.count });
        let tree = self.tree.blocks().map(|first| Blocks { first, count: 1 });
        data.chain(tree).chain(self.window).collect()
    }
}

/// What an operation changes: filled in while it is decided, journaled afterwards.
#[derive(Default)]
pub struct Ext4Change {
    /// The transaction.
    pub id: u64,
    /// Metadata blocks that change; whether they are new.
    pub blocks: BTreeMap<u64, bool>,
    /// Metadata blocks that are no longer.
    pub forgotten: Vec<u64>,
    /// Blocks that are free once this has been committed.
    pub freed: Vec<Blocks>,
    /// Blocks with data that must be on the device before the commit, and their causes.
    pub ordered: Option<(InodeNumber, Blocks)>,
}

impl Ext4Change {
    /// A block changes.
    pub fn touch(&mut self, block: u64) {
        self.blocks.entry(block).or_insert(false);
    }
}

/// Everything that is known of files and free space.
pub struct Ext4State {
    /// Where things are.
    pub layout: Ext4Layout,
    /// What is free.
    pub allocator: Allocator,
    /// Files and directories.
    pub nodes: BTreeMap<InodeNumber, Ext4Node>,
    /// Classes of metadata blocks without a fixed place.
    pub classes: BTreeMap<u64, Class>,
}

impl Ext4State {
    /// The inode's block changes, for data or only for times.
    pub fn touch_inode(&mut self, change: &mut Ext4Change, number: InodeNumber, is_for_data: bool) {
        let node = self.nodes.get_mut(&number).expect("the inode exists");
        node.sync_id = change.id;
        if is_for_data {
            node.datasync_id = change.id;
        }
        change.touch(self.layout.inode_block(node.slot));
    }

    fn touch_bitmaps(&self, change: &mut Ext4Change, blocks: Blocks) {
        for piece in by_group(blocks) {
            let group = group_of(piece.first);
            change.touch(self.layout.block_bitmap(group));
            change.touch(self.layout.descriptor(group));
        }
    }

    /// An inode's bitmap and group descriptor change.
    pub fn touch_slot(&self, change: &mut Ext4Change, slot: u64) {
        let group = slot / super::layout::GROUP_INODES;
        change.touch(self.layout.inode_bitmap(group));
        change.touch(self.layout.descriptor(group));
    }

    /// Gives the first of `pages`, which have no place, one; and as many after it as lie in one piece.
    pub fn allocate(
        &mut self,
        change: &mut Ext4Change,
        number: InodeNumber,
        pages: PageRange,
        is_unwritten: bool,
    ) -> Run {
        let blocks = self.choose(number, pages);
        self.touch_bitmaps(change, blocks);
        let run = Run { page: pages.first, block: blocks.first, count: blocks.count, is_unwritten };
        let node = self.nodes.get_mut(&number).expect("the inode exists");
        node.tree.extents.insert(run);
        self.tree_changed(change, number, pages.first);
        self.touch_inode(change, number, true);
        run
    }

    /// Blocks for `pages`: after those of the pages before, from the file's window if it goes on there.
    fn choose(&mut self, number: InodeNumber, pages: PageRange) -> Blocks {
        let node = self.nodes.get_mut(&number).expect("the inode exists");
        let count = pages.count.min(EXTENT_PAGES_MAX);
        let before = node.tree.extents.before(pages.first).copied();
        let goal = before.map_or_else(
            || self.allocator.first_goal(node.slot, node.directory.is_some()),
            |run| run.block + (pages.first - run.page),
        );
        if let Some(window) = node.window.take() {
            if window.first == goal {
                let used = Blocks { first: goal, count: count.min(window.count) };
                let rest = Blocks { first: used.end(), count: window.count - used.count };
                node.window = (rest.count > 0).then_some(rest);
                return used;
            }
            self.allocator.release(window);
        }
        let is_appended = before.is_none_or(|run| run.end() == pages.first);
        let bytes = (pages.first + count) * PAGE_BYTES;
        let wanted = if is_appended { count.max(window_pages(bytes)) } else { count };
        let taken = self.allocator.take(goal, wanted);
        let used = Blocks { first: taken.first, count: count.min(taken.count) };
        if taken.count > used.count {
            node.window = Some(Blocks { first: used.end(), count: taken.count - used.count });
        }
        used
    }

    /// The records of `page` changed, or their number: blocks of extents come and go.
    pub fn tree_changed(&mut self, change: &mut Ext4Change, number: InodeNumber, page: u64) {
        let node = self.nodes.get_mut(&number).expect("the inode exists");
        let goal = node.tree.extents.before(u64::MAX).map_or(0, |run| run.block + run.count);
        let mut taken = Vec::new();
        let freed = node.tree.fit(|| {
            let block = self.allocator.take(goal, 1);
            taken.push(block);
            block.first
        });
        if let Some(leaf) = node.tree.leaf(page) {
            change.touch(leaf);
        }
        for block in taken {
            self.classes.insert(block.first, class::INDIRECT);
            change.blocks.insert(block.first, true);
            self.touch_bitmaps(change, block);
        }
        for block in freed {
            self.free_metadata(change, block);
        }
    }

    /// A metadata block is given back.
    pub fn free_metadata(&mut self, change: &mut Ext4Change, block: u64) {
        self.classes.remove(&block);
        change.blocks.remove(&block);
        change.forgotten.push(block);
        self.free(change, Blocks { first: block, count: 1 });
    }

    fn free(&mut self, change: &mut Ext4Change, blocks: Blocks) {
        self.touch_bitmaps(change, blocks);
        change.freed.push(blocks);
    }

    /// A file loses its pages from `first` on, and what it keeps to go on with.
    pub fn cut(&mut self, change: &mut Ext4Change, number: InodeNumber, first: u64) {
        let node = self.nodes.get_mut(&number).expect("the inode exists");
        if let Some(window) = node.window.take() {
            self.allocator.release(window);
        }
        let removed = node.tree.extents.remove(PageRange { first, count: u64::MAX - first });
        let is_directory = node.directory.is_some();
        for run in removed {
            if is_directory {
                (run.block..run.block + run.count).for_each(|block| self.free_metadata(change, block));
            } else {
                self.free(change, Blocks { first: run.block, count: run.count });
            }
        }
        self.tree_changed(change, number, first);
    }

    /// The block of a directory with entry `inode`, which is added; it may be a new block.
    pub fn add_entry(&mut self, change: &mut Ext4Change, directory: InodeNumber, inode: InodeNumber) {
        let node = self.nodes.get_mut(&directory).expect("the directory exists");
        let index = node.directory.as_mut().expect("it is a directory").add(inode) as u64;
        match node.tree.extents.find(PageRange { first: index, count: 1 }) {
            Ok(run) => change.touch(run.block),
            Err(_) => self.add_directory_block(change, directory, index),
        }
        self.touch_inode(change, directory, true);
    }

    /// A directory gets its block numbered `index`.
    pub fn add_directory_block(&mut self, change: &mut Ext4Change, directory: InodeNumber, index: u64) {
        let run = self.allocate(change, directory, PageRange { first: index, count: 1 }, false);
        self.classes.insert(run.block, class::DIRECTORY);
        change.blocks.insert(run.block, true);
    }

    /// The block of a directory with entry `inode`, which is taken out.
    pub fn remove_entry(&mut self, change: &mut Ext4Change, directory: InodeNumber, inode: InodeNumber) {
        let node = self.nodes.get_mut(&directory).expect("the directory exists");
        let index = node.directory.as_mut().expect("it is a directory").remove(inode) as u64;
        let run = node.tree.extents.find(PageRange { first: index, count: 1 }).expect("the directory has this block");
        change.touch(run.block);
        self.touch_inode(change, directory, true);
    }

    /// The blocks of all directories.
    pub fn directory_blocks(&self) -> impl Iterator<Item = u64> {
        let directories = self.nodes.values().filter(|node| node.directory.is_some());
        directories.flat_map(|node| node.tree.extents.iter().flat_map(|run| run.block..run.block + run.count))
    }
}

/// Pages that a file of so many bytes is given at once (`ext4_mb_normalize_request`).
fn window_pages(bytes: u64) -> u64 {
    let window = match bytes.div_ceil(MIB) {
        _ if bytes <= STREAM_BYTES => 0,
        0..=1 => bytes.next_power_of_two(),
        2..=4 => 2 * MIB,
        5..=8 => 4 * MIB,
        _ => 8 * MIB,
    };
    window / PAGE_BYTES
}
