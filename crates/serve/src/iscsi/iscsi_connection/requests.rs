//! Requests that are not SCSI's: ping, text, logout.

use super::super::target::describe;
use super::IscsiConnection;
use plimsoll_engine::Port;
use plimsoll_protocols::iscsi::pdu::{Header, NO_TAG, opcode};
use plimsoll_protocols::iscsi::text;

impl IscsiConnection {
    /// A ping, answered with its data; or the answer to a ping, which this target never sends.
    pub(super) fn ping(&mut self, request: &Header, data: &[u8]) {
        if request.initiator_tag() == NO_TAG {
            return;
        }
        let mut header = Header::new(opcode::NOP_IN, request.initiator_tag());
        header.0[8..16].copy_from_slice(&request.0[8..16]);
        header.set_u32(20, NO_TAG);
        let length = data.len().min(self.session.parameters.initiator_data_bytes_max as usize);
        self.answer(header, &data[..length]);
    }

    /// Discovery within a session: the target that it is of.
    pub(super) fn text(&mut self, request: &Header, data: &[u8]) {
        const PROTOCOL_ERROR: u8 = 0x04;
        let Ok(pairs) = text::decode(data) else { return self.reject(request, PROTOCOL_ERROR) };
        let mut reply = Vec::new();
        for (key, value) in pairs {
            match key {
                "SendTargets" if value.is_empty() || value == self.target.name() => {
                    describe(&mut reply, self.target.name(), self.portal.as_deref());
                }
                "SendTargets" => text::push(&mut reply, key, "Reject"),
                _ => text::push(&mut reply, key, "NotUnderstood"),
            }
        }
        reply.truncate(self.session.parameters.initiator_data_bytes_max as usize);
        let mut header = Header::new(opcode::TEXT_RESPONSE, request.initiator_tag());
        header.set_u32(20, NO_TAG);
        self.answer(header, &reply);
    }

    /// The initiator wants to end its session. The answer follows when its commands have ended.
    pub(super) fn logout(&mut self, port: &mut Port<'_>, request: &Header) {
        const FOR_RECOVERY: u8 = 2;
        const RECOVERY_NOT_SUPPORTED: u8 = 2;
        let mut header = Header::new(opcode::LOGOUT_RESPONSE, request.initiator_tag());
        if request.flags() & 0x7f == FOR_RECOVERY {
            header.0[2] = RECOVERY_NOT_SUPPORTED;
            return self.answer(header, &[]);
        }
        self.logout = Some(header);
        self.close(port);
    }

    /// Answers a logout, if all commands have been.
    pub(super) fn answer_logout(&mut self) {
        if self.tasks.is_empty()
            && let Some(header) = self.logout.take()
        {
            self.answer(header, &[]);
        }
    }
}
