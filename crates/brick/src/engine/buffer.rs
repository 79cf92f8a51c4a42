//! Buffers: where a request's bytes lie between the front end and the backend.
//!
//! Each front end has an **arena** of its own, one reservation of address space cut into slots of a few sizes. So a
//! tenant that never reads its replies runs out of its own buffers and of nobody else's, and what a connection can take
//! is known when it is attached. Address space that was never touched costs no memory.
//!
//! Every slot is [`HEADROOM_BYTES`] of room, then page-aligned data: a front end whose messages carry a header before
//! the payload receives both at once and the payload still lies where O_DIRECT wants it.
//!
//! ```text
//!   | headroom 4 KiB | data 4 KiB | headroom | data | ...  | headroom | data 64 KiB | ...
//!                    ^ page-aligned                                   ^ page-aligned
//! ```

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// Bytes before the data of every buffer that a front end may use for a header; one page, so that data stays aligned.
pub const HEADROOM_BYTES: usize = 4096;
/// Slots of this size or more give their memory back to the kernel when they are given back, bytes: they are rare, and
/// one kept warm would cost more than all small ones together.
const RETURNED_BYTES_MIN: u32 = 4 << 20;

/// A number of buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferClass {
    /// Bytes of data that one holds; a multiple of 4096.
    pub bytes: u32,
    /// How many there are.
    pub count: u16,
}

/// One buffer of the front end's arena. Whoever has it owns its bytes; give it back with
/// [`Port::give_buffer`](super::Port::give_buffer) or pass it on in a [`Submission`](super::Submission).
///
/// One that is dropped instead is lost to its arena, and the arena's memory then is never unmapped.
#[derive(Debug)]
#[must_use = "a buffer that is dropped is lost to its arena"]
pub struct Buffer {
    data: NonNull<u8>,
    capacity: u32,
    class: u8,
    slot: u16,
}

// SAFETY: a buffer is the only handle to its bytes, and they stay mapped as long as any buffer is out (`Arena::drop`).
unsafe impl Send for Buffer {}

impl Buffer {
    /// Bytes of data that fit; at least what was asked for.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Where the data begin: page-aligned, with [`HEADROOM_BYTES`] of room before it that belong to the buffer too.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// As [`as_mut_ptr`](Self::as_mut_ptr), to read.
    pub fn as_ptr(&self) -> *const u8 {
        self.data.as_ptr()
    }

    /// The data.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the slot holds `capacity` initialised bytes (anonymous memory starts as zeroes), and we own them.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.capacity as usize) }
    }

    /// Headroom and data as one slice: the data begin at [`HEADROOM_BYTES`].
    pub fn with_headroom(&self) -> &[u8] {
        // SAFETY: every slot is laid out as headroom, then data, all of it mapped and owned by this handle.
        unsafe {
            let start = self.data.as_ptr().sub(HEADROOM_BYTES);
            std::slice::from_raw_parts(start, HEADROOM_BYTES + self.capacity as usize)
        }
    }
}

/// The buffers of one front end. Taking and giving back are O(classes), which are two to four.
pub(crate) struct Arena {
    base: NonNull<u8>,
    length: usize,
    classes: Vec<Class>,
    out: usize,
}

// SAFETY: the arena owns its mapping; nothing in it is tied to a thread.
unsafe impl Send for Arena {}

struct Class {
    bytes: u32,
    /// First slot's distance from the base.
    start: usize,
    /// Free slots, the one given back last on top: it is still in the processor's cache.
    free: Vec<u16>,
}

impl Class {
    fn stride(&self) -> usize {
        HEADROOM_BYTES + self.bytes as usize
    }
}

