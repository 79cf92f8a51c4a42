//! Writers: processes that do one job when they are told to. A test binary is started again as a writer, with its job
//! in the environment; the test registers it while it waits.

use plimsoll_core::AccountId;
use plimsoll_tags::{Options, Tags};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

const JOB: &str = "PLIMSOLL_TAGS_JOB";
const PAGE: usize = 4096;
const NOBODY: libc::uid_t = 65534;

/// A process that waits to begin, or is at work.
pub struct Writer {
    child: Child,
}

impl Writer {
    /// Starts a process for `job`, which says what to do with which file.
    pub fn new(job: &str) -> Writer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_writer", "--nocapture", "--test-threads=1"]).env(JOB, job);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let is_ready = |line: Result<String, _>| line.is_ok_and(|line: String| line.ends_with("ready"));
        assert!(lines.any(is_ready), "the writer for {job:?} did not start");
        Writer { child }
    }

    /// The same, in `account`.
    pub fn of(tags: &mut Tags, account: AccountId, job: &str) -> Writer {
        let writer = Writer::new(job);
        tags.accounts().register_process(account, writer.process()).unwrap();
        writer
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The thread that runs the job; the test harness gives it the test's name.
    pub fn test_thread(&self) -> u32 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process())).unwrap().map(Result::unwrap);
        let named = |path: &Path| fs::read_to_string(path.join("comm")).unwrap().trim() == "a_writer";
        let thread = threads.map(|entry| entry.path()).find(|path| named(path)).expect("it has a thread for its test");
        thread.file_name().unwrap().to_string_lossy().parse().unwrap()
    }

    /// Lets it begin.
    pub fn begin(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Waits until it has ended well.
    pub fn wait(mut self) {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
    }

    /// Waits until it has done its job once, of two times; `run` lets it go on.
    pub fn pause(&mut self) {
        let mut lines = BufReader::new(self.child.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "done once")));
    }

    /// Lets all begin and waits for all.
    pub fn run(mut writers: Vec<Writer>) {
        writers.iter_mut().for_each(Writer::begin);
        writers.into_iter().for_each(Writer::wait);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the test `a_writer` of each binary does: nothing, unless it was started as one.
pub fn serve_as_writer() {
    let Ok(job) = std::env::var(JOB) else { return };
    println!("ready");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if line == "go\n" {
        perform(&job.split(' ').collect::<Vec<_>>());
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn perform(job: &[&str]) {
    match *job {
        ["write", path, first, step, end, pages, seed] => {
            write(path, &pages_of(first, step, end), number(pages) as usize, number(seed));
        }
        ["write-twice", path, first, step, end, seed] => {
            let pages = pages_of(first, step, end);
            write(path, &[pages.clone(), pages].concat(), 1, number(seed));
        }
        ["store", path, first, step, end] => store(path, &pages_of(first, step, end)),
        ["append", path, count] => append(path, number(count), false),
        ["append-sync", path, count] => append(path, number(count), true),
        ["direct", path, count] => direct(path, number(count)),
        ["uring", path, first, step, end] => uring(path, &pages_of(first, step, end)),
        ["sync", path, count] => {
            (0..number(count)).for_each(|_| rustix::fs::syncfs(File::open(path).unwrap()).unwrap())
        }
        ["fsync", path] => File::open(path).unwrap().sync_all().unwrap(),
        ["create", folder, count, bytes] => create(folder, number(count), number(bytes) as usize, false),
        ["create-sync", folder, count, bytes] => create(folder, number(count), number(bytes) as usize, true),
        ["chmod-sync", path, count] => (0..number(count) as u32).for_each(|time| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600 | (time % 2) << 2);
            move_on(time as usize);
            let file = File::open(path).unwrap();
            file.set_permissions(mode).unwrap();
            file.sync_all().unwrap();
        }),
        ["mkdir", folder, count] => {
            (0..number(count)).for_each(|name| fs::create_dir(Path::new(folder).join(format!("d{name}"))).unwrap());
        }
        ["unlink", folder] => fs::read_dir(folder).unwrap().for_each(|it| fs::remove_file(it.unwrap().path()).unwrap()),
        ["rename", folder, to] => fs::read_dir(folder).unwrap().for_each(|entry| {
            let entry = entry.unwrap();
            fs::rename(entry.path(), Path::new(to).join(entry.file_name())).unwrap();
        }),
        ["xattr", folder, bytes] => fs::read_dir(folder).unwrap().for_each(|entry| {
            let (path, value) = (entry.unwrap().path(), vec![b'v'; number(bytes) as usize]);
            rustix::fs::setxattr(&path, "user.plimsoll", &value, rustix::fs::XattrFlags::empty()).unwrap();
        }),
        ["reflink", from, to] => {
            let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
            rustix::fs::ioctl_ficlone(&to, &from).unwrap();
        }
        ["read", path] => drop(fs::read(path).unwrap()),
        ["truncate", path, bytes] => {
            OpenOptions::new().write(true).open(path).unwrap().set_len(number(bytes)).unwrap();
        }
        _ => perform_as_another(job),
    }
}

/// Jobs that depend on the process, thread or user that does them.
fn perform_as_another(job: &[&str]) {
    match *job {
        ["fork", ref rest @ ..] => fork(rest, false),
        ["shell", ref rest @ ..] => fork(rest, true),
        ["exec", ref rest @ ..] => exec(rest),
        ["nothing"] => {}
        ["load", device] => {
            let _tags = Tags::load(Path::new(device), &Options::default()).unwrap();
            println!("done once");
            std::io::stdout().flush().unwrap();
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        ["load-as-nobody", device] => {
            // SAFETY: as below.
            assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
            let error = Tags::load(Path::new(device), &Options::default()).err().unwrap();
            assert_eq!(error.to_string(), "not run: tags need root: they load BPF programs");
        }
        ["user", ref rest @ ..] => {
            let folder = Path::new(rest[1]).parent().unwrap();
            fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
            // SAFETY: the call takes no memory; of the process's threads only this one works.
            assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
            perform(rest);
        }
        ["twice", ref rest @ ..] => {
            perform(rest);
            println!("done once");
            std::io::stdout().flush().unwrap();
            std::io::stdin().read_line(&mut String::new()).unwrap();
            perform(rest);
        }
        ["threads", ref rest @ ..] => {
            let rest: Vec<String> = rest.iter().map(|word| word.to_string()).collect();
            let work = move || perform(&rest.iter().map(String::as_str).collect::<Vec<_>>());
            std::thread::spawn(work).join().unwrap();
        }
        _ => panic!("no such job: {job:?}"),
    }
}

/// Replaces the process, from a thread that is not its first, by this binary with the rest as its job.
fn exec(job: &[&str]) {
    use std::os::unix::process::CommandExt;
    let mut pipe = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: both descriptors were just made, and no other code has them.
    let [read, write] = pipe.map(|descriptor| unsafe { std::os::fd::OwnedFd::from_raw_fd(descriptor) });
    File::from(write).write_all(b"go\n").unwrap();
    let arguments = ["--exact", "a_writer", "--nocapture", "--test-threads=1"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    panic!("{}", command.args(arguments).env(JOB, job.join(" ")).stdin(read).exec());
}

/// Does the rest in a process of its own; it executes this binary again, by way of a shell if `by_shell`.
fn fork(job: &[&str], by_shell: bool) {
    let binary = std::env::current_exe().unwrap();
    let arguments = ["--exact", "a_writer", "--nocapture", "--test-threads=1"];
    let mut command = if by_shell { Command::new("sh") } else { Command::new(&binary) };
    if by_shell {
        command.args(["-c", "\"$0\" \"$@\"; true"]).arg(&binary);
    }
    let mut child = command.args(arguments).env(JOB, job.join(" ")).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
}

/// To another processor each time, of those that it may use.
fn move_on(time: usize) {
    static ALLOWED: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let allowed = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect()
    });
    let mut next = CpuSet::new();
    next.set(ALLOWED[time % ALLOWED.len()]);
    sched_setaffinity(None, &next).unwrap();
}

fn pages_of(first: &str, step: &str, end: &str) -> Vec<u64> {
    (number(first)..number(end)).step_by(number(step) as usize).collect()
}

/// The pages in an order that `seed` fixes; 0: as they are.
fn shuffle(pages: &mut [u64], seed: u64) {
    let mut state = seed;
    for last in (1..pages.len()).rev().filter(|_| seed != 0) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        pages.swap(last, (state >> 33) as usize % (last + 1));
    }
}

