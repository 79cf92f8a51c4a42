//! Front ends come and go: they are seated with a session, hear what is for them, are asked to stop, cut off, and
//! dismissed.

use crate::buffer::Arena;
use crate::config::{AttachmentId, SessionConfig};
use crate::error::EngineError;
use crate::front_end::{FrontEnd, LOOK_EVERY};
use crate::path::conductor::Conductor;
use crate::port::Port;
use crate::seat::{Seat, VolumeSeat};
use crate::slab::Slab;
use plimsoll_core::{Span, Time};

/// Buffers that lose their memory, because their front ends do not use it, each time that a front end has found none:
/// some milliseconds' work.
const TRIMMED_MAX: usize = 256;

/// A front end and its seat.
struct Attached {
    seat: Seat,
    front_end: Box<dyn FrontEnd>,
    /// When it is cut off; set once it was asked to stop.
    cut_at: Option<Time>,
}

/// The front ends that are attached.
pub(super) struct Attachments {
    front_ends: Slab<Attached>,
    /// Front ends that heard something in this turn.
    touched: Vec<u32>,
    /// Front ends that may be through.
    leaving: Vec<u32>,
    /// When the first of the front ends that were asked to stop is cut off.
    next_cut: Option<Time>,
    /// When it is looked again whether front ends' other ends are still there.
    next_look: Time,
}

