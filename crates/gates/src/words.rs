//! The words that shims wait on: the agent's side.
//!
//! A file on a tmpfs, one cache line per account and class: 0 is open; closed, a word is the account's **generation**.
//! Tenants map it for reading, which is enough for a futex wait; only its owner can change a word or the file.
//!
//! Accounts are given out again, by this agent or the next one, while processes of the tenant before may live on. So
//! each tenant [begins](GateWords::begin_generation) a generation of its account, and its shims wait at words that say
//! that number and pass all others. The file has the generations beside the words, and the next agent continues the
//! count.
//!
//! A woken process continues, also at a word that is still closed. So the agent can let a few continue while the rest
//! wait ([`GateWords::admit`]); all at once would be a herd.
//!
//! **What a stranger can do.** Read access to the file is enough to wake waiters at a word, to wait there, and to move
//! waiters to another word. Waking is no loss, for no process has to look at a word at all: what passes is charged, and
//! the levels below hold. Waiting is worse. The kernel wakes the longest waiters and does not name their account. So
//! strangers take the places of the intended ones, and wait again at once. So a caller that [admits](GateWords::admit)
//! must not assume that a process of the account continued, nor wait for ever until none is left. If no I/O follows, it
//! lets more in or opens the word, which reaches all waiters (`readers` and `calls` of `plimsoll_agent` do so). Neither
//! reaches a moved process (`FUTEX_REQUEUE`). It sleeps until the lease that it saw runs out, half a second at most,
//! and then reads the word again.
//!
//! A closed word counts as long as the **lease** lasts. The lease is a time on the monotonic clock in the same file,
//! which a living agent renews. A waiter sleeps until the lease that it saw runs out, and then looks again. If the
//! lease was renewed, it sleeps on. If not, it continues, and its process waits no more until the lease is renewed. So
//! an agent that was killed, stopped or is stuck holds no process for longer than [`LEASE`].
//!
//! The file outlives the agent. The next one takes it over with all words open. Tenants of the former agent obey it as
//! long as no agent begins a new generation of their account.

use crate::class::GateClass;
use crate::clock::monotonic_now;
use crate::error::GateError;
use crate::mapping::Mapping;
use plimsoll_core::{AccountId, Span, Time};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, statfs};
use rustix::io::Errno;
use rustix::thread::futex;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Accounts that have words: as many as a cause mask has bits, two of which are reserved.
pub const ACCOUNTS_MAX: u32 = 64;
/// How long the words count after the agent last said that it lives. A round trip through a busy machine's run queue
/// takes tens of milliseconds. One second is the most that a tenant loses to a dead agent ([`FAIL_OPEN`]).
pub const LEASE: Span = Span::from_millis(500);
/// How often to call [`GateWords::renew`]: a lease that is missed four times has run out.
pub const RENEWAL: Span = Span::from_millis(100);
/// Promised time within which a held process continues after the agent was killed. The part beyond [`LEASE`] is for
/// waking up.
pub const FAIL_OPEN: Span = Span::from_secs(1);
// An agent that renews as late as it may and dies then has closed words for so long after it last turned.
const _: () = assert!(LEASE.as_nanos() + RENEWAL.as_nanos() < FAIL_OPEN.as_nanos());
/// The file's name in the run directory.
pub const FILE_NAME: &str = "gate-words";

const MAGIC: u32 = u32::from_le_bytes(*b"PLGW");
/// In version 1 a closed word was 1, whichever account it was meant for.
const VERSION: u32 = 2;
const VERSION_OFFSET: usize = 4;
/// Offset of the lease's end in the file: 8 bytes, nanoseconds of the monotonic clock.
pub const LEASE_OFFSET: usize = 64;
const WORDS_OFFSET: usize = 4096;
/// A cache line: a write to one word slows no other's readers down.
const WORD_STRIDE: usize = 64;
const BYTES: usize = WORDS_OFFSET + ACCOUNTS_MAX as usize * GateClass::ALL.len() * WORD_STRIDE;

