//! Task management: aborting tasks, resetting the unit (RFC 7143, 11.5; SAM-5, 7).
//!
//! The answer says that the tasks in question do nothing any more. So it waits for those of this session that the volume
//! is at work on. Tasks of other sessions are told by the unit when they come to their next step, and are not waited for.

use super::super::pdu::{Header, opcode};
use super::IscsiConnection;
use super::tasks::Stage;
use crate::engine::Port;

/// Requests of task management that may wait.
const WAITING_MAX: usize = 16;

/// A request that waits for tasks to end.
pub(super) struct Waiting {
    request: Header,
    /// Places of tasks that are still at the volume.
    places: Vec<usize>,
}

/// What is asked for.
mod function {
    pub(super) const ABORT_TASK: u8 = 1;
    pub(super) const ABORT_TASK_SET: u8 = 2;
    pub(super) const CLEAR_TASK_SET: u8 = 4;
    pub(super) const LOGICAL_UNIT_RESET: u8 = 5;
    pub(super) const TARGET_WARM_RESET: u8 = 6;
    pub(super) const TARGET_COLD_RESET: u8 = 7;
    pub(super) const TASK_REASSIGN: u8 = 8;
}

/// What is answered.
mod response {
    pub(super) const DONE: u8 = 0;
    pub(super) const NO_SUCH_TASK: u8 = 1;
    pub(super) const NO_SUCH_UNIT: u8 = 2;
    pub(super) const NO_REASSIGNMENT: u8 = 4;
    pub(super) const NOT_SUPPORTED: u8 = 5;
    pub(super) const REJECTED: u8 = 255;
}

impl IscsiConnection {
    /// A request of task management has come.
    pub(super) fn manage(&mut self, port: &mut Port<'_>, request: &Header) {
        let function = request.flags() & 0x7f;
        let is_of_target = matches!(function, function::TARGET_WARM_RESET | function::TARGET_COLD_RESET);
        if request.unit() != 0 && !is_of_target {
            return self.manage_response(request, response::NO_SUCH_UNIT);
        }
        if self.waiting.len() == WAITING_MAX {
            return self.manage_response(request, response::REJECTED);
        }
        let aborted = match function {
            function::ABORT_TASK => match self.tasks.find(request.u32(20)) {
                Some(place) => vec![place],
                None => return self.manage_response(request, response::NO_SUCH_TASK),
            },
            function::ABORT_TASK_SET
            | function::CLEAR_TASK_SET
            | function::LOGICAL_UNIT_RESET
            | function::TARGET_WARM_RESET
            | function::TARGET_COLD_RESET => self.tasks.iter().map(|(place, _)| place).collect(),
            function::TASK_REASSIGN => return self.manage_response(request, response::NO_REASSIGNMENT),
            _ => return self.manage_response(request, response::NOT_SUPPORTED),
        };
        match function {
            function::CLEAR_TASK_SET => self.target.unit().abort_others(self.nexus),
            function::ABORT_TASK | function::ABORT_TASK_SET => {}
            _ => self.target.unit().reset(),
        }
        let places = aborted.into_iter().filter(|&place| self.abort(port, place)).collect::<Vec<_>>();
        match places.is_empty() {
            true => self.manage_response(request, response::DONE),
            false => self.waiting.push(Waiting { request: *request, places }),
        }
    }

    fn manage_response(&mut self, request: &Header, response: u8) {
        let mut header = Header::new(opcode::TASK_MANAGEMENT_RESPONSE, request.initiator_tag());
        header.0[2] = response;
        self.answer(header, &[]);
    }

    /// Aborts a task; says whether the volume is still at work on it.
    fn abort(&mut self, port: &mut Port<'_>, place: usize) -> bool {
        let Some(task) = self.tasks.get_mut(place) else { return false };
        task.is_aborted = true;
        let is_at_volume = task.is_at_volume;
        if !is_at_volume {
            self.forget(port, place);
        }
        is_at_volume
    }

    /// Aborts everything: nobody waits for answers any more.
    pub(super) fn abort_all(&mut self, port: &mut Port<'_>) {
        self.waiting.clear();
        let places: Vec<usize> = self.tasks.iter().map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| _ = self.abort(port, place));
    }

    /// Aborts what waits for data that will not come any more.
    pub(super) fn abort_unfed(&mut self, port: &mut Port<'_>) {
        let unfed = self.tasks.iter().filter(|(_, task)| !matches!(task.stage, Stage::Volume(_)));
        let unfed: Vec<usize> = unfed.map(|(place, _)| place).collect();
        unfed.into_iter().for_each(|place| _ = self.abort(port, place));
    }

    /// The task at `place` is no more: whoever waited only for it is answered.
    pub(super) fn task_ended(&mut self, place: usize) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|waits| {
            waits.places.retain(|&other| other != place);
            if waits.places.is_empty() {
                self.manage_response(&waits.request, response::DONE);
            }
            !waits.places.is_empty()
        });
        self.waiting = waiting;
    }
}
