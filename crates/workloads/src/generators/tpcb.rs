//! TPC-B-like: what PostgreSQL does under pgbench (the split-level paper's figure 19), with its write-ahead log, group
//! commit, and checkpoints.
//!
//! **Clients** read the page of a random account, change it in the database's own memory, and wait until their commit
//! is durable. **The WAL writer** writes the records of all waiting clients in whole pages, calls fdatasync, and lets
//! them go: group commit. **The checkpointer**, each interval, writes the pages that changed since, in the order of the
//! file, spread over half the interval. Then it calls fsync, which hurts the clients.
//!
//! **Complication.** The first change of a page after a checkpoint puts the whole page into the log. Threads do not
//! share which pages were changed. Accounts are drawn evenly, so the *number* of updates gives the probability that a
//! page is dirty, and that number goes through counters.

use crate::design::{Common, Design};
use crate::file::{Before, FileSpec};
use crate::pace::Pace;
use crate::random::{DirtyPages, Random};
use crate::script::{Generator, Program, Script};
use crate::step::{Action, Counter, FileIndex, Step};
use crate::thread::ThreadSpec;
use plimsoll_core::Span;
use std::ops::Range;

/// Bytes of a page, of tables and of the log (PostgreSQL: BLCKSZ, XLOG_BLCKSZ).
const PAGE: u64 = 8192;
/// Rows in the accounts table for each unit of scale (pgbench's documentation).
const ACCOUNTS_PER_SCALE: u64 = 100_000;
/// Rows in a page: 8192 bytes less 24 of header, at 128 bytes of tuple (a 24-byte header, 97 of data, aligned to 8) and
/// 4 of line pointer. (PostgreSQL's page layout; 13 MB for each unit of scale.)
const ACCOUNTS_PER_PAGE: u64 = 61;
/// History rows in a page: 52 bytes of tuple and line pointer, aligned (PostgreSQL's page layout).
const HISTORY_ROWS_PER_PAGE: u64 = 157;
/// Bytes of log for a transaction of three updates, an insert and a commit, without page images. Ours: PostgreSQL's
/// record headers (24 to 60 bytes) and the new tuples.
const LOG_BYTES_PER_TRANSACTION: u64 = 600;
/// Bytes of log before its files are used again. Ours: PostgreSQL's max_wal_size by default.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Bytes of history before it is written from the start again. Ours: bounds the disk space of long runs.
const HISTORY_BYTES_MAX: u64 = 1 << 30;
/// Part of the interval over which a checkpoint's writes are spread (checkpoint_completion_target until PostgreSQL 13).
const CHECKPOINT_SPREAD: f64 = 0.5;
/// Processor time of a transaction. Ours: seven statements at some tens of microseconds.
const TRANSACTION_COMPUTE: Span = Span::from_micros(200);

const ACCOUNTS: FileIndex = FileIndex(0);
const LOG: FileIndex = FileIndex(1);
const HISTORY: FileIndex = FileIndex(2);

/// Commits that wait for the log.
const WAITING: Counter = Counter(0);
/// Commits that are durable.
const DURABLE: Counter = Counter(1);
/// Updates since the last checkpoint began.
const UPDATES: Counter = Counter(2);
/// Checkpoints that began, for the log's page images.
const CHECKPOINTS: Counter = Counter(3);

/// A TPC-B-like database.
#[derive(Clone, Debug)]
pub(crate) struct TpcB {
    pub(crate) clients: u32,
    pub(crate) scale: u64,
    /// From the begin of a checkpoint to that of the next.
    pub(crate) checkpoint: Span,
}

impl TpcB {
    fn pages(&self) -> u64 {
        (self.scale * ACCOUNTS_PER_SCALE).div_ceil(ACCOUNTS_PER_PAGE)
    }
}

impl Design for TpcB {
    fn file_count(&self, _common: &Common) -> u64 {
        3
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        match file {
            ACCOUNTS => FileSpec::filled("accounts".to_owned(), self.pages() * PAGE),
            LOG => FileSpec::with("wal".to_owned(), LOG_BYTES_MAX, Before::Filled),
            _ => FileSpec::with("history".to_owned(), 0, Before::Empty),
        }
    }

    fn thread_count(&self, _common: &Common) -> u32 {
        self.clients + 2
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        match thread.checked_sub(self.clients) {
            None => ThreadSpec::new(format!("client.{thread}"), vec![ACCOUNTS]),
            Some(0) => ThreadSpec::background("wal", vec![LOG]),
            Some(_) => ThreadSpec::background("checkpointer", vec![ACCOUNTS, HISTORY]),
        }
    }

    fn program(&self, common: &Common, _seed: u64, thread: u32) -> Program {
        let pages = self.pages();
        match thread.checked_sub(self.clients) {
            None => Box::new(TpcbClient { pages, pace: common.pace() }),
            Some(0) => Box::new(LogWriter { pages, position: 0, updates: 0, phase: LogPhase::AskCheckpoints }),
            Some(_) => Box::new(TpcbCheckpointer {
                pages,
                interval: self.checkpoint,
                rounds: 0,
                dirty: DirtyPages::new(pages, 0),
                written: 0,
                updates: 0,
                history: 0,
                is_waiting: false,
            }),
        }
    }
}

