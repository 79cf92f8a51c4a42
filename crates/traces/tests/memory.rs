//! Memory is bounded however long the trace is. A file of its own, because the allocator is that of the whole process.

use plimsoll_traces::{ReadOptions, Reader};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Cursor, Read, Write};

/// What a reader of uncompressed content takes at the most, bytes: the window of 65,536 records while it doubles, and
/// buffers. `docs/traces.md` says so.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// A window of zstd's fastest level beside it, and the decoder's buffers.
const ZSTD_BYTES_MAX: usize = 4 << 20;
/// Twice what fills the window.
const LINES: u64 = 150_000;
/// Names that a trace may bring, each as long as allowed, twice: what `msr` keeps.
const NAMES_BYTES_MAX: usize = 4 << 20;

struct Counting;

thread_local! {
    /// Bytes that this thread has now and had at the most: the test harness has threads of its own.
    static LIVE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn count(added: usize, removed: usize) {
    let (live, peak) = LIVE.get();
    let live = (live + added).saturating_sub(removed);
    LIVE.set((live, peak.max(live)));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the pointer came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Lines that are made as they are read.
struct Lines<F> {
    number: u64,
    line: F,
    rest: Cursor<Vec<u8>>,
}

impl<F: Fn(u64) -> String> Read for Lines<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.rest.read(buffer)? {
                0 if self.number == LINES => return Ok(0),
                0 => self.rest = Cursor::new((self.line)(self.number).into_bytes()),
                count => return Ok(count),
            }
            self.number += 1;
        }
    }
}

fn lines<F: Fn(u64) -> String>(line: F) -> Lines<F> {
    Lines { number: 0, line, rest: Cursor::default() }
}

/// The most that reading `content` to its end or to an error takes, bytes, and how many records came.
fn peak(content: impl Read + Send + 'static) -> (usize, usize) {
    let (before, _) = LIVE.get();
    LIVE.set((before, before));
    let reader = Reader::new("trace", content, ReadOptions::default()).unwrap();
    let count = reader.filter(Result::is_ok).count();
    (LIVE.get().1 - before, count)
}

/// Promise: traces-memory.
#[test]
fn a_reader_takes_no_more_for_a_long_trace() {
    let (bytes, count) = peak(lines(|number| format!("{number}.5 0 0 1 1\n")));
    assert_eq!(count, LINES as usize);
    assert!(bytes <= MEMORY_BYTES_MAX, "{bytes} bytes");
    let (bytes, count) = peak(lines(|number| format!("{}.5 0 0 1 1\n", number ^ 0xffff)));
    assert!(count == LINES as usize && bytes <= MEMORY_BYTES_MAX, "{count} records, {bytes} bytes");
}

#[test]
fn names_and_lines_without_end_are_bounded() {
    let (bytes, count) = peak(lines(|number| format!("128166372003061629,{number:0>256},0,Read,0,512,7\n")));
    assert_eq!(count, 4096, "up to one name too many");
    assert!(bytes <= MEMORY_BYTES_MAX + NAMES_BYTES_MAX, "{bytes} bytes");
    let (bytes, count) = peak(lines(|number| if number == 0 { "1 1 0 0\n" } else { "1111111111111111" }.to_owned()));
    assert!(count == 1 && bytes <= 1 << 20, "{count} records, {bytes} bytes");
}

#[test]
fn compressed_content_is_never_held_whole() {
    let mut bomb = zstd::Encoder::new(Vec::new(), 1).unwrap();
    let line = [&b"1 1 0 0"[..], &[b' '; 4000], b"\n"].concat();
    (0..20_000).for_each(|_| bomb.write_all(&line).unwrap());
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 100_000, "80 MB in {} bytes", bomb.len());
    let (bytes, count) = peak(Cursor::new(bomb));
    assert_eq!(count, 20_000);
    assert!(bytes <= MEMORY_BYTES_MAX + ZSTD_BYTES_MAX, "{bytes} bytes");
}
