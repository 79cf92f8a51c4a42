//! Files, free space and inodes as XFS knows them, and what changes with an operation.

use super::layout::XfsLayout;
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange};
use crate::executor::wait::Semaphore;
use crate::fs::class;
use crate::fs::directory::Directory;
use crate::fs::extent_tree::{ExtentTree, TreeShape};
use crate::fs::extents::Run;
use crate::fs::space::{Blocks, Space};
use plimsoll_core::Class;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Pages of an extent at the most: 2^21 - 1 (`MAXEXTLEN`).
pub const EXTENT_PAGES_MAX: u64 = (1 << 21) - 1;
/// An inode of 512 bytes holds 21 records of 16 bytes, a block 251 after a header of 72.
const TREE: TreeShape = TreeShape { inode_records: 21, block_records: 251, extent_pages_max: EXTENT_PAGES_MAX };
/// Inodes are allocated 64 at once (`XFS_INODES_PER_CHUNK`), 8 in a block.
const CHUNK_INODES: u32 = u64::BITS;
const BLOCK_INODES: u64 = 8;
const CHUNK_BLOCKS: u64 = CHUNK_INODES as u64 / BLOCK_INODES;
/// Pages that a growing file gets beyond its end: as many as it has, within these bounds. They are 64 KiB
/// (`m_allocsize_blocks`) and, instead of 8 GiB, 16 MiB, because no process here closes files, which would give them
/// back.
const AHEAD_PAGES_MIN: u64 = 16;
const AHEAD_PAGES_MAX: u64 = (16 << 20) / PAGE_BYTES;
/// Bytes in the log: of a changed inode (`xfs_inode_log_format` and core) and each record of its extents. Of a change
/// to a block: format and two stretches of 128 (`XFS_BLF_CHUNK`).
const LOG_INODE_BYTES: u32 = 56 + 176;
const LOG_RECORD_BYTES: u32 = 16;
const LOG_BLOCK_BYTES: u32 = 24 + 2 * 128;

/// A file or directory.
pub struct XfsNode {
    chunk: u64,
    /// Which inode of its chunk.
    index: u32,
    /// Where its pages lie.
    pub tree: ExtentTree,
    /// Its entries, if it is a directory.
    pub directory: Option<Directory>,
    /// Its size as the log knows it.
    pub size: u64,
    /// When its times last changed, in ticks.
    pub tick: u64,
    /// The checkpoint with its last change.
    pub sync_id: u64,
    /// The checkpoint with its last change but of times.
    pub datasync_id: u64,
    /// Held from a decision until it is in the log's list (`XFS_ILOCK`).
    pub lock: Rc<Semaphore>,
}

impl XfsNode {
    fn new((chunk, index): (u64, u32), is_directory: bool) -> XfsNode {
        XfsNode {
            chunk,
            index,
            tree: ExtentTree::new(TREE),
            directory: is_directory.then(Directory::default),
            size: 0,
            tick: u64::MAX,
            sync_id: 0,
            datasync_id: 0,
            lock: Rc::new(Semaphore::new(1)),
        }
    }

    /// The block with its inode.
    pub fn inode_block(&self) -> u64 {
        self.chunk + u64::from(self.index) / BLOCK_INODES
    }

    /// Blocks that it has, of data and of extents.
    #[cfg(test)]
    pub fn all_blocks(&self) -> Vec<Blocks> {
        let data = self.tree.extents.iter().map(|run| Blocks { first: run.block, count: run.count });
        data.chain(self.tree.blocks().map(|first| Blocks { first, count: 1 })).collect()
    }
}

/// What is logged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A block.
    Block(u64),
    /// An inode, without the others in its block.
    Inode(InodeNumber),
}

/// A change to an item.
#[derive(Clone, Copy, Debug)]
pub struct ItemChange {
    /// The block that it is written to in the end.
    pub block: u64,
    /// Whether that has nothing worth reading.
    pub is_new: bool,
    /// Bytes in the log.
    pub bytes: u32,
}

/// What an operation changes: filled in while it is decided, logged afterwards.
#[derive(Default)]
pub struct XfsChange {
    /// Items.
    pub items: BTreeMap<Item, ItemChange>,
    /// Inodes that changed, and whether more than their times did.
    pub inodes: BTreeMap<InodeNumber, bool>,
    /// Metadata blocks that are no longer.
    pub forgotten: Vec<u64>,
    /// Blocks that are free once this is in the log.
    pub freed: Vec<Blocks>,
}

impl XfsChange {
    /// A block changes.
    pub fn touch(&mut self, block: u64) {
        let change = ItemChange { block, is_new: false, bytes: LOG_BLOCK_BYTES };
        self.items.entry(Item::Block(block)).or_insert(change);
    }

    /// A block is new: all of it is logged.
    pub fn create(&mut self, block: u64) {
        self.items.insert(Item::Block(block), ItemChange { block, is_new: true, bytes: PAGE_BYTES as u32 });
    }
}

