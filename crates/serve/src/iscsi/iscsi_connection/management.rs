//! Task management: aborting tasks, resetting the unit (RFC 7143, 11.5; SAM-5, 7).
//!
//! The answer says that the tasks in question do nothing any more, of whichever session they are. So what of them no
//! backend has is dropped, and the answer waits for the writes that one has. Tasks of other sessions are told by the
//! unit when they come to their next step.

use super::IscsiConnection;
use super::tasks::{PLACES, Stage};
use plimsoll_engine::Port;
use plimsoll_protocols::iscsi::pdu::{Header, opcode};
use plimsoll_protocols::scsi::PortName;

/// Requests of task management that may wait.
const WAITING_MAX: usize = 16;

/// Requests that wait until the requests that they aborted change the volume no more, by the engine's name for them.
#[derive(Default)]
pub(super) struct Waiting {
    places: [Option<Header>; WAITING_MAX],
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
        let Some(free) = self.waiting.places.iter().position(Option::is_none) else {
            return self.manage_response(request, response::REJECTED);
        };
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
        self.abort(port, aborted);
        let is_of_all = !matches!(function, function::ABORT_TASK | function::ABORT_TASK_SET);
        // Resets cost their sender nothing, and looking for what is abandoned takes time of all sessions.
        if is_of_all && self.target.unit().has_new_changes() {
            port.abandon_requests_of(&self.target.front_ends(|nexus, _| nexus != self.nexus));
        }
        self.waiting.places[free] = Some(*request);
        port.wait_for_abandoned((PLACES + free) as u64);
    }

    /// The command at `place` has aborted requests of ports. It is over when these change the volume no more.
    pub(super) fn abort_of(&mut self, port: &mut Port<'_>, place: usize, of_ports: &[PortName]) {
        let Some(task) = self.tasks.get_mut(place) else { return };
        (task.stage, task.is_at_volume) = (Stage::Aborted, true);
        port.abandon_requests_of(&self.target.front_ends(|_, port| of_ports.contains(port)));
        port.wait_for_abandoned(place as u64);
    }

    /// Nothing of what was aborted comes to the volume any more.
    pub(super) fn aborted_have_ended(&mut self, token: usize) {
        if let Some(request) = self.waiting.places[token - PLACES].take() {
            self.manage_response(&request, response::DONE);
        }
    }

    fn manage_response(&mut self, request: &Header, response: u8) {
        let mut header = Header::new(opcode::TASK_MANAGEMENT_RESPONSE, request.initiator_tag());
        header.0[2] = response;
        self.answer(header, &[]);
    }

    /// Aborts tasks, all together, and none twice: a search for abandoned requests takes time from all sessions.
    fn abort(&mut self, port: &mut Port<'_>, places: Vec<usize>) {
        let mut at_volume = Vec::new();
        for place in places {
            let Some(task) = self.tasks.get_mut(place).filter(|task| !task.is_aborted) else { continue };
            task.is_aborted = true;
            match task.is_at_volume {
                true => at_volume.push(place as u64),
                false => self.forget(port, place),
            }
        }
        port.abandon_called(&at_volume);
    }

    /// Aborts everything: no initiator waits for answers any more.
    pub(super) fn abort_all(&mut self, port: &mut Port<'_>) {
        self.waiting = Waiting::default();
        let places: Vec<usize> = self.tasks.iter().map(|(place, _)| place).collect();
        self.abort(port, places);
    }

    /// Aborts what waits for data that will not come any more.
    pub(super) fn abort_unfed(&mut self, port: &mut Port<'_>) {
        let unfed = self.tasks.iter().filter(|(_, task)| task.stage.is_unfed());
        let unfed: Vec<usize> = unfed.map(|(place, _)| place).collect();
        self.abort(port, unfed);
    }
}