impl Arena {
    /// Reserves address space for `layout`, whose sizes ascend.
    ///
    /// # Errors
    /// What mmap says, out of memory above all.
    pub(crate) fn new(layout: &[BufferClass]) -> io::Result<Arena> {
        let mut length = 0;
        let mut classes = Vec::with_capacity(layout.len());
        for class in layout {
            debug_assert!(class.bytes.is_multiple_of(4096));
            let free = (0..class.count).rev().collect();
            classes.push(Class { bytes: class.bytes, start: length, free });
            length += (HEADROOM_BYTES + class.bytes as usize) * usize::from(class.count);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let base = NonNull::new(base.cast()).expect("mmap never answers with null");
        Ok(Arena { base, length, classes, out: 0 })
    }

    /// A buffer for `bytes`, from the smallest class that has one free.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<Buffer> {
        let fits = |class: &Class| class.bytes >= bytes && !class.free.is_empty();
        let number = self.classes.iter().position(fits)?;
        let class = &mut self.classes[number];
        let slot = class.free.pop()?;
        let offset = class.start + usize::from(slot) * class.stride() + HEADROOM_BYTES;
        self.out += 1;
        // SAFETY: the slot lies inside the mapping, which `new` made long enough for all slots.
        let data = unsafe { self.base.add(offset) };
        Some(Buffer { data, capacity: class.bytes, class: number as u8, slot })
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let class = &mut self.classes[usize::from(buffer.class)];
        let offset = class.start + usize::from(buffer.slot) * class.stride() + HEADROOM_BYTES;
        // SAFETY: as in `take`; only the address is compared.
        assert_eq!(unsafe { self.base.add(offset) }, buffer.data, "a buffer came back to an arena that is not its own");
        class.free.push(buffer.slot);
        self.out -= 1;
        if class.bytes >= RETURNED_BYTES_MIN {
            // SAFETY: the slot's bytes belong to nobody now. A refusal only means that the memory is kept.
            let _ = unsafe { madvise(buffer.data.as_ptr().cast(), class.bytes as usize, Advice::LinuxDontneedLocked) };
        }
    }

    /// Buffers that are taken and not yet given back.
    #[cfg(test)]
    pub(crate) fn out(&self) -> usize {
        self.out
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.out > 0 {
            tracing::error!(buffers = self.out, "buffers were lost; their arena stays mapped");
            return;
        }
        // SAFETY: the mapping is ours, and no buffer points into it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: &[BufferClass] = &[BufferClass { bytes: 4096, count: 2 }, BufferClass { bytes: 8 << 20, count: 1 }];

    #[test]
    fn slots_do_not_overlap_and_are_aligned() {
        let mut arena = Arena::new(LAYOUT).unwrap();
        let mut buffers = Vec::new();
        while let Some(mut buffer) = arena.take(1) {
            assert_eq!(buffer.as_ptr().align_offset(4096), 0);
            let mark = buffers.len() as u8 + 1;
            buffer.as_mut_slice().fill(mark);
            buffers.push(buffer);
        }
        assert_eq!(buffers.iter().map(Buffer::capacity).collect::<Vec<_>>(), [4096, 4096, 8 << 20]);
        for (index, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.with_headroom()[..HEADROOM_BYTES].iter().all(|&byte| byte == 0), "headroom is its own");
            assert!(buffer.as_mut_slice().iter().all(|&byte| byte == index as u8 + 1));
        }
        assert_eq!(arena.out(), 3);
        buffers.into_iter().for_each(|buffer| arena.give(buffer));
        assert_eq!(arena.out(), 0);
    }

    #[test]
    fn a_class_that_is_empty_is_helped_by_the_next_and_the_largest_has_a_limit() {
        let mut arena = Arena::new(LAYOUT).unwrap();
        assert!(arena.take((8 << 20) + 1).is_none());
        let taken: Vec<_> = (0..3).map(|_| arena.take(4096).unwrap()).collect();
        assert!(arena.take(1).is_none());
        taken.into_iter().for_each(|buffer| arena.give(buffer));
        let large = arena.take(4097).unwrap();
        assert_eq!(large.capacity(), 8 << 20);
        arena.give(large);
    }

    #[test]
    #[should_panic(expected = "not its own")]
    fn a_foreign_buffer_is_noticed() {
        let (mut one, mut other) = (Arena::new(LAYOUT).unwrap(), Arena::new(LAYOUT).unwrap());
        let buffer = one.take(1).unwrap();
        other.give(buffer);
    }
}
