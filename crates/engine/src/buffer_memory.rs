//! What all connections may have in buffers together.
//!
//! **Intuition.** A connection's buffers are bounded, but connections are not. A client that opens many and reads no
//! answers would take all memory, and the kernel would kill the daemon, with the volumes of all.
//!
//! **Rule.** Buffers that were written to take memory, and the connections of a volume together may have as much as is
//! free. So a volume that takes all that it gets has half of the memory, and the next volume half of the rest. The
//! number of their connections does not matter. These are dynamic thresholds (Choudhury and Hahne, IEEE/ACM
//! Transactions on Networking 6(2), 1998). A connection that gets none waits, and tries again.
//!
//! **Complication.** A buffer that comes back is kept warm for the next request. Of an idle connection that would be
//! for ever. So while more than three quarters of all are taken, what comes back goes back to the kernel. When a
//! connection finds none, so does what other connections of its engine do not use.
//!
//! Connections themselves take memory, too. They may have as much again as buffers may, so that new connections find
//! memory where the buffers of others have taken theirs. A connection for which there is none is not let in. The first
//! [`OWN_BYTES`] of a connection's buffers belong to that. Otherwise a client that reads no answers could take all the
//! memory of its volume. The volume's other connections would wait until that client is gone.
//!
//! It is counted when memory is taken from the kernel or given back, which busy connections seldom do.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Least memory for buffers, in bytes. A volume alone gets half of it, and its largest request takes 32 MiB.
pub const BUFFER_BYTES_MIN: u64 = 128 << 20;
/// Bytes before the data of every buffer, for a front end's header. One page, so that data stays aligned.
pub const HEADROOM_BYTES: usize = 4096;
/// Bytes of buffers that a connection always has: one of 64 KiB with its headroom.
pub(super) const OWN_BYTES: u64 = HEADROOM_BYTES as u64 + (64 << 10);
/// Memory of a connection, in bytes: its receive buffer, small answers that wait, and [`OWN_BYTES`].
const CONNECTION_BYTES: u64 = 640 << 10;
/// Part of the machine's memory for buffers if no setting says how much: one in this many.
const PART_OF_MEMORY: u64 = 4;

/// The memory for buffers: how much there is, and how much is taken. Clones are the same memory, of the same volume.
#[derive(Clone, Debug)]
pub struct BufferMemory {
    budget: Arc<MemoryBudget>,
    /// Bytes that the volume has.
    own_bytes: Arc<AtomicU64>,
    /// The same for the connections themselves.
    connections: Option<Box<BufferMemory>>,
}

/// The memory of a connection, as long as there is this.
#[derive(Debug)]
pub(super) struct ConnectionMemory(BufferMemory);

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        self.0.give(CONNECTION_BYTES);
    }
}

/// The memory of all volumes together.
#[derive(Debug)]
struct MemoryBudget {
    bytes_max: u64,
    taken_bytes: AtomicU64,
}

impl BufferMemory {
    /// So many bytes, at least [`BUFFER_BYTES_MIN`].
    pub fn new(bytes_max: u64) -> BufferMemory {
        let bytes_max = bytes_max.max(BUFFER_BYTES_MIN);
        let connections = Some(Box::new(BufferMemory::of(bytes_max, None)));
        BufferMemory::of(bytes_max, connections)
    }

    fn of(bytes_max: u64, connections: Option<Box<BufferMemory>>) -> BufferMemory {
        let budget = MemoryBudget { bytes_max, taken_bytes: AtomicU64::new(0) };
        BufferMemory { budget: Arc::new(budget), own_bytes: Arc::default(), connections }
    }

    /// How many there are.
    pub fn bytes_max(&self) -> u64 {
        self.budget.bytes_max
    }

    /// Bytes that are taken.
    pub fn taken_bytes(&self) -> u64 {
        self.budget.taken_bytes.load(Relaxed)
    }

    /// The same memory, for another volume.
    pub(super) fn of_another(&self) -> BufferMemory {
        let connections = self.connections.as_ref().map(|connections| Box::new(connections.of_another()));
        BufferMemory { budget: self.budget.clone(), own_bytes: Arc::default(), connections }
    }

    /// The memory of another connection of the volume, if it may have one.
    pub(super) fn connection(&self) -> Option<ConnectionMemory> {
        let connections = self.connections.as_deref()?;
        connections.take(CONNECTION_BYTES).then(|| ConnectionMemory(connections.clone()))
    }

    /// Takes `bytes`, if the volume may have them.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let own = self.own_bytes.load(Relaxed) + bytes;
        let may_have = |taken: u64| {
            let free = self.budget.bytes_max.checked_sub(taken + bytes)?;
            (own <= free + bytes).then_some(taken + bytes)
        };
        let has_taken = self.budget.taken_bytes.fetch_update(Relaxed, Relaxed, may_have).is_ok();
        if has_taken {
            self.own_bytes.store(own, Relaxed);
        }
        has_taken
    }

    /// Gives `bytes` back.
    pub(super) fn give(&self, bytes: u64) {
        self.own_bytes.fetch_sub(bytes, Relaxed);
        self.budget.taken_bytes.fetch_sub(bytes, Relaxed);
    }

    /// So much is taken that what comes back is not kept.
    pub(super) fn is_scarce(&self) -> bool {
        self.taken_bytes() > self.budget.bytes_max / 4 * 3
    }
}

impl Default for BufferMemory {
    /// A quarter of the machine's memory.
    fn default() -> BufferMemory {
        let info = rustix::system::sysinfo();
        let machine_bytes = (info.totalram as u64).saturating_mul(info.mem_unit.into());
        BufferMemory::new(machine_bytes / PART_OF_MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: volume-buffer-memory.
    #[test]
    fn a_volume_that_takes_all_that_it_gets_leaves_half_of_it_to_the_next() {
        let memory = BufferMemory::new(256 << 20);
        let mut all = Vec::new();
        for volumes in 1..=7u64 {
            let (own, mut bytes) = (memory.of_another(), 0);
            while own.take(1 << 20) {
                bytes += 1 << 20;
            }
            assert_eq!(bytes << volumes, memory.bytes_max());
            all.push((own, bytes));
        }
        assert!(memory.is_scarce() && memory.taken_bytes() < memory.bytes_max());
        all.into_iter().for_each(|(own, bytes)| own.give(bytes));
        assert_eq!((memory.taken_bytes(), memory.is_scarce()), (0, false));
    }
}
