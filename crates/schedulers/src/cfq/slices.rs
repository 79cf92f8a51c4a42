//! Slices: how long they are, when they begin and end, and which queue's is next.

use super::*;
use trees::TreeKey;

/// The slice of a queue of this level before it is scaled (`cfq_prio_slice`), ns.
fn nominal_slice_ns(is_sync: bool, level: u8) -> i64 {
    let normal_ns = if is_sync { SLICE_SYNC } else { SLICE_ASYNC }.as_nanos() as i64;
    normal_ns + normal_ns / SLICE_SCALE * (LEVEL_NORMAL - i64::from(level))
}

fn level_of(queue: &CfqQueue) -> u8 {
    match queue.priority {
        Priority::RealTime(level) | Priority::Level(level) => level,
        Priority::Idle => LEVELS - 1,
    }
}

fn key(now: Time) -> TreeKey {
    now.as_nanos() as TreeKey
}

impl Cfq {
    /// The length of a slice, shortened if all queues of the class would need more than the target latency
    /// (`cfq_scaled_cfqq_slice`), ns.
    fn slice_ns(&self, class: IoClass, is_sync: bool, level: u8) -> i64 {
        let slice_ns = nominal_slice_ns(is_sync, level);
        let average = self.busy_average.get(class as usize).copied().unwrap_or(0) as i64;
        let (sync_ns, target_ns) = (SLICE_SYNC.as_nanos() as i64, TARGET_LATENCY.as_nanos() as i64);
        let round_ns = sync_ns * average;
        if round_ns <= target_ns {
            return slice_ns;
        }
        let floor_ns = slice_ns.min(2 * self.slice_idle.as_nanos() as i64 * slice_ns / sync_ns);
        (slice_ns * target_ns / round_ns).max(floor_ns)
    }

    fn slice_of(&self, index: usize) -> i64 {
        let queue = &self.queues[index];
        self.slice_ns(queue.class(), queue.is_sync, level_of(queue))
    }

    /// Delay of this queue behind one of the highest priority, ns. It adds, for each other queue, the difference of the
    /// slices, so that it misses turns, too (`cfq_slice_offset`, which does not count a new queue).
    fn offset_ns(&self, index: usize) -> i64 {
        let others = self.trees.busy().0.saturating_sub(1) as i64;
        others * (self.slice_ns(self.queues[index].class(), true, 0) - self.slice_of(index))
    }

    /// Puts a queue into its tree: the shorter its slice, and the more it overran the last, the later.
    pub(super) fn enlist(&mut self, now: Time, index: usize) {
        let (class, workload) = (self.queues[index].class(), self.queues[index].workload());
        let offset_ns = self.offset_ns(index);
        let key = if class == IoClass::Idle {
            self.trees.remove(index);
            self.trees.last_idle().unwrap_or(key(now)) + IDLE_DELAY.as_nanos() as TreeKey
        } else {
            key(now) + offset_ns - std::mem::take(&mut self.queues[index].residue_ns)
        };
        self.trees.put(index, class, workload, key);
    }

    /// Puts a queue that stands in a tree before all others.
    pub(super) fn enlist_first(&mut self, now: Time, index: usize) {
        let (class, workload) = (self.queues[index].class(), self.queues[index].workload());
        let first = self.trees.first(class, workload).map_or(key(now), |(key, _)| key);
        self.trees.put(index, class, workload, first - FRONT.as_nanos() as TreeKey);
    }

    /// The first completion begins the slice's time (`cfq_set_prio_slice`).
    pub(super) fn start_slice_if_new(&mut self, now: Time, index: usize) {
        if !matches!(self.queues[index].slice, Slice::New) {
            return;
        }
        let class = self.queues[index].class();
        if class != IoClass::Idle {
            let busy = self.trees.busy_in(class) as u64;
            let average = &mut self.busy_average[class as usize];
            let (low, high) = (busy.min(*average), busy.max(*average));
            *average = ((BUSY_AVERAGE_DIVISOR - 1) * high + low + BUSY_AVERAGE_DIVISOR / 2) / BUSY_AVERAGE_DIVISOR;
        }
        let end = now + Span::from_nanos(self.slice_of(index) as u64);
        self.queues[index].slice = Slice::Running(now, end);
    }

