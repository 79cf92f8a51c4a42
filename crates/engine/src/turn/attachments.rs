//! Life of front ends: they get a session, are asked to stop, are cut off and are dropped.

use super::{Attached, Engine};
use crate::buffer::Arena;
use crate::config::{AttachmentId, SessionConfig};
use crate::error::EngineError;
use crate::front_end::FrontEnd;
use crate::seat::{Seat, VolumeSeat};
use plimsoll_core::Span;
use std::sync::mpsc::Sender;

/// The scheduler that lets everything go at once, for the end.
const SCHEDULER_OF_THE_END: &str = "noop";

impl Engine {
    /// Drops the front ends without wishes and work under way, and closes their sessions.
    pub(super) fn dismiss_finished(&mut self) {
        while let Some(index) = self.leaving.pop() {
            let is_through = self.front_ends.get(index).is_some_and(|Attached { seat, front_end, .. }| {
                let is_through = front_end.is_finished() && seat.operations == 0 && seat.requests == 0;
                is_through && self.conductor.reader_is_through(seat)
            });
            if !is_through {
                continue;
            }
            if self.front_ends.get(index).is_some_and(|attached| self.conductor.owes_early(&attached.seat)) {
                self.conductor.ahead.through.push(index);
                continue;
            }
            let Some(Attached { seat, front_end, .. }) = self.front_ends.remove(index) else { continue };
            drop(front_end);
            self.conductor.ahead.close_reader(seat.volume, seat.reader);
            self.conductor.volumes[seat.volume].front_ends -= 1;
            if let Err(error) = self.conductor.close_account(seat.session) {
                tracing::error!(%error, "a session could not be closed");
            }
        }
    }

    /// Attaches a front end, with a session in `pool` or in the volume's own, and starts it.
    pub(crate) fn attach(
        &mut self,
        volume: &str,
        pool: Option<String>,
        session: SessionConfig,
        front_end: Box<dyn FrontEnd>,
    ) -> Result<AttachmentId, EngineError> {
        if self.is_ending {
            return Err(EngineError::Stopped);
        }
        let volume = self.conductor.volume(volume)?;
        let memory = (!front_end.has_own_memory()).then(|| self.conductor.volumes[volume].buffers.clone());
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
        let pool = pool.unwrap_or_else(|| self.conductor.volumes[volume].volume.config().pool.clone());
        let account = self.conductor.open_session(&pool, &session)?;
        let VolumeSeat { volume: of_seat, front_ends, .. } = &mut self.conductor.volumes[volume];
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
        self.front_ends[index].seat.reader = self.conductor.open_reader(volume, index, account);
        self.with(index, |front_end, port| front_end.started(port));
        Ok(AttachmentId(index))
    }

    /// Asks a front end to finish within `grace`.
    pub(crate) fn stop_front_end(&mut self, index: u32, grace: Span) {
        let cut_at = self.conductor.ground.now + grace;
        let Some(attached) = self.front_ends.get_mut(index) else { return };
        let is_sooner = attached.cut_at.is_none_or(|before| cut_at < before);
        if is_sooner {
            attached.cut_at = Some(cut_at);
            self.next_cut = Some(self.next_cut.map_or(cut_at, |before| before.min(cut_at)));
        }
        self.with(index, |front_end, port| front_end.stop(port));
    }

    /// Asks all front ends that are attached to a volume to finish within `grace`.
    pub(crate) fn stop_volume(&mut self, name: &str, grace: Span) -> Result<(), EngineError> {
        let volume = self.conductor.volume(name)?;
        self.stop_all(grace, |seat| seat.volume == volume);
        Ok(())
    }

    /// Asks all front ends with a session in the pool at `path` to finish within `grace`.
    pub(crate) fn stop_pool(&mut self, path: &str, grace: Span) -> Result<(), EngineError> {
        let pool = Some(self.conductor.pool(path)?);
        let members = self.conductor.ground.tree.iter().filter(|account| account.parent == pool);
        let members: Vec<_> = members.map(|account| account.id).collect();
        self.stop_all(grace, |seat| members.contains(&seat.session));
        Ok(())
    }

    fn stop_all(&mut self, grace: Span, is_meant: impl Fn(&Seat) -> bool) {
        let meant = self.front_ends.iter().filter(|(_, attached)| is_meant(&attached.seat));
        let meant: Vec<u32> = meant.map(|(index, _)| index).collect();
        meant.into_iter().for_each(|index| self.stop_front_end(index, grace));
    }

    /// Ends the engine, within `grace` if nothing hangs, and answers when it is over.
    pub(crate) fn shut_down(&mut self, grace: Span, answer: Option<Sender<Result<(), EngineError>>>) {
        self.ended.extend(answer);
        self.is_ending = true;
        self.stop_all(grace, |_| true);
    }

    /// Cuts off the front ends after their grace period.
    pub(super) fn cut_overdue(&mut self) {
        let now = self.conductor.ground.now;
        if self.next_cut.is_none_or(|cut_at| now < cut_at) {
            return;
        }
        let overdue = self.front_ends.iter().filter(|(_, attached)| attached.cut_at.is_some_and(|at| at <= now));
        let overdue: Vec<u32> = overdue.map(|(index, _)| index).collect();
        for index in overdue {
            self.front_ends[index].cut_at = None;
            self.with(index, |front_end, port| {
                front_end.cut(port);
                port.abandon_requests();
            });
        }
        self.next_cut = self.front_ends.iter().filter_map(|(_, attached)| attached.cut_at).min();
        if self.is_ending
            && let Err(error) = self.conductor.switch_scheduler(SCHEDULER_OF_THE_END)
        {
            tracing::error!(%error, "the scheduler cannot be replaced for the end: the daemon ends later, after the \
                                     requests that a limit holds back");
        }
    }
}