/// Writes a range, shorter than `size`, of a file that wraps around behind `size` bytes.
fn write_round(file: FileIndex, range: Range<u64>, size: u64, chunk: u64, script: &mut Script) {
    let (first, length) = (range.start % size, (range.end - range.start).min(size));
    let before_end = length.min(size - first);
    script.sweep(file, false, first..first + before_end, chunk);
    script.sweep(file, false, 0..length - before_end, chunk);
}

struct TpcbClient {
    pages: u64,
    pace: Pace,
}

impl Generator for TpcbClient {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        script.begin(self.pace.next(random));
        script.call(Action::Read { file: ACCOUNTS, offset: random.below(self.pages) * PAGE, length: PAGE });
        script.step(Step::Compute(TRANSACTION_COMPUTE));
        script.post(UPDATES, 1);
        script.post(WAITING, 1);
        script.step(Step::Take { counter: DURABLE, at_least: 1, at_most: 1, until: None });
        script.end();
        script.sleep(self.pace.think());
    }
}

enum LogPhase {
    AskCheckpoints,
    AskWaiting,
    Write,
}

struct LogWriter {
    pages: u64,
    /// Bytes of log so far.
    position: u64,
    /// Updates since the last checkpoint began.
    updates: u64,
    phase: LogPhase,
}

impl LogWriter {
    /// Bytes of log for so many transactions, images of pages among them.
    fn bytes(&mut self, transactions: u64, random: &mut Random) -> u64 {
        let mut bytes = 0;
        for _ in 0..transactions {
            let clean = (self.updates as f64 * (-1.0 / self.pages as f64).ln_1p()).exp();
            bytes += LOG_BYTES_PER_TRANSACTION + if random.fraction() <= clean { PAGE } else { 0 };
            self.updates += 1;
        }
        bytes
    }
}

impl Generator for LogWriter {
    fn next(&mut self, random: &mut Random, taken: u64, script: &mut Script) {
        match self.phase {
            LogPhase::AskCheckpoints => {
                script.take_all(CHECKPOINTS, 0, None);
                self.phase = LogPhase::AskWaiting;
            }
            LogPhase::AskWaiting => {
                if taken > 0 {
                    self.updates = 0;
                }
                script.take_all(WAITING, 1, None);
                self.phase = LogPhase::Write;
            }
            LogPhase::Write => {
                let first = self.position / PAGE * PAGE;
                self.position += self.bytes(taken, random);
                let end = self.position.next_multiple_of(PAGE);
                script.begin(None);
                // The log's last page is written again until it is full.
                write_round(LOG, first..end, LOG_BYTES_MAX, LOG_BYTES_MAX, script);
                script.call(Action::Fdatasync { file: LOG });
                script.end();
                script.post(DURABLE, taken);
                self.phase = LogPhase::AskCheckpoints;
            }
        }
    }
}

struct TpcbCheckpointer {
    pages: u64,
    interval: Span,
    /// Checkpoints begun.
    rounds: u64,
    dirty: DirtyPages,
    /// Pages written in this checkpoint.
    written: u64,
    /// Updates that this checkpoint makes durable.
    updates: u64,
    /// Rows of history so far.
    history: u64,
    is_waiting: bool,
}

impl TpcbCheckpointer {
    /// The write of one page, due so far into the checkpoint as its part of the pages.
    fn write(&mut self, page: u64, script: &mut Script) {
        let part = (self.written as f64 / self.dirty.expected()).min(1.0);
        let after = Span::from_secs_f64(self.interval.as_secs_f64() * CHECKPOINT_SPREAD * part);
        script.begin(Some(self.interval * self.rounds + after));
        script.call(Action::Write { file: ACCOUNTS, offset: page * PAGE, length: PAGE });
        script.end();
        self.written += 1;
    }

    /// The pages of history that were filled since the last checkpoint.
    fn write_history(&mut self, script: &mut Script) {
        let first = self.history / HISTORY_ROWS_PER_PAGE;
        self.history += self.updates;
        let end = self.history.div_ceil(HISTORY_ROWS_PER_PAGE);
        write_round(HISTORY, first * PAGE..end * PAGE, HISTORY_BYTES_MAX, PAGE, script);
    }
}

impl Generator for TpcbCheckpointer {
    fn next(&mut self, random: &mut Random, taken: u64, script: &mut Script) {
        if self.is_waiting {
            self.is_waiting = false;
            self.rounds += 1;
            script.post(CHECKPOINTS, 1);
            (self.updates, self.written) = (taken, 0);
            self.dirty = DirtyPages::new(self.pages, taken);
        }
        if let Some(page) = self.dirty.next(random) {
            self.write(page, script);
            return;
        }
        if self.updates > 0 {
            script.begin(None);
            self.write_history(script);
            script.call(Action::Fsync { file: ACCOUNTS });
            script.call(Action::Fsync { file: HISTORY });
            script.end();
        }
        script.take_all(UPDATES, u64::MAX, Some(self.interval * (self.rounds + 1)));
        self.is_waiting = true;
    }
}