/// Behind an account's first word, in its cache line: its generation.
const GENERATION_OFFSET: usize = 4;

const OPEN: u32 = 0;
const FIRST_GENERATION: u32 = 1;
/// Every user may read; only the owner writes.
const MODE: u32 = 0o644;
/// What is locked as long as an agent has the words. A process that may read a file may lock it, too, so it is one that
/// no other user can open.
const LOCK_NAME: &str = "gate-words.lock";
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Whether a directory is on a tmpfs, as the run directory must be.
///
/// # Errors
/// There is no such directory.
pub fn is_in_memory(directory: &Path) -> std::io::Result<bool> {
    Ok(statfs(directory)?.f_type == TMPFS_MAGIC)
}

/// The time without a gap in which the agent has renewed its lease, on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// In a gap before it, keepers received calls.
    pub since: Time,
    /// Until then closed words count, and keepers receive nothing.
    pub until: Time,
}

/// Offset of a word in the file. A word other than 0 is closed.
///
/// # Panics
/// If the account has no words: [`ACCOUNTS_MAX`].
pub fn place_of(account: AccountId, class: GateClass) -> usize {
    assert!(account.0 < ACCOUNTS_MAX, "account {} has no words, allowed are 0 to {}", account.0, ACCOUNTS_MAX - 1);
    WORDS_OFFSET + (account.index() * GateClass::ALL.len() + class as usize) * WORD_STRIDE
}

/// The words of all accounts. One agent at a time has them; all words are open when it comes and when it goes.
pub struct GateWords {
    path: PathBuf,
    #[allow(dead_code, reason = "the lock is held as long as this is open")]
    lock: OwnedFd,
    mapping: Mapping,
    /// [`Lease::since`], nanoseconds. Only this crate has to know it.
    lease_since: AtomicU64,
}

