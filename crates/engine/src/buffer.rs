//! Buffers: where a request's bytes lie between the front end and the backend.
//!
//! Each front end has an **arena** of its own, one reservation of address space cut into slots of a few sizes. So a
//! tenant that never reads its replies runs out of its own buffers and of no other tenant's. What a connection can take
//! is known when it is attached. Address space that was never touched costs no memory. What was touched is counted,
//! where connections share what there is ([`BufferMemory`]), beyond the little that is each one's own.
//!
//! Every slot is [`HEADROOM_BYTES`] of room, then page-aligned data. So a front end with messages that carry a header
//! before the payload receives both at once. The payload still lies where O_DIRECT wants it.
//!
//! ```text
//!   | headroom 4 KiB | data 4 KiB | headroom | data | ...  | headroom | data 64 KiB | ...
//!                    ^ page-aligned                                   ^ page-aligned
//! ```

use super::buffer_memory::{BufferMemory, HEADROOM_BYTES, OWN_BYTES};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// Smallest slot, in bytes, that gives its memory back to the kernel when it becomes free. Such slots are rare, and one
/// that stays warm costs more than all small ones together.
const RETURNED_BYTES_MIN: u32 = 4 << 20;

/// A number of buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferClass {
    /// Bytes of data that one holds; a multiple of 4096.
    pub bytes: u32,
    /// How many there are.
    pub count: u16,
}

/// One buffer of the front end's arena. Its holder owns its bytes; give it back with
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

    /// Start of the data, page-aligned. The [`HEADROOM_BYTES`] before it belong to the buffer, too.
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

/// What of an arena's memory is taken from what all have together.
fn counted(warm_bytes: u64) -> u64 {
    warm_bytes.saturating_sub(OWN_BYTES)
}

/// The buffers of one front end. Taking and giving back are O(classes), which are two to four.
pub(crate) struct Arena {
    base: NonNull<u8>,
    length: usize,
    classes: Vec<Class>,
    out: usize,
    /// What it takes memory from; nothing where its owner has its own.
    memory: Option<BufferMemory>,
    /// Bytes of slots that take memory.
    warm_bytes: u64,
}

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// All that are large enough are out.
    Slots,
    /// There is a slot, and no memory for it now.
    Memory,
}

// SAFETY: the arena owns its mapping; nothing in it is tied to a thread.
unsafe impl Send for Arena {}

struct Class {
    bytes: u32,
    /// First slot's distance from the base.
    start: usize,
    /// Free slots: first those without memory, then the others. The last returned slot is on top, because it is still
    /// in the processor's cache.
    free: Vec<u16>,
    /// How many of them take no memory.
    cold: usize,
}

impl Class {
    fn stride(&self) -> usize {
        HEADROOM_BYTES + self.bytes as usize
    }
}

