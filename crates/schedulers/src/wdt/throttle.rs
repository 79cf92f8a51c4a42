//! The throttle that threads share: credits by container, handed out in handfuls (WDT, sections 3.2 and 3.5).
//!
//! **Intuition.** Each container has a purse, each thread a pocket. A thread pays from its pocket and touches nothing
//! that another thread touches. When the pocket is empty it takes a handful out of the purse. **Rule.** A purse is one
//! word: what is in it, and the window up to which it has been filled. A thread that takes from it in a later window
//! first adds the credits of the windows since. So no thread has to go through all containers when a window ends. What
//! stayed in the purse is the paper's residual credit; what was overdrawn stays owed in the pocket.
//!
//! **Complication.** No thread knows which containers are active, and which is the heaviest. The first that takes from
//! a purse in a period (ten windows) adds the container's weight to the roll of that period. That happens once a period
//! and container.
//!
//! Credits are counted in 256ths of a sector, so that the share of a light container on a slow device is not rounded
//! away.

use crate::growth::reserve_sparingly;
use std::sync::atomic::{AtomicU64, Ordering};

/// Credits of a sector of 512 bytes.
pub const CREDITS_PER_SECTOR: i64 = 256;
/// What a purse holds at the most, in budgets of a window: its own, and one that was not used. The paper knows no
/// bound; then a container that slept for a minute has a minute of the device in hand.
pub const BUDGETS_MAX: i64 = 2;
/// A handful is this part of a window's budget: a thread comes to the purse some hundred times a window at the most.
const HANDFULS_PER_BUDGET: i64 = 256;
/// Bits of a purse's word that count windows; the rest are credits, signed: 2^31 sectors. The count comes round after
/// 2^24 windows; a container that did nothing in exactly as many gets its budget a window late.
const WINDOW_BITS: u32 = 24;
const WINDOW_MASK: u64 = (1 << WINDOW_BITS) - 1;
const CREDITS_MAX: i64 = (1 << (63 - WINDOW_BITS)) - 1;

/// What changes once a window, and is only read otherwise.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Pace {
    window: AtomicU64,
    /// Credits for each unit of weight and window, the bits of an `f64`.
    unit: AtomicU64,
    /// Weight of all that it was worked out for; 0 if not set.
    weight_counted: AtomicU64,
    /// First window of this period, and of the one before.
    period_start: AtomicU64,
    previous_start: AtomicU64,
}

/// The containers that took something in this period.
#[derive(Debug, Default)]
#[repr(align(64))]
struct RollCall {
    /// Weight of all of them, and of those that were not there in the period before.
    weight: AtomicU64,
    weight_joined: AtomicU64,
    /// The heaviest: weight in the upper half, complement of its number in the lower, so that the first of equals wins.
    heaviest: AtomicU64,
}

/// One container; a line of memory of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Purse {
    /// Credits above, the window up to which they were filled below.
    word: AtomicU64,
    /// Credits that were ever taken.
    taken: AtomicU64,
    weight: AtomicU64,
    /// How often the weight has changed, and how often to 0, whichever container had the number.
    changes: AtomicU64,
    closings: AtomicU64,
}

/// The containers that were there in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Sum of the weights of all that took something.
    pub weight: u64,
    /// The heaviest of them and its weight; the lowest number where several are.
    pub heaviest: Option<(usize, u64)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Throttle {
    pace: Pace,
    roll: RollCall,
    weight_open: AtomicU64,
    purses: Vec<Purse>,
}

/// What one thread has in hand, by container. Credits; negative if a request was larger than what was left.
#[derive(Debug, Default)]
pub struct Pocket {
    credits: Vec<i64>,
}

impl Throttle {
    /// Opens a container, or gives its number to another. Starts like one that has slept: with two budgets.
    pub fn open(&mut self, container: usize, weight: u32) {
        if self.purses.len() <= container {
            reserve_sparingly(&mut self.purses, container + 1);
            self.purses.resize_with(container + 1, Purse::default);
        }
        self.set_weight(container, 0);
        let windows_ago = self.pace.window.load(Ordering::Relaxed).wrapping_sub(WINDOW_MASK / 2);
        let Purse { changes, closings, .. } = std::mem::take(&mut self.purses[container]);
        let word = AtomicU64::new(pack(windows_ago, 0));
        self.purses[container] = Purse { word, changes, closings, ..Purse::default() };
        self.set_weight(container, weight);
    }

