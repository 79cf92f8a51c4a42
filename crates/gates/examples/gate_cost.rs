//! What gates cost while they are open, measured.
//!
//!   cargo run --profile quick -p plimsoll-gates --example gate_cost -- FOLDER
//!
//! The shim: one process that has it preloaded calls by way of it and around it in turns, so that what else the
//! machine does meets both alike. The filter: a process behind one, and one behind none. FOLDER is on the disk that
//! is written to.
#![allow(clippy::disallowed_methods, reason = "measures time")]

use plimsoll_core::{AccountId, CallDecision, Span};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::oci::Arrival;
use plimsoll_gates::{
    Filter, GateClasses, GateWords, Keepers, Launch, Listener, Listeners, OciSocket, Programs, Registration,
};
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls of one measurement, and measurements of each kind, in turns.
const WRITES: usize = 2_000;
const WRITE_BATCHES: usize = 400;
const SYNCS: usize = 20;
const SYNC_BATCHES: usize = 200;
const BLOCK_BYTES: usize = 4096;
/// Blocks that are written to, and stay in the page cache.
const BLOCKS: usize = 4096;

type Pwrite = unsafe extern "C" fn(c_int, *const c_void, usize, libc::off_t) -> isize;
type Fsync = unsafe extern "C" fn(c_int) -> c_int;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "around-shim", file] => around_shim(Path::new(file)),
        [_, "calls", file] => calls(Path::new(file)),
        [_, folder] => compare(Path::new(folder)),
        _ => {
            eprintln!("usage: gate_cost FOLDER");
            std::process::exit(2);
        }
    }
}

fn compare(folder: &Path) {
    let run = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
    let folder = tempfile::tempdir_in(folder).expect("a folder to write to");
    let programs = Programs::install(folder.path()).expect("programs");
    let words = GateWords::create(run.path()).expect("words");
    let file = folder.path().join("file");
    let start = |mode: &str, gate: &Launch| {
        let mut command = Command::new(std::env::current_exe().expect("our name"));
        gate.prepare(command.arg(mode).arg(&file)).expect("a gate");
        assert!(command.status().expect("to start ourselves").success());
    };
    start("around-shim", &Launch::new().with_shim(&programs, &words, AccountId(1)).expect("an account"));
    println!("pwrite of 4 KiB and fsync, each in one process:");
    start("calls", &Launch::new());
    let path = run.path().join("oci.sock");
    let mut socket = OciSocket::listen(&path, 0o600).expect("a socket");
    let keepers = Keepers::open(run.path(), &programs, &words).expect("keepers");
    let (starter, mut listeners) = (keepers.starter(), Listeners::new(keepers));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                words.renew();
                let sockets: Vec<_> = socket.waiting().collect();
                listeners.wait(&sockets, Span::from_millis(20)).expect("to wait");
                for Arrival { state, listener, answer } in
                    socket.accept(monotonic_now()).expect("it").into_iter().flatten()
                {
                    let registration = Registration { account: AccountId(1), name: state.metadata, process: state.pid };
                    let listener = Listener::new(listener, AccountId(1)).expect("a listener");
                    listeners.add(monotonic_now(), starter.guard(listener, registration));
                    answer.taken_over();
                }
                let admit = |_, _: &_| CallDecision::Admit;
                listeners.turn(monotonic_now(), words.lease(), 16, admit).expect("a turn");
            }
        });
        for (name, filter) in [("sync and metadata", Filter::default()), ("all", Filter::new(GateClasses::ALL))] {
            println!("behind a filter that notifies {name} calls:");
            start("calls", &Launch::new().with_filter(filter, &path, "cost", name));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

fn prepared(file: &Path) -> File {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(file).expect("a file");
    for block in 0..BLOCKS {
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; BLOCK_BYTES], (block * BLOCK_BYTES) as u64)
            .expect("space");
    }
    file.sync_all().expect("a disk");
    file
}

