//! Disk drives: one arm, spinning platters, a queue and a buffer.
//!
//! The intuition: the arm does one thing at a time. When it becomes free, it decides on the next command. From that
//! moment on the time of the command's end is known: seek, wait for the sector, transfer. So the model is a short list
//! of decisions, each made at a time that the earlier ones fixed. The time at which the host looks at the results does
//! not matter.
//!
//! ```text
//!   arrival --overhead--> ready        head there          first sector     last sector
//!                           |--- seek ---|---- rotation -----|--- transfer ---|  free: decide again
//! ```
//!
//! The platters turn with absolute time: the angle at time t is (t + phase) modulo one revolution. So the rotational
//! delay is as on a real drive. It is small for a request that keeps up with the stream, almost a whole revolution for
//! one that comes a moment too late.
//!
//! Three things bypass the arm: a read with its data in the buffer, a write that the volatile cache takes, and trims
//! and zeroing. The last are only noted. Rules where they meet the arm:
//!
//! - After a read the drive reads on (`read_buffer.rs`) until another command needs the arm.
//! - A forced write goes to the platters. Without a write cache every write does.
//! - A flush drains the write cache before anything else is done.
//! - The cache drains by itself while no command waits. A write without room waits for a drain, and takes turns with
//!   the queue.
//!
//! Offsets beyond the capacity wrap around; a request that crosses the end stops there. Nothing here panics on what a
//! host sends.

mod geometry;
pub mod parameters;
mod queue;
mod read_buffer;
#[cfg(test)]
mod tests;
mod write_cache;

use crate::model::{DeviceModel, DeviceRequest, Finished};
use geometry::{Geometry, SECTOR_BYTES, SeekCurve, Stretch, Track};
use parameters::HddParameters;
use plimsoll_core::{DeviceProfile, Operation, Span, Time};
use queue::{Command, Queue};
use read_buffer::{ReadBuffer, Stream};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use write_cache::WriteCache;

/// What waits for the write cache to drain.
#[derive(Clone, Copy, Debug)]
enum Blocked {
    Flush { token: u64, ready: Time },
    Write(Command),
}

/// The arm at a moment when it may leave for somewhere else.
#[derive(Clone, Copy, Debug)]
struct Arm {
    at: Time,
    track: Track,
    /// The angle that is under the heads then.
    angle_ns: u64,
}

/// A disk drive. Every call costs O(window + log outstanding), a flush with a write cache O(extents).
#[derive(Clone, Debug)]
pub struct Hdd {
    parameters: HddParameters,
    profile: DeviceProfile,
    geometry: Geometry,
    seek: SeekCurve,
    phase_ns: u64,
    queue: Queue,
    blocked: VecDeque<Blocked>,
    is_blocked_turn: bool,
    buffer: ReadBuffer,
    cache: WriteCache,
    /// Sectors of the cache that are on their way to the platters until `free_at`.
    sectors_leaving: u64,
    /// The sector that the arm stands at when it is free, unless it reads on.
    head_sector: u64,
    /// What the arm is doing now ends then.
    free_at: Time,
    /// The arm works for a request of the host until then.
    serving_until: Time,
    finished: BinaryHeap<Reverse<(Time, u64, u64)>>,
    sequence: u64,
}

impl Hdd {
    /// A drive with these parameters; the seed decides where its platters stand at time 0.
    pub fn new(parameters: &HddParameters, seed: u64) -> Hdd {
        let geometry = Geometry::new(parameters);
        let seek = SeekCurve::new(parameters, geometry.cylinders());
        let read_ahead_sectors = parameters.buffer.read_ahead_bytes / SECTOR_BYTES;
        Hdd {
            profile: DeviceProfile {
                name: parameters.name.to_owned(),
                capacity_bytes: geometry.sectors() * SECTOR_BYTES,
                worst_case_runs_per_second: parameters.worst_case_runs_per_second,
                sequential_bytes_per_second: parameters.sequential_bytes_per_second,
                sequential_write_bytes_per_second: parameters.sequential_bytes_per_second,
                write_settle: Span::from_micros(parameters.seek.write_settle_us),
                is_rotational: true,
                outstanding_max: parameters.outstanding_max,
            },
            seek,
            phase_ns: crate::random::mix(seed) % parameters.revolution_ns,
            queue: Queue::new(parameters.window, Span::from_micros(parameters.age_max_us)),
            blocked: VecDeque::with_capacity(64),
            is_blocked_turn: true,
            buffer: ReadBuffer::new(parameters.buffer.read_segments, 2 * read_ahead_sectors),
            cache: WriteCache::new(parameters.buffer.write_cache_bytes),
            sectors_leaving: 0,
            head_sector: 0,
            free_at: Time::ZERO,
            serving_until: Time::ZERO,
            finished: BinaryHeap::with_capacity(256),
            sequence: 0,
            parameters: parameters.clone(),
            geometry,
        }
    }