    /// Changes the weight, to 0 when the container is closed; what is in the purse stays.
    pub fn set_weight(&self, container: usize, weight: u32) {
        let purse = &self.purses[container];
        let previous = purse.weight.swap(u64::from(weight), Ordering::Relaxed);
        self.weight_open.fetch_add(u64::from(weight).wrapping_sub(previous), Ordering::Relaxed);
        if u64::from(weight) != previous {
            purse.changes.fetch_add(1, Ordering::Relaxed);
            purse.closings.fetch_add(u64::from(weight == 0), Ordering::Relaxed);
        }
    }

    /// The weight of a container; 0 if it is closed.
    pub fn weight(&self, container: usize) -> u64 {
        self.purses[container].weight.load(Ordering::Relaxed)
    }

    /// How often a container's weight has changed; other weights, other budgets.
    pub fn weight_changes(&self, container: usize) -> u64 {
        self.purses[container].changes.load(Ordering::Relaxed)
    }

    /// How often a container of that number has closed.
    pub fn closings(&self, container: usize) -> u64 {
        self.purses[container].closings.load(Ordering::Relaxed)
    }

    /// Sum of the weights of all containers that are open.
    pub fn weight_open(&self) -> u64 {
        self.weight_open.load(Ordering::Relaxed)
    }

    /// Ends `windows` windows at once; from now on each brings `unit` credits for each unit of weight.
    pub fn end_windows(&self, windows: u64, unit: f64) {
        self.pace.unit.store(unit.to_bits(), Ordering::Relaxed);
        self.pace.window.fetch_add(windows, Ordering::Release);
    }

    /// Says for which weight, all together, the next unit of [`end_windows`](Self::end_windows) is worked out for.
    pub fn count_weight(&self, weight: u64) {
        self.pace.weight_counted.store(weight, Ordering::Relaxed);
    }

    /// Ends the period, of which the `windows` that [end](Self::end_windows) next are the last: answers with the
    /// containers that were there.
    pub fn end_period(&self, windows: u64) -> Active {
        let next = self.pace.window.load(Ordering::Relaxed).wrapping_add(windows);
        let previous = self.pace.period_start.swap(next, Ordering::Relaxed);
        self.pace.previous_start.store(previous, Ordering::Relaxed);
        self.roll.weight_joined.store(0, Ordering::Relaxed);
        let heaviest = self.roll.heaviest.swap(0, Ordering::Relaxed);
        Active {
            weight: self.roll.weight.swap(0, Ordering::Relaxed),
            heaviest: (heaviest != 0).then_some(((!heaviest as u32) as usize, heaviest >> 32)),
        }
    }

    /// Weight of those that are here in this period and were not in the one before.
    pub fn weight_joined(&self) -> u64 {
        self.roll.weight_joined.load(Ordering::Relaxed)
    }

    /// The number of windows that have ended.
    pub fn window(&self) -> u64 {
        self.pace.window.load(Ordering::Relaxed)
    }

    /// Credits that were ever taken from a container's purse.
    pub fn taken(&self, container: usize) -> i64 {
        self.purses[container].taken.load(Ordering::Relaxed) as i64
    }

    /// Credits that a window brings a container.
    pub fn budget(&self, container: usize) -> i64 {
        self.purses[container].budget(f64::from_bits(self.pace.unit.load(Ordering::Relaxed)))
    }

    /// Notes what a container used under a throttle that is not this one, whatever credits it has.
    pub fn note_used(&self, container: usize, credits: i64) {
        let taken = self.take(container, credits);
        // Wraps where a handful more was taken.
        self.purses[container].taken.fetch_add((credits - taken) as u64, Ordering::Relaxed);
    }

