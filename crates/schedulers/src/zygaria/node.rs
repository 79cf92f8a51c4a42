//! What the scheduler knows of an account, so that an event finds it in neighbouring lines of memory.
//!
//! With a hundred thousand sessions nothing of an account is in the processor's cache when it is needed. Waiting for
//! memory is most of an event's cost. So an account is one block. First comes the line that every event needs, then its
//! queue with the first request in it, or, of a pool, its first member. Its address follows from the account's number,
//! so all of it can be loaded at once.

use crate::min_tree::{ABSENT, KEYS, MinTree};
use crate::request_queues::Queue;
use crate::token_bucket::{LimitBucket, ReserveBucket};
use crate::water_level::WaterLevel;
use plimsoll_core::account::WEIGHT_MAX;
use plimsoll_core::{AccountId, Time};

/// The keys of an account in its pool's three trees: deadline, level, waiting.
pub(super) type Keys = [u64; KEYS];
pub(super) const DEADLINE: usize = 0;
pub(super) const LEVEL: usize = 1;
pub(super) const WAITING: usize = 2;

/// What a pool knows of the accounts in it. Their numbers are the owners of the keys.
#[derive(Default)]
pub(super) struct Members {
    pub(super) keys: MinTree,
    free_slots: Vec<u32>,
    slots: u32,
}

impl Members {
    /// Gives `account` a place in the trees.
    pub(super) fn join(&mut self, account: AccountId) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.keys.assign(slot as usize, account.0);
        slot
    }

    /// Writes the keys of the account in `slot`, of which those in `present` stood in the trees; answers with those
    /// that do now.
    pub(super) fn write(&mut self, slot: u32, present: u8, keys: Keys) -> u8 {
        let slot = slot as usize;
        let now = (0..KEYS).filter(|&which| keys[which] != ABSENT).fold(0, |bits, which| bits | 1 << which);
        let touched = present | now;
        if touched & 1 << DEADLINE != 0 {
            self.keys.set_one::<DEADLINE>(slot, keys[DEADLINE]);
        }
        if touched & 1 << LEVEL != 0 {
            self.keys.set_one::<LEVEL>(slot, keys[LEVEL]);
        }
        if touched & 1 << WAITING != 0 {
            self.keys.set_one::<WAITING>(slot, keys[WAITING]);
        }
        now
    }

    /// Takes the place back.
    pub(super) fn leave(&mut self, slot: u32) {
        self.keys.set(slot as usize, [ABSENT; KEYS]);
        self.free_slots.push(slot);
    }
}

/// What is below an account.
pub(super) enum Below {
    /// No such account is open.
    Closed,
    /// Of a session: what it asked for and did not yet get.
    Requests(Queue),
    /// Of a pool.
    Members(Members),
}

/// One account. The fields stand in this order in memory, those before `below` in one line.
#[repr(C, align(64))]
pub(super) struct Node {
    /// Itself for the root.
    pub(super) parent: AccountId,
    /// Its place in the parent's trees.
    pub(super) slot: u32,
    /// Requests queued or at the device, here and below.
    pub(super) active: u32,
    pub(super) weight: u16,
    /// Which of its keys stand in the parent's trees, a bit each: one that neither stood there nor will is not looked
    /// for.
    pub(super) present: u8,
    pub(super) reserve: ReserveBucket,
    pub(super) limit: LimitBucket,
    pub(super) level: WaterLevel,
    pub(super) below: Below,
    /// When `active` last became zero, on the clock of deadlines.
    pub(super) idle_since: Time,
}

const LINE_BYTES: usize = 64;
const _: () = assert!(WEIGHT_MAX <= u16::MAX as u32);
const _: () = assert!(std::mem::offset_of!(Node, below) == LINE_BYTES && size_of::<Node>() == 3 * LINE_BYTES);

impl Node {
    /// Where no account is open.
    pub(super) const CLOSED: Node = Node {
        parent: AccountId::ROOT,
        slot: 0,
        active: 0,
        weight: 1,
        present: 0,
        reserve: ReserveBucket::EMPTY,
        limit: LimitBucket::EMPTY,
        level: WaterLevel::EMPTY,
        below: Below::Closed,
        idle_since: Time::ZERO,
    };

    /// The keys that this account has in its parent's trees at `now`.
    pub(super) fn keys(&self, now: Time) -> Keys {
        let (member_deadline, member_waiting, is_ready) = match &self.below {
            Below::Closed => (ABSENT, ABSENT, false),
            Below::Requests(queue) => (ABSENT, ABSENT, !queue.is_empty()),
            Below::Members(Members { keys, .. }) => {
                (keys.first(DEADLINE).key, keys.first(WAITING).key, keys.first(LEVEL).key != ABSENT)
            }
        };
        let release = self.limit.release();
        let is_held = release > now;
        let waiting = match (is_held, is_ready) {
            (false, _) => member_waiting,
            (true, true) => release.as_nanos(),
            (true, false) if member_waiting == ABSENT => ABSENT,
            (true, false) => member_waiting.max(release.as_nanos()),
        };
        if is_held || !is_ready {
            return [ABSENT, ABSENT, waiting];
        }
        let deadline = self.reserve.deadline().as_nanos().min(member_deadline);
        [deadline, self.level.key(f64::from(self.weight)), waiting]
    }
}