    /// Takes the disk from the active queue (`__cfq_slice_expired`). What is left of its slice counts for the next if
    /// it `keeps_rest`.
    pub(super) fn end_slice(&mut self, now: Time, keeps_rest: bool) {
        self.idle_until = None;
        let Some(index) = self.active.take() else { return };
        if keeps_rest {
            self.queues[index].residue_ns = match self.queues[index].slice {
                Slice::New => self.slice_of(index),
                Slice::Running(_, end) => key(end) - key(now),
            };
        }
        match self.queues[index].is_empty() {
            true => self.trees.remove(index),
            false => self.enlist(now, index),
        }
    }

    /// An asynchronous slice ends with its number of requests as well, one of the idle class with every request.
    pub(super) fn end_slice_if_dispatched_enough(&mut self, now: Time, index: usize) {
        let queue = &self.queues[index];
        let requests_max = 2 * SLICE_ASYNC_REQUESTS * u32::from(LEVELS - level_of(queue));
        let is_enough = !queue.is_sync && queue.slice_dispatched >= requests_max || queue.class() == IoClass::Idle;
        if is_enough && self.trees.busy().0 > 1 {
            self.end_slice(now, false);
        }
    }

    /// Gives the disk to the queue that is due; says what to answer if only the idle class waits and must.
    pub(super) fn begin_slice(&mut self, now: Time) -> Result<usize, Dispatch> {
        let busy_class = [IoClass::RealTime, IoClass::BestEffort].into_iter().find(|&c| self.trees.busy_in(c) > 0);
        match busy_class {
            Some(class) => self.choose_workload(now, class),
            None => self.wait_for_others(now)?,
        }
        let (class, workload) = self.serving;
        let (_, index) = self.trees.first(class, workload).ok_or(Dispatch::Nothing)?;
        self.queues[index].begin();
        self.active = Some(index);
        Ok(index)
    }

    /// The idle class waits while the others have requests at the device, and a while after they had.
    fn wait_for_others(&mut self, now: Time) -> Result<(), Dispatch> {
        self.serving = (IoClass::Idle, Workload::Async);
        let queues = self.at_device.values().filter_map(|request| request.queue);
        if queues.into_iter().any(|index| self.queues[index].class() != IoClass::Idle) {
            return Err(Dispatch::Nothing);
        }
        match self.others_seen.map(|seen| seen + IDLE_GRACE) {
            Some(from) if from > now => Err(Dispatch::NotBefore(from)),
            _ => Ok(()),
        }
    }

    /// Chooses the kind of queues to serve, and for how long: its part of the target latency by the number of its
    /// queues (`choose_wl_class_and_type`).
    fn choose_workload(&mut self, now: Time, class: IoClass) {
        let (served_class, served) = self.serving;
        if served_class == class && self.trees.count(class, served) > 0 && now <= self.serving_until {
            return;
        }
        let workload = self.trees.earliest(class).unwrap_or(Workload::SyncNoIdle);
        let busy = self.trees.busy_in(class) as u64;
        let part = |queues: usize, of: u64| TARGET_LATENCY.as_nanos() * queues as u64 / of.max(1);
        let span_ns = part(self.trees.count(class, workload), busy.max(self.busy_average[class as usize]));
        let span_ns = match workload {
            Workload::Async => {
                let classes = [IoClass::RealTime, IoClass::BestEffort];
                let busy_async = classes.iter().map(|&class| self.trees.count(class, Workload::Async)).sum();
                let span_ns = span_ns.min(part(busy_async, self.trees.busy().0 as u64));
                span_ns * SLICE_ASYNC.as_nanos() / SLICE_SYNC.as_nanos()
            }
            _ => span_ns.max(2 * self.slice_idle.as_nanos()),
        };
        self.serving = (class, workload);
        self.serving_until = now + Span::from_nanos(span_ns).max(WORKLOAD_MIN);
    }
}
