//! Memory: page frames, and the order in which they are given up.
//!
//! There are two lists as in Linux (`mm/vmscan.c`). A page comes to the inactive list, and moves to the active list at
//! its second use (`mark_page_accessed`). Memory is taken from the end of the inactive list. When that is shorter than
//! the active list, the active list gives pages back to it. So a file read once does not push out what is used often.
//!
//! The complication: a dirty page, or one that a process reads or writes, cannot be taken. As in Linux since 4.14 it
//! goes to the active list, so that the next scan of the inactive list does not meet it again.

/// Number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId(u32);

impl FrameId {
    /// No frame.
    pub const NONE: FrameId = FrameId(u32::MAX);
}

use super::causes::CauseId;

/// The page is being read: no process may use it yet.
pub const LOCKED: u8 = 1;
/// Dirty.
pub const DIRTY: u8 = 2;
/// Being written.
pub const WRITEBACK: u8 = 4;
/// Used once since it came to its list.
pub const REFERENCED: u8 = 8;
/// On the active list.
pub const ACTIVE: u8 = 16;
/// Held by the file system: neither written nor taken.
pub const PINNED: u8 = 32;
/// The first use of this page starts the next read-ahead.
pub const READ_AHEAD: u8 = 64;

const BUSY: u8 = LOCKED | DIRTY | WRITEBACK | PINNED;

/// One page of memory.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The file of the page that it holds.
    pub inode: u32,
    /// Which page of the file.
    pub page: u32,
    /// The causes that dirtied it.
    pub causes: CauseId,
    /// See the constants.
    pub flags: u8,
    newer: u32,
    older: u32,
}

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
    length: u32,
}

impl List {
    const EMPTY: List = List { newest: NIL, oldest: NIL, length: 0 };
}

/// All frames.
pub struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
    capacity: u32,
    /// Inactive and active.
    lists: [List; 2],
}

impl Frames {
    /// Memory of so many pages.
    pub fn new(capacity: u32) -> Frames {
        Frames { frames: Vec::new(), free: Vec::new(), capacity, lists: [List::EMPTY; 2] }
    }

    /// Pages of memory.
    pub fn capacity(&self) -> u64 {
        u64::from(self.capacity)
    }

    /// Frames that hold nothing.
    pub fn free(&self) -> u64 {
        u64::from(self.capacity) - self.frames.len() as u64 + self.free.len() as u64
    }

    /// The frame numbered `id`.
    #[inline]
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// The frame numbered `id`, to change its flags and causes.
    #[inline]
    pub fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id.0 as usize]
    }

    /// A free frame for a page, on the inactive list; `None` if there is none.
    pub fn allocate(&mut self, inode: u32, page: u32) -> Option<FrameId> {
        let frame = Frame { inode, page, causes: CauseId::NONE, flags: 0, newer: NIL, older: NIL };
        let index = match self.free.pop() {
            Some(index) => {
                self.frames[index as usize] = frame;
                index
            }
            None if (self.frames.len() as u64) < u64::from(self.capacity) => {
                self.frames.push(frame);
                self.frames.len() as u32 - 1
            }
            None => return None,
        };
        self.push_newest(index);
        Some(FrameId(index))
    }

    /// Gives a frame back.
    pub fn release(&mut self, id: FrameId) {
        self.unlink(id.0);
        self.free.push(id.0);
    }

    /// The page is used.
    #[inline]
    pub fn touch(&mut self, id: FrameId) {
        let flags = self.frames[id.0 as usize].flags;
        if flags & REFERENCED == 0 {
            self.frames[id.0 as usize].flags |= REFERENCED;
        } else if flags & ACTIVE == 0 {
            self.move_to(id.0, true);
        }
    }

    /// The frame to give up next, if one can be: the oldest inactive that no process needs.
    pub fn victim(&mut self) -> Option<FrameId> {
        // Each page is looked at once on each list at the most.
        for _ in 0..2 * (self.lists[0].length + self.lists[1].length) {
            let [inactive, active] = self.lists;
            if inactive.length < active.length || inactive.length == 0 {
                self.move_to(self.lists[1].oldest, false);
            }
            let oldest = self.lists[0].oldest;
            if oldest == NIL {
                return None;
            }
            if self.frames[oldest as usize].flags & BUSY == 0 {
                return Some(FrameId(oldest));
            }
            self.move_to(oldest, true);
        }
        None
    }

    fn move_to(&mut self, index: u32, is_active: bool) {
        if index == NIL {
            return;
        }
        self.unlink(index);
        let frame = &mut self.frames[index as usize];
        frame.flags &= !(REFERENCED | ACTIVE);
        frame.flags |= if is_active { ACTIVE } else { 0 };
        self.push_newest(index);
    }

    fn push_newest(&mut self, index: u32) {
        let list = usize::from(self.frames[index as usize].flags & ACTIVE != 0);
        let second = std::mem::replace(&mut self.lists[list].newest, index);
        self.lists[list].length += 1;
        let frame = &mut self.frames[index as usize];
        (frame.newer, frame.older) = (NIL, second);
        match second {
            NIL => self.lists[list].oldest = index,
            second => self.frames[second as usize].newer = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let Frame { newer, older, flags, .. } = self.frames[index as usize];
        let list = usize::from(flags & ACTIVE != 0);
        self.lists[list].length -= 1;
        match newer {
            NIL => self.lists[list].newest = older,
            newer => self.frames[newer as usize].older = older,
        }
        match older {
            NIL => self.lists[list].oldest = newer,
            older => self.frames[older as usize].newer = newer,
        }
    }
}