    fn finish(&mut self, token: u64, at: Time) {
        self.sequence += 1;
        self.finished.push(Reverse((at, self.sequence, token)));
    }

    /// The sectors that a request covers: wrapped into the capacity, cut at its end, at least one.
    fn sectors_of(&self, request: &DeviceRequest) -> (u64, u64) {
        let capacity_bytes = self.geometry.sectors() * SECTOR_BYTES;
        let offset = request.offset % capacity_bytes;
        let end = (offset + u64::from(request.length)).div_ceil(SECTOR_BYTES);
        let start = offset / SECTOR_BYTES;
        (start, end.clamp(start + 1, self.geometry.sectors()))
    }

    /// How long the cable needs for so many sectors.
    fn cable(&self, sectors: u64) -> Span {
        Span::from_nanos(sectors * SECTOR_BYTES * 1_000_000_000 / self.parameters.interface_bytes_per_second)
    }

    /// Where the head is when the stream, if there is one, has read everything before `position`.
    fn head_track(&self, position: Option<u64>) -> Track {
        self.geometry.track(position.map_or(self.head_sector, |position| position.saturating_sub(1)))
    }

    /// An arm that may leave `track` at `at`.
    fn arm(&self, at: Time, track: Track) -> Arm {
        let revolution_ns = self.parameters.revolution_ns;
        Arm { at, track, angle_ns: (at.as_nanos() % revolution_ns + self.phase_ns) % revolution_ns }
    }

    /// How long the arm needs from one track to another, settling included.
    fn seek(&self, from: Track, to: Track, is_write: bool) -> Span {
        let distance = from.cylinder.abs_diff(to.cylinder);
        let switch_ns = if from.head == to.head { 0 } else { self.parameters.head_switch_us * 1_000 };
        let extra_us = match (distance, is_write) {
            (..=1, _) => 0,
            (_, false) => self.parameters.seek.start_us,
            (_, true) => self.parameters.seek.start_us + self.parameters.seek.write_settle_us,
        };
        Span::from_nanos(self.seek.seek_ns(distance).max(switch_ns) + extra_us * 1_000)
    }

    /// When the beginning of `target` is under the head of an arm that leaves now, unless that is `limit` or later. It
    /// comes by once a revolution; the first time after the arm is there counts. So the time until it comes by at all
    /// bounds the answer, and most candidates need no seek worked out.
    fn access_before(&self, arm: &Arm, target: &Stretch, is_write: bool, limit: Time) -> Option<Time> {
        let revolution_ns = self.parameters.revolution_ns;
        let behind_ns = if target.angle_ns < arm.angle_ns { revolution_ns } else { 0 };
        let gap_ns = target.angle_ns + behind_ns - arm.angle_ns;
        if arm.at + Span::from_nanos(gap_ns) >= limit {
            return None;
        }
        let missed_ns = self.seek(arm.track, target.track, is_write).as_nanos().saturating_sub(gap_ns);
        let turns = missed_ns.div_ceil(revolution_ns);
        Some(arm.at + Span::from_nanos(gap_ns + turns * revolution_ns)).filter(|&at| at < limit)
    }

    /// When the beginning of `target` is under the head, for an arm that may leave at once.
    fn access_at(&self, arm: &Arm, target: &Stretch, is_write: bool) -> Time {
        self.access_before(arm, target, is_write, Time::MAX).unwrap_or(Time::MAX)
    }

    /// When the first sector of a waiting command could be had, unless that is `limit` or later.
    fn command_access_before(&self, arm: &Arm, command: &Command, limit: Time) -> Option<Time> {
        match &self.buffer.stream {
            Some(stream) if !command.is_write && stream.continues(command.stretch.start) => {
                let at = arm.at.max(command.ready).max(stream.reaches(&self.geometry, command.stretch.start));
                Some(at).filter(|&at| at < limit)
            }
            _ if command.ready > arm.at => {
                let later = self.arm(command.ready, arm.track);
                self.access_before(&later, &command.stretch, command.is_write, limit)
            }
            _ => self.access_before(arm, &command.stretch, command.is_write, limit),
        }
    }

