//! A slow device, emulated.

use super::{BLOCK, profile};
use plimsoll_core::{DeviceProfile, Operation, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished as DeviceFinished};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device that does one thing after the other, and one of them never, until it is told to.
pub struct Slow {
    profile: DeviceProfile,
    /// What it takes for anything.
    each: Span,
    queue: VecDeque<(u64, Time)>,
    /// The block with which it has a difficulty, and with which operation on it.
    sticks_at: Option<(Operation, u64)>,
    stuck: Option<u64>,
    is_freed: Arc<AtomicBool>,
}

impl Slow {
    /// What lets go of the one with which it has a difficulty comes with it.
    pub fn new(each: Span, sticks_at: Option<(Operation, u64)>) -> (Box<Slow>, Arc<AtomicBool>) {
        let (queue, freed) = (VecDeque::new(), Arc::new(AtomicBool::new(false)));
        let slow = Slow { profile: profile(), each, queue, sticks_at, stuck: None, is_freed: freed.clone() };
        (Box::new(slow), freed)
    }
}

impl DeviceModel for Slow {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        if self.sticks_at == Some((request.operation, request.offset / BLOCK)) {
            self.sticks_at = None;
            self.stuck = Some(request.token);
            return;
        }
        let begins = self.queue.back().map_or(now, |&(_, until)| until.max(now));
        self.queue.push_back((request.token, begins + self.each));
    }

    fn next_completion(&self) -> Option<Time> {
        self.queue.front().map(|&(_, until)| until)
    }

    fn complete(&mut self, now: Time) -> Option<DeviceFinished> {
        if self.is_freed.load(Ordering::Relaxed)
            && let Some(token) = self.stuck.take()
        {
            return Some(DeviceFinished { token, at: now });
        }
        if self.queue.front()?.1 > now {
            return None;
        }
        let (token, at) = self.queue.pop_front()?;
        Some(DeviceFinished { token, at })
    }

    fn outstanding(&self) -> usize {
        self.queue.len() + usize::from(self.stuck.is_some())
    }
}