impl Arena {
    /// Reserves address space for `layout`, in which sizes ascend.
    ///
    /// # Errors
    /// What mmap says, out of memory above all.
    pub(crate) fn new(layout: &[BufferClass], memory: Option<BufferMemory>) -> io::Result<Arena> {
        let mut length = 0;
        let mut classes = Vec::with_capacity(layout.len());
        for class in layout {
            debug_assert!(class.bytes.is_multiple_of(4096));
            let free = (0..class.count).rev().collect();
            classes.push(Class { bytes: class.bytes, start: length, free, cold: class.count.into() });
            length += (HEADROOM_BYTES + class.bytes as usize) * usize::from(class.count);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let base = NonNull::new(base.cast()).expect("mmap never answers with null");
        Ok(Arena { base, length, classes, out: 0, memory, warm_bytes: 0 })
    }

    /// A buffer for `bytes`, from the smallest class that has one free.
    pub(crate) fn take(&mut self, bytes: u32) -> Result<Buffer, Lack> {
        let fits = |class: &Class| class.bytes >= bytes && !class.free.is_empty();
        let number = self.classes.iter().position(fits).ok_or(Lack::Slots)?;
        if self.classes[number].free.len() == self.classes[number].cold {
            self.warm_up(number)?;
        }
        let class = &mut self.classes[number];
        let slot = class.free.pop().ok_or(Lack::Slots)?;
        let offset = class.start + usize::from(slot) * class.stride() + HEADROOM_BYTES;
        self.out += 1;
        // SAFETY: the slot lies inside the mapping, which `new` made long enough for all slots.
        let data = unsafe { self.base.add(offset) };
        Ok(Buffer { data, capacity: class.bytes, class: number as u8, slot })
    }

    /// Takes memory for one more slot of a class.
    fn warm_up(&mut self, number: usize) -> Result<(), Lack> {
        let stride = self.classes[number].stride() as u64;
        if !self.take_memory(stride) {
            // What is its own may lie idle in slots of other sizes.
            self.trim(usize::MAX);
            if !self.take_memory(stride) {
                return Err(Lack::Memory);
            }
        }
        self.classes[number].cold -= 1;
        self.warm_bytes += stride;
        Ok(())
    }

    fn take_memory(&self, bytes: u64) -> bool {
        let bytes = counted(self.warm_bytes + bytes) - counted(self.warm_bytes);
        bytes == 0 || self.memory.as_ref().is_none_or(|memory| memory.take(bytes))
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let class = &mut self.classes[usize::from(buffer.class)];
        let offset = class.start + usize::from(buffer.slot) * class.stride() + HEADROOM_BYTES;
        // SAFETY: as in `take`; only the address is compared.
        assert_eq!(unsafe { self.base.add(offset) }, buffer.data, "a buffer came back to an arena that is not its own");
        self.out -= 1;
        let is_kept = class.bytes < RETURNED_BYTES_MIN && !self.memory.as_ref().is_some_and(BufferMemory::is_scarce);
        // SAFETY: the slot's bytes belong to no buffer now.
        let returned = |data: NonNull<u8>, length: usize| unsafe {
            madvise(data.as_ptr().cast(), length, Advice::LinuxDontneedLocked)
        };
        if is_kept || returned(buffer.data, class.bytes as usize).is_err() {
            return class.free.push(buffer.slot);
        }
        class.free.insert(class.cold, buffer.slot);
        class.cold += 1;
        let warm_bytes = self.warm_bytes - class.stride() as u64;
        self.memory.iter().for_each(|memory| memory.give(counted(self.warm_bytes) - counted(warm_bytes)));
        self.warm_bytes = warm_bytes;
    }

    /// Gives the memory of up to `slots_max` free slots back to the kernel, least recently used first. Answers how many
    /// slots.
    pub(crate) fn trim(&mut self, slots_max: usize) -> usize {
        let Some(memory) = &self.memory else { return 0 };
        let mut trimmed = 0;
        for class in &mut self.classes {
            while trimmed < slots_max && class.cold < class.free.len() {
                let offset = class.start + usize::from(class.free[class.cold]) * class.stride() + HEADROOM_BYTES;
                // SAFETY: the slot lies inside the mapping, and its bytes belong to no buffer.
                let returned = unsafe {
                    madvise(self.base.add(offset).as_ptr().cast(), class.bytes as usize, Advice::LinuxDontneedLocked)
                };
                if returned.is_err() {
                    return trimmed;
                }
                class.cold += 1;
                let warm_bytes = self.warm_bytes - class.stride() as u64;
                memory.give(counted(self.warm_bytes) - counted(warm_bytes));
                self.warm_bytes = warm_bytes;
                trimmed += 1;
            }
        }
        trimmed
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
        self.memory.iter().for_each(|memory| memory.give(counted(self.warm_bytes)));
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
        let mut arena = Arena::new(LAYOUT, None).unwrap();
        let mut buffers = Vec::new();
        while let Ok(mut buffer) = arena.take(1) {
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
        let mut arena = Arena::new(LAYOUT, None).unwrap();
        assert_eq!(arena.take((8 << 20) + 1).unwrap_err(), Lack::Slots);
        let taken: Vec<_> = (0..3).map(|_| arena.take(4096).unwrap()).collect();
        assert_eq!(arena.take(1).unwrap_err(), Lack::Slots);
        taken.into_iter().for_each(|buffer| arena.give(buffer));
        let large = arena.take(4097).unwrap();
        assert_eq!(large.capacity(), 8 << 20);
        arena.give(large);
    }

    /// Promise: volume-buffer-memory.
    #[test]
    fn memory_is_counted_while_it_is_warm_and_scarce_memory_is_not_kept() {
        const SMALL: BufferClass = BufferClass { bytes: 1 << 20, count: 100 };
        let memory = BufferMemory::new(0);
        let stride = (HEADROOM_BYTES + (1 << 20)) as u64;
        let own = counted(stride).abs_diff(stride);
        let mut arena = Arena::new(&[SMALL], Some(memory.clone())).unwrap();
        let mut fill = || {
            let mut taken = Vec::new();
            loop {
                match arena.take(1 << 20) {
                    Ok(mut buffer) => {
                        assert!(buffer.as_mut_slice()[0] <= 1, "what it was, or nothing");
                        buffer.as_mut_slice()[0] = 1;
                        taken.push(buffer);
                    }
                    Err(lack) => break assert_eq!(lack, Lack::Memory),
                }
            }
            let count = taken.len() as u64;
            assert_eq!(memory.taken_bytes(), count * stride - own);
            taken.drain(..).for_each(|buffer| arena.give(buffer));
            count
        };
        let first = fill();
        let warm = memory.taken_bytes();
        assert_eq!(warm, first * stride - own);
        assert_eq!(fill(), first);
        // Others have so much that what comes back is given back.
        let others = [memory.of_another(), memory.of_another()];
        for other in &others {
            while other.take(stride) {}
        }
        let before = memory.taken_bytes();
        let buffer = arena.take(1).unwrap();
        assert_eq!(memory.taken_bytes(), before, "it was warm");
        arena.give(buffer);
        assert_eq!(memory.taken_bytes(), before - stride);
        // What is not in use is given back on demand.
        assert_eq!((arena.trim(10), memory.taken_bytes()), (10, before - 11 * stride));
        assert_eq!(arena.trim(1000) as u64, first - 11);
        drop(arena);
        assert_eq!(memory.taken_bytes(), before - warm);
    }

    #[test]
    #[should_panic(expected = "not its own")]
    fn a_foreign_buffer_is_noticed() {
        let (mut one, mut other) = (Arena::new(LAYOUT, None).unwrap(), Arena::new(LAYOUT, None).unwrap());
        let buffer = one.take(1).unwrap();
        other.give(buffer);
    }
}