    /// Moves the arm, no earlier than `at`, and transfers the stretch. Returns when that is done.
    fn transfer(&mut self, at: Time, stretch: &Stretch, is_write: bool) -> Time {
        let at = at.max(self.free_at);
        let position = self.buffer.stop(&self.geometry, at);
        let arm = self.arm(at, self.head_track(position));
        self.free_at = self.access_at(&arm, stretch, is_write) + stretch.transfer();
        self.head_sector = stretch.end - 1;
        self.sectors_leaving = 0;
        self.free_at
    }

    /// Lets the stream read on past `end`; if it had stopped at its limit, it must wait for that to come round.
    fn extend_stream(&mut self, at: Time, end: u64) {
        let limit = (end + self.parameters.buffer.read_ahead_bytes / SECTOR_BYTES).min(self.geometry.sectors());
        let Some(stream) = &self.buffer.stream else { return };
        if limit <= stream.limit {
            return;
        }
        let anchor = stream.limit;
        let position = stream.position(&self.geometry, at);
        let restart = (position >= stream.limit).then(|| {
            let target = self.geometry.stretch(anchor, anchor + 1);
            let arm = self.arm(at, self.head_track(Some(position)));
            (target.begin_ns, self.access_at(&arm, &target, false))
        });
        let Some(stream) = &mut self.buffer.stream else { return };
        if let Some((anchor_ns, anchored_at)) = restart {
            (stream.anchor, stream.anchor_ns, stream.anchored_at) = (anchor, anchor_ns, anchored_at);
        }
        stream.limit = limit;
        stream.begin = stream.begin.max(limit.saturating_sub(self.buffer.segment_sectors));
    }

    fn serve_read(&mut self, at: Time, command: &Command) -> Time {
        let (at, stretch) = (at.max(command.ready), &command.stretch);
        if self.buffer.stream.as_ref().is_some_and(|stream| stream.continues(stretch.start)) {
            self.extend_stream(at, stretch.end);
            if let Some(stream) = &self.buffer.stream {
                let reached = stream.reaches(&self.geometry, stretch.end);
                return reached.max(at + self.cable(stretch.sectors()));
            }
        }
        let done = self.transfer(at, stretch, false);
        let limit = stretch.end + self.parameters.buffer.read_ahead_bytes / SECTOR_BYTES;
        self.buffer.stream = Some(Stream {
            begin: stretch.start,
            anchor: stretch.start,
            anchor_ns: stretch.begin_ns,
            anchored_at: done.saturating_sub(stretch.transfer()),
            limit: limit.min(self.geometry.sectors()),
        });
        done
    }

    fn write_through(&mut self, at: Time, stretch: &Stretch) -> Time {
        let done = self.transfer(at, stretch, true);
        self.buffer.invalidate(stretch.start, stretch.end);
        done
    }

    /// Gives the arm to a command of the host.
    fn serve(&mut self, at: Time, command: &Command) {
        let done = if command.is_write {
            self.cache.remove(command.stretch.start, command.stretch.end);
            self.write_through(at.max(command.ready), &command.stretch)
        } else {
            self.serve_read(at, command)
        };
        self.served(command.token, done);
    }

    /// Ends what the arm did for the host. Nothing is decided before `done`, so nothing that is decided later can be
    /// done earlier.
    fn served(&mut self, token: u64, done: Time) {
        self.free_at = self.free_at.max(done);
        self.serving_until = self.free_at;
        self.finish(token, done);
    }

    /// Writes one piece of the cache to the platters.
    fn destage(&mut self, at: Time) {
        if let Some(piece) = self.cache.take_next(self.head_sector) {
            self.write_through(at, &self.geometry.stretch(piece.start, piece.end));
            self.sectors_leaving = piece.end - piece.start;
        }
    }

    /// Writes pieces of the cache to the platters until `is_enough`.
    fn drain(&mut self, at: Time, is_enough: impl Fn(&WriteCache) -> bool) {
        let mut sectors = 0;
        while !is_enough(&self.cache) {
            self.destage(at);
            sectors += self.sectors_leaving;
            self.sectors_leaving = sectors;
        }
    }

    /// Serves what waits for the cache.
    fn serve_blocked(&mut self, at: Time, blocked: Blocked) {
        match blocked {
            Blocked::Flush { token, ready } => {
                self.drain(at, WriteCache::is_clean);
                self.served(token, self.free_at.max(ready));
            }
            Blocked::Write(command) => {
                let Stretch { start, end, .. } = command.stretch;
                let sectors = command.stretch.sectors();
                self.drain(at, |cache| cache.has_room(sectors, 0));
                self.cache.insert(start, end);
                self.served(command.token, self.free_at.max(command.ready + self.cable(sectors)));
            }
        }
    }

