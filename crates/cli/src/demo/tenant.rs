//! The two tenants: one waits for every 4 KiB, the other has much to write.

use super::stopwatch::Stopwatch;
use plimsoll_core::Span;
use plimsoll_protocols::nbd::wire::CommandFlags;
use plimsoll_serve::nbd::Client;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a transaction: one page of a database.
const TRANSACTION_BYTES: usize = 4096;
/// Bytes of the file that transactions go to.
pub const TRANSACTIONS_FILE_BYTES: u64 = 64 << 20;
/// Bytes that the backup writes at a time.
const BACKUP_CHUNK_BYTES: usize = 1 << 20;
/// Bytes of each file of the backup. A full file is synced and written again.
pub const BACKUP_FILE_BYTES: u64 = 128 << 20;
/// Bytes after which the backup syncs, as backup tools do to spare the page cache.
const BACKUP_SYNC_BYTES: u64 = 16 << 20;
/// Knuth's multiplier: spreads transactions over their file.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where a tenant writes.
pub enum Target {
    /// A file in a file system.
    File(File),
    /// A volume over NBD.
    Nbd(Box<Client>),
}

impl Target {
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        match self {
            Target::File(file) => file.write_all_at(data, offset).map_err(|error| error.to_string()),
            Target::Nbd(client) => client.write(offset, data, false).map_err(|error| error.to_string()),
        }
    }

    fn sync(&mut self) -> Result<(), String> {
        match self {
            Target::File(file) => file.sync_all().map_err(|error: io::Error| error.to_string()),
            Target::Nbd(client) => client.flush().map_err(|error| error.to_string()),
        }
    }

    /// Writes so that many are outstanding, where the target does not do that by itself.
    fn write_all(&mut self, start: u64, data: &[u8], chunks: u64) -> Result<(), String> {
        let offsets = (0..chunks).map(|chunk| start + chunk * data.len() as u64);
        match self {
            Target::File(_) => offsets.into_iter().try_for_each(|offset| self.write(offset, data)),
            Target::Nbd(client) => {
                let failed = |error: plimsoll_serve::nbd::client::ClientError| error.to_string();
                for (tag, offset) in offsets.enumerate() {
                    client.submit_write(tag as u32, CommandFlags::default(), offset, data).map_err(failed)?;
                }
                client.send_submitted().map_err(failed)?;
                while client.under_way_count() > 0 {
                    client.receive(|_, _, _| ()).map_err(failed)?;
                }
                Ok(())
            }
        }
    }
}

/// One transaction: when it was done and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// Since the demonstration started.
    pub done: Span,
    /// From the write to the return of fsync.
    pub latency: Span,
}

#[derive(Default)]
struct Shared {
    is_stopped: AtomicBool,
    done: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }

    fn give_up(&self, tenant: &str, error: String) {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        problem.get_or_insert(format!("{tenant}: {error}"));
    }

    fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The small writer: 4 KiB somewhere in its file, fsync, again.
pub struct Transactions {
    shared: Arc<Shared>,
    thread: JoinHandle<Vec<Transaction>>,
}

impl Transactions {
    /// Starts it.
    pub fn start(mut target: Target, stopwatch: Stopwatch) -> Transactions {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let (mut done, mut page) = (Vec::new(), vec![0u8; TRANSACTION_BYTES]);
            while of_thread.goes_on() {
                let number = done.len() as u64 + 1;
                page[..8].copy_from_slice(&number.to_le_bytes());
                let pages = TRANSACTIONS_FILE_BYTES / TRANSACTION_BYTES as u64;
                let offset = number.wrapping_mul(SPREAD) % pages * TRANSACTION_BYTES as u64;
                let start = stopwatch.elapsed();
                if let Err(error) = target.write(offset, &page).and_then(|()| target.sync()) {
                    of_thread.give_up("transactions", error);
                    break;
                }
                let end = stopwatch.elapsed();
                done.push(Transaction { done: end, latency: end.saturating_sub(start) });
                of_thread.done.store(number, Ordering::Relaxed);
            }
            done
        });
        Transactions { shared, thread }
    }

    /// Transactions done so far.
    pub fn count(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// What made it give up, if it did.
    pub fn problem(&self) -> Option<String> {
        self.shared.problem()
    }

    /// Ends it and answers with all its transactions.
    pub fn stop(self) -> Vec<Transaction> {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// The bulk writer: several large files at once, as a backup does. Ends when dropped.
pub struct Backup {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Backup {
    /// Starts a thread for each target.
    pub fn start(targets: Vec<(Target, u64)>) -> Backup {
        let shared = Arc::new(Shared::default());
        let threads = targets.into_iter().map(|(target, start)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || back_up(target, start, &shared))
        });
        let threads = threads.collect();
        Backup { shared, threads }
    }

    /// What made it give up, if it did.
    pub fn problem(&self) -> Option<String> {
        self.shared.problem()
    }
}

fn back_up(mut target: Target, start: u64, shared: &Shared) {
    let data = vec![0xb5u8; BACKUP_CHUNK_BYTES];
    let mut position = 0;
    while shared.goes_on() {
        let written = target.write_all(start + position, &data, BACKUP_SYNC_BYTES / BACKUP_CHUNK_BYTES as u64);
        if let Err(error) = written.and_then(|()| target.sync()) {
            return shared.give_up("backup", error);
        }
        position = (position + BACKUP_SYNC_BYTES) % BACKUP_FILE_BYTES;
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