/// Everything that is known of files and free space.
pub struct XfsState {
    /// Where things are.
    pub layout: XfsLayout,
    spaces: Vec<Space>,
    /// Chunks of inodes by first block: which inodes are in use.
    chunks: BTreeMap<u64, u64>,
    /// Where the next directory in the root goes (`m_agirotor`).
    rotor: u64,
    /// Files and directories.
    pub nodes: BTreeMap<InodeNumber, XfsNode>,
    /// Classes of metadata blocks without a fixed place.
    pub classes: BTreeMap<u64, Class>,
}

impl XfsState {
    /// A file system that holds nothing.
    pub fn new(layout: XfsLayout) -> XfsState {
        let mut spaces = vec![Space::default(); layout.groups as usize];
        for (group, space) in (0..).zip(&mut spaces) {
            layout.free(group).into_iter().for_each(|blocks| space.release(blocks));
        }
        XfsState { layout, spaces, chunks: BTreeMap::new(), rotor: 0, nodes: BTreeMap::new(), classes: BTreeMap::new() }
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.spaces.iter().map(Space::free).sum()
    }

    /// Whether `block` is free.
    #[cfg(test)]
    pub fn is_free(&self, block: u64) -> bool {
        self.spaces[self.layout.group_of(block) as usize].is_free(block)
    }

    /// Gives blocks back.
    pub fn release(&mut self, blocks: Blocks) {
        self.spaces[self.layout.group_of(blocks.first) as usize].release(blocks);
    }

    /// Takes at least one and at most `count_max` blocks in one piece, at `goal` or near it.
    ///
    /// # Panics
    /// If the device is full.
    fn take(&mut self, change: &mut XfsChange, goal: u64, count_max: u64) -> Blocks {
        let groups = self.layout.groups;
        let first_group = self.layout.group_of(goal);
        let mut taken = self.spaces[first_group as usize].take_at(goal, count_max);
        let mut count = count_max;
        while taken.is_none() && count > 0 {
            let order = (0..groups).map(|step| (first_group + step) % groups);
            taken = order.into_iter().find_map(|group| self.spaces[group as usize].take_near(goal, count));
            count /= 2;
        }
        let capacity = groups * self.layout.group_blocks;
        let taken = taken.unwrap_or_else(|| panic!("the device is full: none of {capacity} blocks is free"));
        self.touch_space(change, taken.first);
        taken
    }

    fn touch_space(&self, change: &mut XfsChange, block: u64) {
        self.layout.space_blocks(self.layout.group_of(block)).into_iter().for_each(|block| change.touch(block));
    }

    fn free(&mut self, change: &mut XfsChange, blocks: Blocks) {
        self.touch_space(change, blocks.first);
        change.freed.push(blocks);
    }

    /// A metadata block is given back.
    fn free_metadata(&mut self, change: &mut XfsChange, block: u64) {
        self.classes.remove(&block);
        change.items.retain(|_, item| item.block != block);
        change.forgotten.push(block);
        self.free(change, Blocks { first: block, count: 1 });
    }

    /// An inode changes, in more than its times or not.
    pub fn touch_inode(&mut self, change: &mut XfsChange, number: InodeNumber, is_for_data: bool) {
        let node = &self.nodes[&number];
        let records = node.tree.extents.len().min(TREE.inode_records) as u32;
        let bytes = LOG_INODE_BYTES + LOG_RECORD_BYTES * records;
        let is_new = change.items.get(&Item::Inode(number)).is_some_and(|item| item.is_new);
        change.items.insert(Item::Inode(number), ItemChange { block: node.inode_block(), is_new, bytes });
        *change.inodes.entry(number).or_default() |= is_for_data;
    }

    /// Makes an inode: a file's in its directory's group, a directory's in the next (`xfs_dialloc`).
    pub fn make(
        &mut self,
        change: &mut XfsChange,
        number: InodeNumber,
        parent: Option<InodeNumber>,
        is_directory: bool,
    ) {
        let near = parent.map_or(0, |parent| self.nodes[&parent].chunk);
        let group = if is_directory && parent.is_some() {
            self.rotor = (self.rotor + 1) % self.layout.groups;
            self.rotor
        } else {
            self.layout.group_of(near)
        };
        let (chunk, is_new) = self.chunk_with_room(change, group);
        let used = self.chunks.get_mut(&chunk).expect("just found");
        let index = used.trailing_ones();
        *used |= 1 << index;
        self.layout.inode_blocks(group).into_iter().for_each(|block| change.touch(block));
        self.nodes.insert(number, XfsNode::new((chunk, index), is_directory));
        self.touch_inode(change, number, true);
        change.items.get_mut(&Item::Inode(number)).expect("just touched").is_new = is_new;
    }