    /// Decides what the arm, free at `at`, does next for the host; whether there was anything.
    fn serve_next(&mut self, at: Time) -> bool {
        if (self.is_blocked_turn || self.queue.is_empty())
            && let Some(blocked) = self.blocked.pop_front()
        {
            self.is_blocked_turn = matches!(blocked, Blocked::Flush { .. });
            self.serve_blocked(at, blocked);
            return true;
        }
        self.is_blocked_turn = true;
        let position = self.buffer.stream.as_ref().map(|stream| stream.position(&self.geometry, at));
        let arm = self.arm(at, self.head_track(position));
        let access_before = |command: &Command, limit| self.command_access_before(&arm, command, limit);
        let position = self.queue.next_position(at, access_before);
        let Some(command) = position.and_then(|position| self.queue.remove(at, position)) else { return false };
        self.serve(at, &command);
        true
    }

    /// Makes every decision that is due by `now`. What waits was there when the arm became free, or it would have
    /// been served at once.
    fn advance(&mut self, now: Time) {
        while self.free_at <= now {
            if self.serve_next(self.free_at) {
                continue;
            }
            if self.cache.is_clean() {
                return;
            }
            self.destage(self.free_at);
        }
    }

    /// Whether the stream under way has everything that a read wants by `ready`.
    fn is_streamed(&self, start: u64, end: u64, ready: Time) -> bool {
        self.buffer.stream.as_ref().is_some_and(|stream| {
            stream.continues(start) && end <= stream.limit && stream.reaches(&self.geometry, end) <= ready
        })
    }

    fn submit_read(&mut self, now: Time, command: Command) {
        let (Stretch { start, end, .. }, ready) = (command.stretch, command.ready);
        let is_streamed = self.is_streamed(start, end, ready);
        if !is_streamed && !self.buffer.holds(start, end) && !self.cache.holds(start, end) {
            self.queue.push(command);
            return;
        }
        if is_streamed && self.serving_until <= now {
            self.extend_stream(ready, end);
        }
        self.finish(command.token, ready + self.cable(end - start));
    }

    fn submit_write(&mut self, now: Time, command: Command, is_forced: bool) {
        let sectors = command.stretch.sectors();
        if is_forced || !self.cache.can_hold(sectors) {
            self.queue.push(command);
        } else if self.blocked.is_empty() && self.cache.has_room(sectors, self.sectors_leaving(now)) {
            self.cache.insert(command.stretch.start, command.stretch.end);
            self.finish(command.token, command.ready + self.cable(sectors));
            if self.free_at <= now {
                self.destage(now);
            }
        } else {
            self.blocked.push_back(Blocked::Write(command));
        }
    }

    fn sectors_leaving(&self, now: Time) -> u64 {
        if now < self.free_at { self.sectors_leaving } else { 0 }
    }
}

impl DeviceModel for Hdd {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.advance(now);
        let ready = now + Span::from_micros(self.parameters.command_overhead_us);
        let (start, end) = self.sectors_of(&request);
        let (is_write, stretch) = (request.operation.is_write(), self.geometry.stretch(start, end));
        let command = Command { token: request.token, is_write, stretch, arrived: now, ready };
        match request.operation {
            Operation::Flush if self.cache.is_clean() && self.sectors_leaving(now) == 0 => {
                self.finish(request.token, ready);
            }
            Operation::Flush => self.blocked.push_back(Blocked::Flush { token: request.token, ready }),
            Operation::Trim | Operation::WriteZeroes => self.finish(request.token, ready),
            Operation::Read | Operation::Write if request.length == 0 => self.finish(request.token, ready),
            Operation::Read => self.submit_read(now, command),
            Operation::Write => self.submit_write(now, command, request.is_forced),
        }
        if self.serving_until <= now {
            self.serve_next(self.free_at.max(now));
        }
    }

    fn next_completion(&self) -> Option<Time> {
        self.finished.peek().map(|Reverse((at, ..))| *at)
    }

    fn complete(&mut self, now: Time) -> Option<Finished> {
        self.advance(now);
        self.finished.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.finished.pop().map(|Reverse((at, _, token))| Finished { token, at })
    }

    fn outstanding(&self) -> usize {
        self.finished.len() + self.queue.len() + self.blocked.len()
    }
}
