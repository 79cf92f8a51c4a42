//! Names and sizes: what each operation changes.

use super::Ext4;
use super::layout::Ext4Layout;
use super::node::Ext4Node;
use crate::cache::PAGE_BYTES;
use crate::fs::{Actor, Inode, InodeKind};
use crate::machine::Machine;

impl Ext4 {
    /// creat, mkdir: the directory's block and inode, the new inode with its bitmap and descriptor; for a directory
    /// also its first block (`ext4_create`, `ext4_mkdir`).
    pub(super) async fn make(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        let is_directory = inode.kind == InodeKind::Directory;
        self.change(machine, actor, |state, change| {
            let parent = state.nodes[&directory.number].slot;
            let slot = if is_directory {
                state.allocator.take_directory_slot(parent)
            } else {
                state.allocator.take_file_slot(parent)
            };
            state.nodes.insert(inode.number, Ext4Node::new(slot, is_directory));
            state.touch_slot(change, slot);
            state.touch_inode(change, inode.number, true);
            state.add_entry(change, directory.number, inode.number);
            if is_directory {
                state.add_directory_block(change, inode.number, 0);
            }
        })
        .await;
    }

    /// Reads the entry's block and the inode's.
    pub(super) async fn find(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        let blocks = {
            let state = self.state.borrow();
            let entry = state.nodes.get(&directory.number).and_then(|node| {
                let index = node.directory.as_ref()?.find(inode.number)? as u64;
                node.tree.extents.find(crate::cache::PageRange { first: index, count: 1 }).ok()
            });
            let slot = state.nodes.get(&inode.number).map(|node| state.layout.inode_block(node.slot));
            [entry.map(|run| run.block), slot]
        };
        for block in blocks.into_iter().flatten() {
            machine.read_block(actor, block).await;
        }
    }

    /// unlink, rmdir, and the deletion that follows: the entry, both inodes, the list of orphans that the superblock
    /// heads, and whatever held blocks (`ext4_unlink`, `ext4_evict_inode`).
    pub(super) async fn remove(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        let gone = self
            .change(machine, actor, |state, change| {
                state.remove_entry(change, directory.number, inode.number);
                change.touch(Ext4Layout::SUPERBLOCK);
                state.touch_inode(change, inode.number, true);
                state.cut(change, inode.number, 0);
                let node = state.nodes.remove(&inode.number).expect("just touched");
                state.touch_slot(change, node.slot);
                (node.slot, node.directory.is_some())
            })
            .await;
        self.state.borrow_mut().allocator.release_slot(gone.0, gone.1);
    }

    /// rename: both entries, both directories, and the inode, for its changed time (`ext4_rename`).
    pub(super) async fn move_entry(&self, machine: &Machine, actor: &Actor, from: &Inode, to: &Inode, inode: &Inode) {
        self.change(machine, actor, |state, change| {
            state.remove_entry(change, from.number, inode.number);
            state.add_entry(change, to.number, inode.number);
            state.touch_inode(change, inode.number, false);
        })
        .await;
    }

    /// truncate: the inode; when it shrinks, the list of orphans and whatever held blocks (`ext4_setattr`,
    /// `ext4_truncate`).
    pub(super) async fn cut(&self, machine: &Machine, actor: &Actor, inode: &Inode, bytes: u64) {
        self.change(machine, actor, |state, change| {
            state.touch_inode(change, inode.number, true);
            if bytes < inode.size() {
                change.touch(Ext4Layout::SUPERBLOCK);
                state.cut(change, inode.number, bytes.div_ceil(PAGE_BYTES));
            }
        })
        .await;
    }
}