    /// Takes what a thread lacks, and a handful more; answers with what it got. An empty purse gives nothing.
    fn take(&self, container: usize, lacking: i64) -> i64 {
        let purse = &self.purses[container];
        let mut word = purse.word.load(Ordering::Acquire);
        loop {
            // Read after the word: the thread that wrote it had seen no later window than this thread sees now.
            let window = self.pace.window.load(Ordering::Acquire);
            let (elapsed, left) = unpack(word, window);
            let budget = purse.budget(self.unit_for(purse, window, elapsed));
            let filled = left.saturating_add(budget.saturating_mul(elapsed as i64)).min(budget * BUDGETS_MAX);
            let taken = (lacking + budget / HANDFULS_PER_BUDGET).min(filled);
            let filled = pack(window, filled - taken);
            match purse.word.compare_exchange_weak(word, filled, Ordering::AcqRel, Ordering::Acquire) {
                Err(changed) => word = changed,
                Ok(_) => {
                    purse.taken.fetch_add(taken as u64, Ordering::Relaxed);
                    if elapsed > 0 {
                        self.answer_roll(container, window, elapsed);
                    }
                    return taken;
                }
            }
        }
    }

    /// Credits for each unit of weight. After an absence there is one container more now than the unit was worked out
    /// for. Its share begins with its first request, not with the next window.
    fn unit_for(&self, purse: &Purse, window: u64, elapsed: u64) -> f64 {
        let unit = f64::from_bits(self.pace.unit.load(Ordering::Relaxed));
        let counted = self.pace.weight_counted.load(Ordering::Relaxed);
        if counted == 0 || !self.was_away(window, elapsed) {
            return unit;
        }
        let weight = purse.weight.load(Ordering::Relaxed);
        unit * counted as f64 / (counted + weight) as f64
    }

    /// Whether a container that last took something `elapsed` windows ago was not there in the period before this one.
    fn was_away(&self, window: u64, elapsed: u64) -> bool {
        elapsed > window.wrapping_sub(self.pace.previous_start.load(Ordering::Relaxed))
    }

    /// Notes that a container is there, if it was last before this period began.
    fn answer_roll(&self, container: usize, window: u64, elapsed: u64) {
        if elapsed <= window.wrapping_sub(self.pace.period_start.load(Ordering::Relaxed)) {
            return;
        }
        let weight = self.purses[container].weight.load(Ordering::Relaxed);
        self.roll.weight.fetch_add(weight, Ordering::Relaxed);
        if self.was_away(window, elapsed) {
            self.roll.weight_joined.fetch_add(weight, Ordering::Relaxed);
        }
        self.roll.heaviest.fetch_max(weight << 32 | u64::from(!(container as u32)), Ordering::Relaxed);
    }
}

impl Purse {
    fn budget(&self, unit: f64) -> i64 {
        ((unit * self.weight.load(Ordering::Relaxed) as f64) as i64).clamp(1, CREDITS_MAX / BUDGETS_MAX)
    }
}

impl Pocket {
    /// A pocket for the containers up to `containers`; it grows by [`open`](Self::open).
    pub fn new(containers: usize) -> Pocket {
        Pocket { credits: vec![0; containers] }
    }

    /// The container's number stands for another one now, to which nothing is owed.
    pub fn open(&mut self, container: usize) {
        if self.credits.len() <= container {
            reserve_sparingly(&mut self.credits, container + 1);
            self.credits.resize(container + 1, 0);
        }
        self.credits[container] = 0;
    }

    /// Whether a request of so many sectors may go: if anything is left, it may, and is paid for (section 3.2).
    ///
    /// # Panics
    /// If the container was never opened.
    #[inline]
    pub fn admit(&mut self, throttle: &Throttle, container: usize, sectors: u32) -> bool {
        let (in_hand, cost) = (&mut self.credits[container], i64::from(sectors) * CREDITS_PER_SECTOR);
        if *in_hand < cost {
            *in_hand += throttle.take(container, cost - *in_hand);
            if *in_hand <= 0 {
                return false;
            }
        }
        *in_hand -= cost;
        true
    }

    /// Number of windows, at least one, after which a refused container should try again. By then its debt is paid, or
    /// its purse is full and could take no more.
    pub fn windows_until_filled(&self, throttle: &Throttle, container: usize) -> u64 {
        (-self.credits[container] / throttle.budget(container) + 1).min(BUDGETS_MAX) as u64
    }
}

fn pack(window: u64, credits: i64) -> u64 {
    (credits << WINDOW_BITS) as u64 | window & WINDOW_MASK
}

/// Windows since the word was written, and the credits in it.
fn unpack(word: u64, window: u64) -> (u64, i64) {
    (window.wrapping_sub(word) & WINDOW_MASK, word as i64 >> WINDOW_BITS)
}

#[cfg(test)]
mod tests;