/// Nanoseconds for each of `count` calls.
fn measure(count: usize, mut call: impl FnMut()) -> f64 {
    let start = monotonic_now();
    (0..count).for_each(|_| call());
    monotonic_now().since(start).as_nanos() as f64 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The C library's own function, around whatever is preloaded.
fn own_function(name: &CStr) -> *mut c_void {
    // SAFETY: looks for a library that every Rust program here has loaded, and for a function in it.
    let found =
        unsafe { libc::dlsym(libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW), name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in libc.so.6");
    found
}

fn around_shim(file: &Path) {
    let file = prepared(file);
    let (number, bytes) = (file.as_raw_fd(), [2u8; BLOCK_BYTES]);
    // SAFETY: functions of these types, by POSIX.
    let own_pwrite: Pwrite = unsafe { std::mem::transmute(own_function(c"pwrite")) };
    // SAFETY: as above.
    let own_fsync: Fsync = unsafe { std::mem::transmute(own_function(c"fsync")) };
    assert_ne!(own_pwrite as usize, libc::pwrite as *const () as usize, "the shim is not preloaded");
    let mut block = 0;
    let mut write = |pwrite: Pwrite| {
        block = (block * 5 + 1) % BLOCKS;
        // SAFETY: an open file and a buffer of that length.
        assert_eq!(unsafe { pwrite(number, bytes.as_ptr().cast(), BLOCK_BYTES, (block * BLOCK_BYTES) as i64) }, 4096);
    };
    let refused = |pwrite: Pwrite| {
        // SAFETY: there is no file of that number.
        assert_eq!(unsafe { pwrite(-1, bytes.as_ptr().cast(), BLOCK_BYTES, 0) }, -1);
    };
    let own = (own_pwrite, own_fsync);
    let shim: (Pwrite, Fsync) = (libc::pwrite, libc::fsync);
    say(
        "pwrite that fails (the shim alone)",
        in_turns(WRITE_BATCHES, WRITES, own, shim, |(pwrite, _)| refused(pwrite)),
    );
    say("pwrite of 4 KiB, cached", in_turns(WRITE_BATCHES, WRITES, own, shim, |(pwrite, _)| write(pwrite)));
    let sync = |(pwrite, fsync): (Pwrite, Fsync)| {
        write(pwrite);
        // SAFETY: an open file.
        assert_eq!(unsafe { fsync(number) }, 0);
    };
    say("pwrite of 4 KiB and fsync", in_turns(SYNC_BATCHES, SYNCS, own, shim, sync));
}

/// Measures both kinds in each batch, now one first and now the other.
fn in_turns<T: Copy>(batches: usize, count: usize, own: T, shim: T, mut call: impl FnMut(T)) -> Vec<(f64, f64)> {
    let mut both = |first: T, second: T| (measure(count, || call(first)), measure(count, || call(second)));
    let batch = |batch: usize| {
        if batch.is_multiple_of(2) {
            return both(own, shim);
        }
        let (through, around) = both(shim, own);
        (around, through)
    };
    (0..batches).map(batch).collect()
}

fn say(what: &str, batches: Vec<(f64, f64)>) {
    let (around, through): (Vec<_>, Vec<_>) = batches.iter().copied().unzip();
    let difference = median(batches.iter().map(|(around, through)| through - around).collect());
    let (around, through) = (median(around), median(through));
    println!(
        "{what}: {around:.0} ns around the shim, {through:.0} ns through it; difference {difference:+.1} ns, {:+.2} %",
        difference / around * 100.0
    );
}

fn calls(file: &Path) {
    let file = prepared(file);
    let write = || std::os::unix::fs::FileExt::write_all_at(&file, &[3; BLOCK_BYTES], 0).expect("space");
    let writes = (0..WRITE_BATCHES / 10).map(|_| measure(WRITES, write)).collect();
    // Nothing to write back: what remains is the call.
    let number = file.as_raw_fd();
    let range = (0..WRITE_BATCHES / 10).map(|_| {
        measure(WRITES, || {
            // SAFETY: an open file.
            assert_eq!(unsafe { libc::sync_file_range(number, 0, 0, 0) }, 0);
        })
    });
    let range = range.collect();
    let syncs = (0..SYNC_BATCHES).map(|_| {
        measure(SYNCS, || {
            write();
            file.sync_all().expect("a disk");
        })
    });
    let (range, writes, syncs) = (median(range), median(writes), median(syncs.collect()));
    println!("  pwrite {writes:.0} ns, sync_file_range of nothing {range:.0} ns, pwrite and fsync {syncs:.0} ns");
}