fn open(path: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn write(path: &str, pages: &[u64], pages_each: usize, seed: u64) {
    let (file, mut pages) = (open(path), pages.to_vec());
    shuffle(&mut pages, seed);
    for page in pages {
        file.write_all_at(&vec![page as u8 | 1; PAGE * pages_each], page * PAGE as u64).unwrap();
    }
}

fn append(path: &str, count: u64, syncs: bool) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    for _ in 0..count {
        file.write_all(&[b'y'; PAGE]).unwrap();
        if syncs {
            file.sync_all().unwrap();
        }
    }
}

fn direct(path: &str, count: u64) {
    #[repr(align(4096))]
    struct Aligned([u8; 65536]);
    let buffer = Box::new(Aligned([7; 65536]));
    let flags = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags).open(path).unwrap();
    (0..count).for_each(|number| file.write_all_at(&buffer.0, number * 65536).unwrap());
}

/// Stores one byte into each page of a mapped file.
fn store(path: &str, pages: &[u64]) {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let file = open(path);
    let bytes = file.metadata().unwrap().len() as usize;
    // SAFETY: a new mapping of a file that is as long, at an address of the kernel's choice.
    let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::WRITE, MapFlags::SHARED, &file, 0).unwrap() };
    for page in pages {
        let at = *page as usize * PAGE;
        assert!(at < bytes);
        // SAFETY: inside the mapping, by the check above.
        unsafe { start.cast::<u8>().add(at).write_volatile(*page as u8 ^ 0x5a) };
    }
    // SAFETY: mapped above, and nothing borrows from it.
    unsafe { munmap(start, bytes).unwrap() };
}

/// Writes pages through io_uring, each by a worker thread of the kernel.
fn uring(path: &str, pages: &[u64]) {
    let (file, buffer) = (open(path), vec![9u8; PAGE]);
    let mut ring = io_uring::IoUring::new(8).unwrap();
    for page in pages {
        let descriptor = io_uring::types::Fd(std::os::fd::AsRawFd::as_raw_fd(&file));
        let entry = io_uring::opcode::Write::new(descriptor, buffer.as_ptr(), PAGE as u32).offset(page * PAGE as u64);
        let entry = entry.build().flags(io_uring::squeue::Flags::ASYNC);
        // SAFETY: file and buffer live until the completion below was seen.
        unsafe { ring.submission().push(&entry).unwrap() };
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().unwrap().result(), PAGE as i32);
    }
}

fn create(folder: &str, count: u64, bytes: usize, syncs: bool) {
    for name in 0..count {
        let path = Path::new(folder).join(format!("f{}-{name}", std::process::id()));
        let file = File::from(rustix::fs::open(&path, OFlags::CREATE | OFlags::WRONLY, Mode::from(0o644)).unwrap());
        file.write_all_at(&vec![b'x'; bytes], 0).unwrap();
        if syncs {
            file.sync_all().unwrap();
        }
    }
}
