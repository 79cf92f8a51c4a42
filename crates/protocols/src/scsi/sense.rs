//! The end of a SCSI command: its status, and the sense data with the reason of a failure.

/// Bytes of fixed-format sense data (SPC-5, 4.5.3).
const FIXED_BYTES: usize = 18;
/// Bytes of an information descriptor (SPC-5, 4.5.2.2).
const INFORMATION_BYTES: u8 = 12;

/// The status byte (SAM-5, 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0x00,
    /// Not done; sense data say why.
    CheckCondition = 0x02,
    /// Done, for commands that look for something.
    ConditionMet = 0x04,
    /// Cannot be done now: another command holds the blocks. Try again.
    Busy = 0x08,
    /// Another initiator has reserved the unit.
    ReservationConflict = 0x18,
    /// More commands than there is room for. Try again.
    TaskSetFull = 0x28,
}

/// Sense keys (SPC-5, table 48).
pub mod key {
    /// Nothing to say.
    pub const NO_SENSE: u8 = 0x0;
    /// The unit cannot be used.
    pub const NOT_READY: u8 = 0x2;
    /// The medium failed.
    pub const MEDIUM_ERROR: u8 = 0x3;
    /// The command asks for what there is not.
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    /// Something happened to the unit that the initiator should know of.
    pub const UNIT_ATTENTION: u8 = 0x6;
    /// Writes are not allowed.
    pub const DATA_PROTECT: u8 = 0x7;
    /// The transport gave up.
    pub const ABORTED_COMMAND: u8 = 0xb;
    /// What was compared differs.
    pub const MISCOMPARE: u8 = 0xe;
}

/// Why a command did not do what it was asked to (SPC-5, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// One of [`key`].
    pub key: u8,
    /// Additional sense code and its qualifier, as one number: 0x2400 is 24h/00h.
    pub code: u16,
    /// A number that belongs to the code, such as the first byte that differs.
    pub information: Option<u64>,
}

impl Sense {
    /// Nothing to say.
    pub const NONE: Sense = Sense::new(key::NO_SENSE, 0);
    /// There is no such command.
    pub const INVALID_OPCODE: Sense = Sense::illegal(0x2000);
    /// The blocks lie beyond the end.
    pub const LBA_OUT_OF_RANGE: Sense = Sense::illegal(0x2100);
    /// A field of the command has a value that is not known.
    pub const INVALID_FIELD: Sense = Sense::illegal(0x2400);
    /// There is no such logical unit.
    pub const NO_SUCH_UNIT: Sense = Sense::illegal(0x2500);
    /// A field of the parameters has a value that is not known.
    pub const INVALID_PARAMETER: Sense = Sense::illegal(0x2600);
    /// There is no reservation of that kind to release.
    pub const INVALID_RELEASE: Sense = Sense::illegal(0x2604);
    /// The parameters have the wrong length.
    pub const PARAMETER_LIST_LENGTH: Sense = Sense::illegal(0x1a00);
    /// The initiator sends less than the command takes.
    pub const INVALID_INFORMATION_UNIT: Sense = Sense::illegal(0x0e03);
    /// No more initiators can register.
    pub const NO_REGISTRATION_LEFT: Sense = Sense::illegal(0x5504);
    /// Saving parameters is not offered.
    pub const SAVING_NOT_SUPPORTED: Sense = Sense::illegal(0x3900);
    /// The volume is read-only.
    pub const WRITE_PROTECTED: Sense = Sense::new(key::DATA_PROTECT, 0x2700);
    /// The data that came were not those that were announced.
    pub const DATA_PHASE_ERROR: Sense = Sense::new(key::ABORTED_COMMAND, 0x4b00);
    /// The volume could not be read.
    pub const READ_ERROR: Sense = Sense::new(key::MEDIUM_ERROR, 0x1100);
    /// The volume could not be written.
    pub const WRITE_ERROR: Sense = Sense::new(key::MEDIUM_ERROR, 0x0c00);
    /// There is no room left below the volume.
    pub const SPACE_ALLOCATION: Sense = Sense::new(key::DATA_PROTECT, 0x2707);

    /// Sense data without a number.
    pub const fn new(key: u8, code: u16) -> Sense {
        Sense { key, code, information: None }
    }

    const fn illegal(code: u16) -> Sense {
        Sense::new(key::ILLEGAL_REQUEST, code)
    }

    /// Something happened to the unit.
    pub const fn attention(code: u16) -> Sense {
        Sense::new(key::UNIT_ATTENTION, code)
    }

    /// What was compared differs, first at byte `at` of what was sent (SBC-4, 5.2).
    pub const fn miscompare(at: u64) -> Sense {
        Sense { key: key::MISCOMPARE, code: 0x1d00, information: Some(at) }
    }

    /// The bytes that go to the initiator, in descriptor format or in the fixed one (SPC-5, 4.5.2 and 4.5.3).
    pub fn encode(&self, as_descriptors: bool) -> Vec<u8> {
        let [code, qualifier] = self.code.to_be_bytes();
        if as_descriptors {
            let mut bytes = vec![0x72, self.key, code, qualifier, 0, 0, 0, 0];
            if let Some(information) = self.information {
                bytes[7] = INFORMATION_BYTES;
                bytes.extend([0x00, INFORMATION_BYTES - 2, 0x80, 0]);
                bytes.extend(information.to_be_bytes());
            }
            return bytes;
        }
        let mut bytes = vec![0; FIXED_BYTES];
        (bytes[0], bytes[2], bytes[7]) = (0x70, self.key, FIXED_BYTES as u8 - 8);
        (bytes[12], bytes[13]) = (code, qualifier);
        // The fixed format has four bytes for the number; one that does not fit is left out.
        if let Some(information) = self.information.and_then(|information| u32::try_from(information).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes
    }
}

/// What a command that needs no disk answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it ended.
    pub status: Status,
    /// Why, with [`Status::CheckCondition`].
    pub sense: Option<Sense>,
    /// What goes to the initiator.
    pub data: Vec<u8>,
}

impl Answer {
    /// Done, with nothing to hand over.
    pub const GOOD: Answer = Answer::of_status(Status::Good);

    /// A status by itself.
    pub const fn of_status(status: Status) -> Answer {
        Answer { status, sense: None, data: Vec::new() }
    }

    /// Done, with the first `allocation` bytes of `data`.
    pub fn of_data(mut data: Vec<u8>, allocation: usize) -> Answer {
        data.truncate(allocation);
        Answer { data, ..Answer::GOOD }
    }
}

impl From<Sense> for Answer {
    fn from(sense: Sense) -> Answer {
        Answer { sense: Some(sense), ..Answer::of_status(Status::CheckCondition) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_carry_key_code_and_number() {
        let sense = Sense::miscompare(5);
        assert_eq!(sense.encode(false), [0xf0, 0, 0xe, 0, 0, 0, 5, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0]);
        let descriptors = [0x72, 0xe, 0x1d, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(sense.encode(true), descriptors);
        assert_eq!(Sense::LBA_OUT_OF_RANGE.encode(false)[..4], [0x70, 0, 5, 0]);
        let too_large = Sense::miscompare(1 << 32).encode(false);
        assert_eq!((too_large[0], &too_large[3..7]), (0x70, &[0u8; 4][..]));
    }
}