    /// A chunk of `group` with a free inode: one that exists, or a new one with blocks that need not be read.
    fn chunk_with_room(&mut self, change: &mut XfsChange, group: u64) -> (u64, bool) {
        let (start, end) = (self.layout.start(group), self.layout.start(group + 1));
        if let Some((&chunk, _)) = self.chunks.range(start..end).find(|&(_, &used)| used != u64::MAX) {
            return (chunk, false);
        }
        let taken = self.spaces[group as usize].take_near(start, CHUNK_BLOCKS);
        let chunk = taken.unwrap_or_else(|| panic!("allocation group {group} has no room for inodes")).first;
        self.touch_space(change, chunk);
        self.chunks.insert(chunk, 0);
        self.classes.extend((chunk..chunk + CHUNK_BLOCKS).map(|block| (block, class::INODE)));
        // Their first content goes to the log as one small item (`xfs_icreate_log`), and to the blocks with the rest.
        (chunk..chunk + CHUNK_BLOCKS).for_each(|block| {
            change.items.insert(Item::Block(block), ItemChange { block, is_new: true, bytes: 0 });
        });
        (chunk, true)
    }

    /// An inode is gone; with the last of a chunk its blocks go (mount option `noikeep`, the default).
    pub fn unmake(&mut self, change: &mut XfsChange, number: InodeNumber) {
        let node = self.nodes.remove(&number).expect("the inode exists");
        self.layout.inode_blocks(self.layout.group_of(node.chunk)).into_iter().for_each(|block| change.touch(block));
        let used = self.chunks.get_mut(&node.chunk).expect("its chunk exists");
        *used &= !(1 << node.index);
        if *used == 0 {
            self.chunks.remove(&node.chunk);
            (node.chunk..node.chunk + CHUNK_BLOCKS).for_each(|block| self.free_metadata(change, block));
        }
    }

    /// Gives the first of `pages`, which have no place, a place, and as many after it as lie in one piece. A file that
    /// grows gets some beyond (`xfs_iomap_prealloc_size`). All are unwritten, those of directories written.
    pub fn allocate(&mut self, change: &mut XfsChange, number: InodeNumber, pages: PageRange) -> Run {
        let node = &self.nodes[&number];
        let count = pages.count.min(EXTENT_PAGES_MAX);
        let before = node.tree.extents.before(pages.first).copied();
        let goal = before.map_or(node.inode_block(), |run| run.block + (pages.first - run.page));
        let last = node.tree.extents.before(u64::MAX).map_or(0, Run::end);
        let is_directory = node.directory.is_some();
        let is_growing = !is_directory && pages.first > 0 && pages.first >= last;
        let ahead = if is_growing { pages.first.clamp(AHEAD_PAGES_MIN, AHEAD_PAGES_MAX) } else { 0 };
        let taken = self.take(change, goal, count + ahead);
        let run = Run { page: pages.first, block: taken.first, count: taken.count, is_unwritten: !is_directory };
        self.nodes.get_mut(&number).expect("as before").tree.extents.insert(run);
        self.tree_changed(change, number, pages.first);
        Run { count: count.min(run.count), ..run }
    }

    /// The records of `page` changed, or their number: blocks of records come and go, and the inode changes.
    pub fn tree_changed(&mut self, change: &mut XfsChange, number: InodeNumber, page: u64) {
        let mut node = self.nodes.remove(&number).expect("the inode exists");
        let goal = node.tree.extents.before(u64::MAX).map_or(node.inode_block(), |run| run.block + run.count);
        let freed = node.tree.fit(|| {
            let block = self.take(change, goal, 1).first;
            self.classes.insert(block, class::INDIRECT);
            change.create(block);
            block
        });
        if let Some(leaf) = node.tree.leaf(page) {
            change.touch(leaf);
        }
        self.nodes.insert(number, node);
        freed.into_iter().for_each(|block| self.free_metadata(change, block));
        self.touch_inode(change, number, true);
    }

    /// A file loses its pages from `first` on.
    pub fn cut(&mut self, change: &mut XfsChange, number: InodeNumber, first: u64) {
        let node = self.nodes.get_mut(&number).expect("the inode exists");
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

    /// Adds an entry to a directory, in a new block if the others are full.
    pub fn add_entry(&mut self, change: &mut XfsChange, directory: InodeNumber, inode: InodeNumber) {
        let node = self.nodes.get_mut(&directory).expect("the directory exists");
        let index = node.directory.as_mut().expect("it is a directory").add(inode) as u64;
        self.touch_inode(change, directory, true);
        let page = PageRange { first: index, count: 1 };
        match self.nodes[&directory].tree.extents.find(page) {
            Ok(run) => change.touch(run.block),
            Err(_) => {
                let run = self.allocate(change, directory, page);
                self.classes.insert(run.block, class::DIRECTORY);
                change.create(run.block);
            }
        }
    }

    /// Takes an entry out of a directory.
    pub fn remove_entry(&mut self, change: &mut XfsChange, directory: InodeNumber, inode: InodeNumber) {
        let node = self.nodes.get_mut(&directory).expect("the directory exists");
        let index = node.directory.as_mut().expect("it is a directory").remove(inode) as u64;
        let run = node.tree.extents.find(PageRange { first: index, count: 1 }).expect("the directory has this block");
        change.touch(run.block);
        self.touch_inode(change, directory, true);
    }
}