impl Attachments {
    /// None, at the time `now`.
    pub(super) fn new(now: Time) -> Attachments {
        Attachments {
            front_ends: Slab::with_capacity(0),
            touched: Vec::new(),
            leaving: Vec::new(),
            next_cut: None,
            next_look: now + LOOK_EVERY,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front_ends.len() == 0
    }

    /// When one is to be cut off, or looked at.
    pub(super) fn wake_at(&self) -> Option<Time> {
        let look = (!self.is_empty()).then_some(self.next_look);
        [self.next_cut, look].into_iter().flatten().min()
    }

    /// Drops the front ends that want nothing any more and have nothing under way, and closes their sessions.
    pub(super) fn dismiss_finished(&mut self, conductor: &mut Conductor) {
        self.leaving.append(&mut conductor.ahead.through);
        while let Some(index) = self.leaving.pop() {
            let is_through = self.front_ends.get(index).is_some_and(|Attached { seat, front_end, .. }| {
                let is_through = front_end.is_finished() && seat.operations == 0 && seat.requests == 0;
                is_through && conductor.reader_is_through(seat)
            });
            if !is_through {
                continue;
            }
            if self.front_ends.get(index).is_some_and(|attached| conductor.owes_early(&attached.seat)) {
                conductor.ahead.through.push(index);
                continue;
            }
            let Some(Attached { seat, front_end, .. }) = self.front_ends.remove(index) else { continue };
            drop(front_end);
            conductor.ahead.close_reader(seat.volume, seat.reader);
            conductor.volumes[seat.volume].front_ends -= 1;
            if let Err(error) = conductor.close_account(seat.session) {
                tracing::error!(%error, "a session could not be closed");
            }
        }
    }

    /// Seats a front end, with a session in `pool` or in the volume's own, and lets it start.
    pub(super) fn attach(
        &mut self,
        conductor: &mut Conductor,
        volume: &str,
        pool: Option<String>,
        session: SessionConfig,
        front_end: Box<dyn FrontEnd>,
    ) -> Result<AttachmentId, EngineError> {
        let volume = conductor.volume(volume)?;
        let memory = (!front_end.has_own_memory()).then(|| conductor.volumes[volume].buffers.clone());
        let (action, out_of_memory) = ("let another connection in", || std::io::ErrorKind::OutOfMemory.into());
        let own_memory = match &memory {
            Some(memory) => match memory.connection() {
                None => return Err(EngineError::System { action, source: out_of_memory() }),
                own_memory => own_memory,
            },
            None => None,
        };
        let arena = Arena::new(front_end.buffer_classes(), memory)
            .map_err(|source| EngineError::System { action: "reserve buffers", source })?;
        let pool = pool.unwrap_or_else(|| conductor.volumes[volume].volume.config().pool.clone());
        let account = conductor.open_session(&pool, &session)?;
        let VolumeSeat { volume: of_seat, front_ends, .. } = &mut conductor.volumes[volume];
        *front_ends += 1;
        let seat = Seat {
            index: 0,
            volume,
            info: of_seat.info().clone(),
            session: account,
            reader: None,
            arena,
            operations: 0,
            requests: 0,
            is_touched: false,
            waits_for_memory: false,
            _memory: own_memory,
        };
        let index = self.front_ends.insert(Attached { seat, front_end, cut_at: None });
        self.front_ends[index].seat.index = index;
        self.front_ends[index].seat.reader = conductor.open_reader(volume, index, account);
        self.with(conductor, index, |front_end, port| front_end.started(port));
        Ok(AttachmentId(index))
    }

    /// Asks a front end to finish within `grace`.
    pub(super) fn stop_front_end(&mut self, conductor: &mut Conductor, index: u32, grace: Span) {
        let cut_at = conductor.ground.now + grace;
        let Some(attached) = self.front_ends.get_mut(index) else { return };
        let is_sooner = attached.cut_at.is_none_or(|before| cut_at < before);
        if is_sooner {
            attached.cut_at = Some(cut_at);
            self.next_cut = Some(self.next_cut.map_or(cut_at, |before| before.min(cut_at)));
        }
        self.with(conductor, index, |front_end, port| front_end.stop(port));
    }

    /// Asks all front ends that are attached to a volume to finish within `grace`.
    pub(super) fn stop_volume(
        &mut self,
        conductor: &mut Conductor,
        name: &str,
        grace: Span,
    ) -> Result<(), EngineError> {
        let volume = conductor.volume(name)?;
        self.stop_all(conductor, grace, |seat| seat.volume == volume);
        Ok(())
    }

    /// Asks all front ends with a session in the pool at `path` to finish within `grace`.
    pub(super) fn stop_pool(&mut self, conductor: &mut Conductor, path: &str, grace: Span) -> Result<(), EngineError> {
        let pool = Some(conductor.pool(path)?);
        let members = conductor.ground.tree.iter().filter(|account| account.parent == pool);
        let members: Vec<_> = members.map(|account| account.id).collect();
        self.stop_all(conductor, grace, |seat| members.contains(&seat.session));
        Ok(())
    }

    pub(super) fn stop_all(&mut self, conductor: &mut Conductor, grace: Span, is_meant: impl Fn(&Seat) -> bool) {
        let meant = self.front_ends.iter().filter(|(_, attached)| is_meant(&attached.seat));
        let meant: Vec<u32> = meant.map(|(index, _)| index).collect();
        meant.into_iter().for_each(|index| self.stop_front_end(conductor, index, grace));
    }

    /// Calls a front end, if it is still there, and remembers that it heard something.
    pub(super) fn with(
        &mut self,
        conductor: &mut Conductor,
        index: u32,
        call: impl FnOnce(&mut dyn FrontEnd, &mut Port<'_>),
    ) {
        let Some(Attached { seat, front_end, .. }) = self.front_ends.get_mut(index) else {
            return;
        };
        if !std::mem::replace(&mut seat.is_touched, true) {
            self.touched.push(index);
        }
        call(&mut **front_end, &mut Port { conductor, seat });
    }

    /// Hands out the requests that are done; says how many there were.
    pub(super) fn hand_out(&mut self, conductor: &mut Conductor) -> usize {
        let mut finished = std::mem::take(&mut conductor.ground.answers);
        let count = finished.len();
        for (index, finished) in finished.drain(..) {
            self.with(conductor, index, |front_end, port| {
                port.seat.requests -= 1;
                front_end.request_completed(port, finished);
            });
        }
        // Requests that were refused meanwhile have come into a new list.
        finished.append(&mut conductor.ground.answers);
        conductor.ground.answers = finished;
        count
    }

    /// Tells all front ends that heard something that the turn is over; says whether new work came of it.
    pub(super) fn end_turn(&mut self, conductor: &mut Conductor) -> bool {
        let pieces_before = conductor.table.pieces_so_far;
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            let Some(Attached { seat, front_end, .. }) = self.front_ends.get_mut(index) else { continue };
            seat.is_touched = false;
            front_end.turn_ended(&mut Port { conductor, seat });
            if front_end.is_finished() {
                self.leaving.push(index);
            }
        }
        self.touched = touched;
        conductor.table.pieces_so_far != pieces_before || !conductor.ground.answers.is_empty()
    }

    /// Looks whether front ends' other ends are still there, once in a while, and cuts off those without one.
    pub(super) fn look(&mut self, conductor: &mut Conductor) {
        if conductor.ground.now < self.next_look {
            return;
        }
        self.next_look = conductor.ground.now + LOOK_EVERY;
        for index in 0..self.front_ends.places() as u32 {
            let attached = self.front_ends.get_mut(index);
            if attached.is_some_and(|Attached { front_end, .. }| !front_end.is_finished() && front_end.has_vanished()) {
                self.with(conductor, index, |front_end, port| front_end.cut(port));
            }
        }
    }

    /// Lets front ends try again that found no memory for a buffer.
    pub(super) fn try_for_memory_again(&mut self, conductor: &mut Conductor) {
        if !conductor.memory.is_time(conductor.ground.now) {
            return;
        }
        // What others have and do not use.
        let mut left = TRIMMED_MAX;
        for index in 0..self.front_ends.places() as u32 {
            let Some(Attached { seat, .. }) = self.front_ends.get_mut(index).filter(|_| left > 0) else { continue };
            left -= seat.arena.trim(left);
        }
        for index in conductor.memory.take_waiting() {
            self.with(conductor, index, |_, port| port.seat.waits_for_memory = false);
        }
    }

    /// Cuts off the front ends with a grace period that is over. Says whether there was any.
    pub(super) fn cut_overdue(&mut self, conductor: &mut Conductor) -> bool {
        let now = conductor.ground.now;
        if self.next_cut.is_none_or(|cut_at| now < cut_at) {
            return false;
        }
        let overdue = self.front_ends.iter().filter(|(_, attached)| attached.cut_at.is_some_and(|at| at <= now));
        let overdue: Vec<u32> = overdue.map(|(index, _)| index).collect();
        for index in overdue {
            self.front_ends[index].cut_at = None;
            self.with(conductor, index, |front_end, port| {
                front_end.cut(port);
                port.abandon_requests();
            });
        }
        self.next_cut = self.front_ends.iter().filter_map(|(_, attached)| attached.cut_at).min();
        true
    }
}