impl GateWords {
    /// Makes the words in `directory`, or takes over those of an agent that is gone. `directory` exists, is on a
    /// tmpfs, and only the agent may write to it.
    ///
    /// # Errors
    /// Another agent has the words; the file is not one of gate words; the directory cannot be used.
    pub fn create(directory: &Path) -> Result<GateWords, GateError> {
        let path = directory.join(FILE_NAME);
        if !is_in_memory(directory).map_err(GateError::file("look at", directory))? {
            return Err(GateError::NotInMemory { directory: directory.to_owned() });
        }
        let open = |path: &Path, mode| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let opened = rustix::fs::open(path, flags, mode);
            opened.map_err(|errno| GateError::file("open", path)(errno.into()))
        };
        let lock_path = directory.join(LOCK_NAME);
        let lock = open(&lock_path, Mode::RUSR | Mode::WUSR)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(GateError::Held { path }),
            Err(errno) => return Err(GateError::file("lock", &lock_path)(errno.into())),
        }
        let mut file = File::from(open(&path, Mode::from_raw_mode(MODE))?);
        let at = |action| GateError::file(action, &path);
        if is_of_an_earlier_version(&file) {
            // Shims that look at it could not tell which account a closed word is meant for. Where it is deleted, they
            // do not wait.
            std::fs::remove_file(&path).map_err(at("delete"))?;
            file = File::from(open(&path, Mode::from_raw_mode(MODE))?);
        }
        let length = file.metadata().map_err(at("look at"))?.len();
        if length == 0 {
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(MODE)).map_err(at("set the mode of"))?;
        } else if length != BYTES as u64 {
            return Err(GateError::NotWords { path, problem: format!("it has {length} bytes, expected {BYTES}") });
        }
        // A page that the tmpfs has no room for would kill the process that touches it, agent or tenant.
        fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64).map_err(|errno| at("reserve")(errno.into()))?;
        let mapping = Mapping::new(file.as_fd(), BYTES).map_err(at("map"))?;
        let words = GateWords { path, lock, mapping, lease_since: AtomicU64::new(0) };
        words.begin()?;
        Ok(words)
    }

    /// Opens whatever is closed, and only then says that an agent is here again.
    fn begin(&self) -> Result<(), GateError> {
        let (magic, version) = (self.mapping.word(0), self.mapping.word(VERSION_OFFSET));
        match (magic.load(Ordering::Relaxed), version.load(Ordering::Relaxed)) {
            (0, 0) => {
                (0..ACCOUNTS_MAX).for_each(|account| {
                    self.generation_word(AccountId(account)).store(FIRST_GENERATION, Ordering::Relaxed);
                });
                version.store(VERSION, Ordering::Relaxed);
                magic.store(MAGIC, Ordering::Release);
            }
            (MAGIC, VERSION) => self.open_all(),
            (magic, version) => {
                let problem = format!(
                    "it begins with {magic:#x} and version {version}, expected {MAGIC:#x} and \
                                       version {VERSION}"
                );
                return Err(GateError::NotWords { path: self.path.clone(), problem });
            }
        }
        self.renew();
        Ok(())
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the agent lives: closed words count for another [`LEASE`]. To be called every [`RENEWAL`], by the
    /// thread that also opens them, so that an agent that is stuck does not say so.
    pub fn renew(&self) {
        let now = monotonic_now();
        if now >= self.lease().until {
            self.lease_since.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.mapping.long(LEASE_OFFSET).store((now + LEASE).as_nanos(), Ordering::Release);
    }

    /// How long closed words count, and since when they have.
    pub fn lease(&self) -> Lease {
        let until = Time::from_nanos(self.mapping.long(LEASE_OFFSET).load(Ordering::Acquire));
        Lease { since: Time::from_nanos(self.lease_since.load(Ordering::Relaxed)), until }
    }

    /// From now on, calls of this account and class wait. Those that have passed the gate are not called back.
    ///
    /// # Panics
    /// If the account has no words: [`ACCOUNTS_MAX`].
    pub fn close(&self, account: AccountId, class: GateClass) {
        self.word(account, class).store(self.generation(account), Ordering::Release);
    }

    /// What the words of this account say while they are closed: not 0. Shims that were told another number pass them.
    ///
    /// # Panics
    /// If the account has no words: [`ACCOUNTS_MAX`].
    pub fn generation(&self, account: AccountId) -> u32 {
        self.generation_word(account).load(Ordering::Relaxed)
    }

    /// The account is another tenant's from now on. Its words are open, and closed ones hold no process any more that
    /// was started before. Answers with the new generation.
    ///
    /// # Panics
    /// If the account has no words: [`ACCOUNTS_MAX`].
    pub fn begin_generation(&self, account: AccountId) -> u32 {
        GateClass::ALL.iter().for_each(|&class| self.open(account, class));
        let next = self.generation(account).checked_add(1).unwrap_or(FIRST_GENERATION);
        self.generation_word(account).store(next, Ordering::Relaxed);
        next
    }

    /// Lets all waiting and coming processes go on.
    ///
    /// # Panics
    /// As [`close`](Self::close).
    pub fn open(&self, account: AccountId, class: GateClass) {
        let word = self.word(account, class);
        if word.swap(OPEN, Ordering::AcqRel) != OPEN {
            // It fails only for an address that is not mapped.
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Lets at most `count_max` waiters at a closed word go on; it stays closed. Answers with how many did; if they are
    /// fewer, none waits there any more. They need not be of that account: see [the module's text](self).
    ///
    /// # Panics
    /// As [`close`](Self::close).
    pub fn admit(&self, account: AccountId, class: GateClass, count_max: u32) -> u32 {
        // It fails only for an address that is not mapped.
        futex::wake(self.word(account, class), futex::Flags::empty(), count_max).unwrap_or(0) as u32
    }

    /// Whether calls of this account and class wait.
    ///
    /// # Panics
    /// As [`close`](Self::close).
    pub fn is_closed(&self, account: AccountId, class: GateClass) -> bool {
        self.word(account, class).load(Ordering::Acquire) != OPEN
    }

    /// The file once more, for reading, without this one's lock.
    pub(crate) fn reader(&self) -> Result<File, GateError> {
        File::open(&self.path).map_err(GateError::file("open", &self.path))
    }

    fn open_all(&self) {
        for account in 0..ACCOUNTS_MAX {
            GateClass::ALL.iter().for_each(|&class| self.open(AccountId(account), class));
        }
    }

    fn word(&self, account: AccountId, class: GateClass) -> &AtomicU32 {
        self.mapping.word(place_of(account, class))
    }

    fn generation_word(&self, account: AccountId) -> &AtomicU32 {
        self.mapping.word(place_of(account, GateClass::ALL[0]) + GENERATION_OFFSET)
    }
}

fn is_of_an_earlier_version(file: &File) -> bool {
    let mut begin = [0; VERSION_OFFSET + 4];
    if file.read_exact_at(&mut begin, 0).is_err() {
        return false;
    }
    let number = |offset: usize| u32::from_le_bytes(begin[offset..offset + 4].try_into().expect("four bytes"));
    number(0) == MAGIC && (1..VERSION).contains(&number(VERSION_OFFSET))
}

impl Drop for GateWords {
    fn drop(&mut self) {
        self.open_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_shim_was_compiled_for_this_layout() {
        let header = include_str!("../shim/layout.h");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
            None => text.parse().unwrap(),
        };
        let lines = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
        let lines = lines.map(|(name, value)| (name, number(value.split_whitespace().next().unwrap())));
        let expected = [
            ("WORDS_MAGIC", u64::from(MAGIC)),
            ("WORDS_VERSION", u64::from(VERSION)),
            ("VERSION_OFFSET", VERSION_OFFSET as u64),
            ("LEASE_OFFSET", LEASE_OFFSET as u64),
            ("LEASE_NS", LEASE.as_nanos()),
            ("WORDS_OFFSET", WORDS_OFFSET as u64),
            ("WORD_STRIDE", WORD_STRIDE as u64),
            ("CLASSES", GateClass::ALL.len() as u64),
            ("CLASS_WRITE", GateClass::Write as u64),
            ("CLASS_SYNC", GateClass::Sync as u64),
            ("CLASS_METADATA", GateClass::Metadata as u64),
            ("CLASS_READ", GateClass::Read as u64),
            ("ACCOUNTS_MAX", u64::from(ACCOUNTS_MAX)),
            ("WORDS_BYTES", BYTES as u64),
        ];
        let words = lines.filter(|(name, _)| expected.iter().any(|(known, _)| known == name));
        assert_eq!(words.collect::<BTreeMap<_, _>>(), BTreeMap::from(expected));
    }

    /// A keeper of an agent that is gone or stuck looks after that time, and lets the processes go on that the agent
    /// held.
    #[test]
    fn a_keeper_looks_early_enough_to_keep_what_is_promised() {
        let source = include_str!("../shim/background.h");
        let tick = source.lines().find_map(|line| line.strip_prefix("#define TICK_MS ")).unwrap();
        assert!(LEASE + Span::from_millis(tick.parse().unwrap()) * 2 < FAIL_OPEN);
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    #[test]
    fn each_word_is_its_own() {
        let directory = directory();
        let words = GateWords::create(directory.path()).unwrap();
        for account in (0..ACCOUNTS_MAX).map(AccountId) {
            for class in GateClass::ALL {
                words.close(account, class);
                let closed = (0..ACCOUNTS_MAX).flat_map(|other| GateClass::ALL.map(|class| (AccountId(other), class)));
                let closed: Vec<_> = closed.filter(|&(other, class)| words.is_closed(other, class)).collect();
                assert_eq!(closed, [(account, class)]);
                words.open(account, class);
            }
        }
    }

    #[test]
    fn one_agent_at_a_time_and_the_next_finds_all_open() {
        let directory = directory();
        let words = GateWords::create(directory.path()).unwrap();
        let inode = |words: &GateWords| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&words.path).unwrap());
        assert!(matches!(GateWords::create(directory.path()), Err(GateError::Held { .. })));
        let first = inode(&words);
        // Killed: nothing is dropped, but the lock goes with the descriptor.
        words.close(AccountId(5), GateClass::Sync);
        let left = std::mem::ManuallyDrop::new(words);
        flock(&left.lock, FlockOperation::Unlock).unwrap();
        let next = GateWords::create(directory.path()).unwrap();
        assert_eq!(inode(&next), first);
        assert!(!next.is_closed(AccountId(5), GateClass::Sync));
        assert!(next.lease().until > monotonic_now());
    }

    /// Broken on purpose and seen red: closed words say 1; the next agent begins to count again.
    /// Promise: gates-account-number.
    #[test]
    fn a_closed_word_says_the_generation_of_its_account_and_no_number_comes_twice() {
        let directory = directory();
        let account = AccountId(5);
        let said = |words: &GateWords| words.word(account, GateClass::Sync).load(Ordering::Relaxed);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let words = GateWords::create(directory.path()).unwrap();
            for _ in 0..2 {
                words.close(account, GateClass::Sync);
                assert_eq!(said(&words), words.generation(account));
                seen.push(said(&words));
                assert_eq!(words.begin_generation(account), words.generation(account));
                assert!(
                    !words.is_closed(account, GateClass::Sync) && words.generation(AccountId(4)) == FIRST_GENERATION
                );
            }
            // Killed: nothing is opened.
            words.close(account, GateClass::Sync);
            flock(&std::mem::ManuallyDrop::new(words).lock, FlockOperation::Unlock).unwrap();
        }
        assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
        let words = GateWords::create(directory.path()).unwrap();
        words.generation_word(account).store(u32::MAX, Ordering::Relaxed);
        assert_eq!(words.begin_generation(account), FIRST_GENERATION, "0 is open");
    }

    /// Broken on purpose and seen red: it is taken over.
    /// Promise: gates-account-number.
    #[test]
    fn a_file_of_an_earlier_version_is_replaced_and_left_to_its_readers() {
        let directory = directory();
        drop(GateWords::create(directory.path()).unwrap());
        let path = directory.path().join(FILE_NAME);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&1u32.to_le_bytes(), VERSION_OFFSET as u64).unwrap();
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        let before = inode();
        let words = GateWords::create(directory.path()).unwrap();
        assert_ne!(inode(), before);
        assert_eq!(words.generation(AccountId(0)), FIRST_GENERATION);
    }

    /// Every user may open it to read, and lock it. Broken on purpose and seen red, as it was: it is the file of the
    /// words that is locked.
    /// Promise: gates-strangers-words.
    #[test]
    fn a_lock_on_the_words_keeps_no_agent_from_them() {
        let directory = directory();
        drop(GateWords::create(directory.path()).unwrap());
        let stranger = File::open(directory.path().join(FILE_NAME)).unwrap();
        flock(&stranger, FlockOperation::NonBlockingLockExclusive).unwrap();
        let words = GateWords::create(directory.path()).unwrap();
        assert!(matches!(GateWords::create(directory.path()), Err(GateError::Held { .. })), "one agent at a time");
        drop(words);
        let mode = std::fs::metadata(directory.path().join(LOCK_NAME)).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }

    #[test]
    fn what_is_not_ours_is_refused_and_left_as_it_is() {
        let directory = directory();
        let path = directory.path().join(FILE_NAME);
        std::fs::write(&path, "something short").unwrap();
        let refusal = GateWords::create(directory.path()).err().unwrap().to_string();
        assert!(refusal.ends_with("it has 15 bytes, expected 20480; delete it if nothing needs it"), "{refusal}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something short");
        std::fs::write(&path, vec![7; BYTES]).unwrap();
        let refusal = GateWords::create(directory.path()).err().unwrap().to_string();
        assert!(refusal.contains("it begins with 0x7070707 and version 117901063"), "{refusal}");
    }

    #[test]
    fn what_is_not_a_tmpfs_is_refused() {
        assert!(matches!(GateWords::create(Path::new("/proc/self")), Err(GateError::NotInMemory { .. })));
    }
}
