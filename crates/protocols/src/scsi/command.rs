//! Commands, decoded from their command descriptor blocks (CDBs).
//!
//! A CDB says in its first byte, and sometimes in a service action, what it is. The rest are fields at places that
//! differ from command to command. Decoding turns all of them into one [`ScsiCommand`], and refuses what this target
//! does not do, so that no code behind looks at bytes again. Field positions are those of SPC-5 and SBC-4.

use super::sense::Sense;
use plimsoll_core::Class;

/// Bytes of the longest CDB that is understood; shorter ones are filled up with zeroes.
pub const CDB_BYTES: usize = 16;
/// The five bits of the GROUP NUMBER field: the class of a request (Differentiated Storage Services, section 3).
const GROUP_MASK: u8 = 0x1f;

/// Blocks that a command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// First block.
    pub lba: u64,
    /// How many blocks; may be 0.
    pub blocks: u32,
    /// What the initiator says that they are: its GROUP NUMBER.
    pub class: Class,
    /// What is written, read or verified must be durable before the answer (FUA).
    pub is_forced: bool,
}

/// What a verification compares (BYTCHK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Nothing: the blocks are read.
    Nothing,
    /// Each block with one that is sent.
    Each,
    /// All blocks with the same one.
    One,
}

/// What an initiator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the standards' commands, their fields the standards' fields")]
pub enum ScsiCommand {
    TestUnitReady,
    RequestSense { as_descriptors: bool, allocation: usize },
    Inquiry { page: Option<u8>, allocation: usize },
    ReportLuns { select: u8, allocation: usize },
    ReadCapacity10,
    ReadCapacity16 { allocation: usize },
    ModeSense { is_long: bool, has_descriptors: bool, control: u8, page: u8, subpage: u8, allocation: usize },
    ModeSelect { is_long: bool, saves: bool, length: u32 },
    StartStopUnit { synchronizes: bool },
    PreventAllow { prevents: bool },
    Reserve6,
    Release6,
    PersistentIn { action: u8, allocation: usize },
    PersistentOut { action: u8, scope: u8, kind: u8, length: u32 },
    ReportOpcodes { options: u8, opcode: u8, action: u16, has_timeouts: bool, allocation: usize },
    ReportTaskManagement { is_extended: bool, allocation: usize },
    GetLbaStatus { lba: u64, allocation: usize },
    Read(Transfer),
    Write(Transfer),
    WriteAndVerify(Transfer, Compared),
    Verify(Transfer, Compared),
    CompareAndWrite(Transfer),
    OrWrite(Transfer),
    WriteSame { transfer: Transfer, unmaps: bool, has_data: bool },
    Unmap { class: Class, length: u32 },
    Prefetch(Transfer),
    SynchronizeCache(Transfer),
}

fn be16(cdb: &[u8; CDB_BYTES], at: usize) -> u16 {
    u16::from_be_bytes([cdb[at], cdb[at + 1]])
}

fn be32(cdb: &[u8; CDB_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

fn be64(cdb: &[u8; CDB_BYTES], at: usize) -> u64 {
    u64::from(be32(cdb, at)) << 32 | u64::from(be32(cdb, at + 4))
}

fn class(byte: u8) -> Class {
    Class::new(byte & GROUP_MASK).expect("five bits")
}

/// Fields of a command on blocks, by its length: 6, 10, 12 or 16 bytes.
fn transfer(cdb: &[u8; CDB_BYTES], length: usize) -> Transfer {
    let is_forced = length > 6 && cdb[1] & 0x08 != 0;
    let (lba, blocks, class) = match length {
        6 => {
            let blocks = if cdb[4] == 0 { 256 } else { cdb[4].into() };
            (u64::from(be32(cdb, 0) & 0x1f_ffff), blocks, Class::UNCLASSIFIED)
        }
        10 => (be32(cdb, 2).into(), be16(cdb, 7).into(), class(cdb[6])),
        12 => (be32(cdb, 2).into(), be32(cdb, 6), class(cdb[10])),
        _ => (be64(cdb, 2), be32(cdb, 10), class(cdb[14])),
    };
    Transfer { lba, blocks, class, is_forced }
}

/// As [`transfer`], of a command that can ask for protection information, which this target does not keep.
fn unprotected(cdb: &[u8; CDB_BYTES], length: usize) -> Result<Transfer, Sense> {
    if cdb[1] & 0xe0 != 0 { Err(Sense::INVALID_FIELD) } else { Ok(transfer(cdb, length)) }
}

/// As [`unprotected`], of a command that compares. It has no FUA bit: what is verified, is verified on the medium, so
/// the command always forces unit access (SBC-3, "Caches").
fn compared(cdb: &[u8; CDB_BYTES], length: usize) -> Result<(Transfer, Compared), Sense> {
    let transfer = Transfer { is_forced: true, ..unprotected(cdb, length)? };
    match cdb[1] >> 1 & 3 {
        0 => Ok((transfer, Compared::Nothing)),
        1 => Ok((transfer, Compared::Each)),
        3 => Ok((transfer, Compared::One)),
        _ => Err(Sense::INVALID_FIELD),
    }
}

/// As [`compared`], of a command that writes the bytes it compares.
fn written_and_compared(cdb: &[u8; CDB_BYTES], length: usize) -> Result<ScsiCommand, Sense> {
    match compared(cdb, length)? {
        (_, Compared::One) => Err(Sense::INVALID_FIELD),
        (transfer, compared) => Ok(ScsiCommand::WriteAndVerify(transfer, compared)),
    }
}

fn write_same(cdb: &[u8; CDB_BYTES], length: usize) -> Result<ScsiCommand, Sense> {
    let transfer = Transfer { is_forced: false, ..unprotected(cdb, length)? };
    let (is_anchored, unmaps, has_data) = (cdb[1] & 0x10 != 0, cdb[1] & 0x08 != 0, length == 10 || cdb[1] & 1 == 0);
    match is_anchored {
        true => Err(Sense::INVALID_FIELD),
        false => Ok(ScsiCommand::WriteSame { transfer, unmaps, has_data }),
    }
}

fn mode_sense(cdb: &[u8; CDB_BYTES], is_long: bool) -> ScsiCommand {
    let allocation = if is_long { be16(cdb, 7).into() } else { cdb[4].into() };
    let (control, page) = (cdb[2] >> 6, cdb[2] & 0x3f);
    ScsiCommand::ModeSense { is_long, has_descriptors: cdb[1] & 0x08 == 0, control, page, subpage: cdb[3], allocation }
}

fn mode_select(cdb: &[u8; CDB_BYTES], is_long: bool) -> ScsiCommand {
    let length = if is_long { be16(cdb, 7).into() } else { cdb[4].into() };
    ScsiCommand::ModeSelect { is_long, saves: cdb[1] & 1 != 0, length }
}

fn service_action_in(cdb: &[u8; CDB_BYTES]) -> Result<ScsiCommand, Sense> {
    let allocation = be32(cdb, 10) as usize;
    match cdb[1] & 0x1f {
        0x10 => Ok(ScsiCommand::ReadCapacity16 { allocation }),
        0x12 => Ok(ScsiCommand::GetLbaStatus { lba: be64(cdb, 2), allocation }),
        _ => Err(Sense::INVALID_OPCODE),
    }
}

fn maintenance_in(cdb: &[u8; CDB_BYTES]) -> Result<ScsiCommand, Sense> {
    let allocation = be32(cdb, 6) as usize;
    match cdb[1] & 0x1f {
        0x0c => {
            let (options, opcode, action) = (cdb[2] & 7, cdb[3], be16(cdb, 4));
            Ok(ScsiCommand::ReportOpcodes { options, opcode, action, has_timeouts: cdb[2] & 0x80 != 0, allocation })
        }
        0x0d => Ok(ScsiCommand::ReportTaskManagement { is_extended: cdb[2] & 0x80 != 0, allocation }),
        _ => Err(Sense::INVALID_OPCODE),
    }
}

fn inquiry(cdb: &[u8; CDB_BYTES]) -> Result<ScsiCommand, Sense> {
    let page = (cdb[1] & 1 != 0).then_some(cdb[2]);
    // A page without the bit that asks for one, or the obsolete CMDDT bit.
    if cdb[1] & 2 != 0 || (page.is_none() && cdb[2] != 0) {
        return Err(Sense::INVALID_FIELD);
    }
    Ok(ScsiCommand::Inquiry { page, allocation: be16(cdb, 3).into() })
}

/// Whether START STOP UNIT leaves a state in which the medium can be written to, so that what is cached has to be
/// written first. NO_FLUSH says that it need not, and so does a unit that stays active (SBC-3, START STOP UNIT).
fn synchronizes(cdb: &[u8; CDB_BYTES]) -> bool {
    const START_VALID: u8 = 0;
    const ACTIVE: u8 = 1;
    let (power_condition, is_without_flush, starts) = (cdb[4] >> 4, cdb[4] & 0x04 != 0, cdb[4] & 1 != 0);
    let runs_on = power_condition == ACTIVE || (power_condition == START_VALID && starts);
    !runs_on && !is_without_flush
}

fn compare_and_write(cdb: &[u8; CDB_BYTES]) -> Result<ScsiCommand, Sense> {
    Ok(ScsiCommand::CompareAndWrite(Transfer { blocks: cdb[13].into(), ..unprotected(cdb, 16)? }))
}

impl ScsiCommand {
    /// Decodes a CDB.
    ///
    /// # Errors
    /// The sense data to answer with: there is no such command here, or a field asks for something that is not offered.
    pub fn decode(cdb: &[u8; CDB_BYTES]) -> Result<ScsiCommand, Sense> {
        let command = match cdb[0] {
            0x00 => ScsiCommand::TestUnitReady,
            0x03 => ScsiCommand::RequestSense { as_descriptors: cdb[1] & 1 != 0, allocation: cdb[4].into() },
            0x08 => ScsiCommand::Read(transfer(cdb, 6)),
            0x0a => ScsiCommand::Write(transfer(cdb, 6)),
            0x12 => inquiry(cdb)?,
            0x15 => mode_select(cdb, false),
            0x16 => ScsiCommand::Reserve6,
            0x17 => ScsiCommand::Release6,
            0x1a => mode_sense(cdb, false),
            0x1b => ScsiCommand::StartStopUnit { synchronizes: synchronizes(cdb) },
            0x1e => ScsiCommand::PreventAllow { prevents: cdb[4] & 1 != 0 },
            0x25 => ScsiCommand::ReadCapacity10,
            0x28 => ScsiCommand::Read(unprotected(cdb, 10)?),
            0x2a => ScsiCommand::Write(unprotected(cdb, 10)?),
            0x2e => written_and_compared(cdb, 10)?,
            0x2f => compared(cdb, 10).map(|(transfer, compared)| ScsiCommand::Verify(transfer, compared))?,
            0x34 => ScsiCommand::Prefetch(transfer(cdb, 10)),
            0x35 => ScsiCommand::SynchronizeCache(transfer(cdb, 10)),
            0x41 => write_same(cdb, 10)?,
            0x42 if cdb[1] & 1 != 0 => return Err(Sense::INVALID_FIELD),
            0x42 => ScsiCommand::Unmap { class: class(cdb[6]), length: be16(cdb, 7).into() },
            0x55 => mode_select(cdb, true),
            0x5a => mode_sense(cdb, true),
            0x5e => ScsiCommand::PersistentIn { action: cdb[1] & 0x1f, allocation: be16(cdb, 7).into() },
            0x5f => ScsiCommand::PersistentOut {
                action: cdb[1] & 0x1f,
                scope: cdb[2] >> 4,
                kind: cdb[2] & 0xf,
                length: be32(cdb, 5),
            },
            0x88 => ScsiCommand::Read(unprotected(cdb, 16)?),
            0x89 => compare_and_write(cdb)?,
            0x8a => ScsiCommand::Write(unprotected(cdb, 16)?),
            0x8b => ScsiCommand::OrWrite(unprotected(cdb, 16)?),
            0x8e => written_and_compared(cdb, 16)?,
            0x8f => compared(cdb, 16).map(|(transfer, compared)| ScsiCommand::Verify(transfer, compared))?,
            0x90 => ScsiCommand::Prefetch(transfer(cdb, 16)),
            0x91 => ScsiCommand::SynchronizeCache(transfer(cdb, 16)),
            0x93 => write_same(cdb, 16)?,
            0x9e => service_action_in(cdb)?,
            0xa0 => ScsiCommand::ReportLuns { select: cdb[2], allocation: be32(cdb, 6) as usize },
            0xa3 => maintenance_in(cdb)?,
            0xa8 => ScsiCommand::Read(unprotected(cdb, 12)?),
            0xaa => ScsiCommand::Write(unprotected(cdb, 12)?),
            0xae => written_and_compared(cdb, 12)?,
            0xaf => compared(cdb, 12).map(|(transfer, compared)| ScsiCommand::Verify(transfer, compared))?,
            _ => return Err(Sense::INVALID_OPCODE),
        };
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command with a GROUP NUMBER, as the tables of SBC-3 and SBC-4 print it. The entry has the bytes before it,
    /// from the code on, and all bytes. They ask for block 0102h and the blocks behind it, 3 in all.
    const GROUPED: &[(&str, &[u8], usize)] = &[
        ("READ(10)", &[0x28, 0, 0, 0, 1, 2], 10),
        ("READ(12)", &[0xa8, 0, 0, 0, 1, 2, 0, 0, 0, 3], 12),
        ("READ(16)", &[0x88, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("WRITE(10)", &[0x2a, 0, 0, 0, 1, 2], 10),
        ("WRITE(12)", &[0xaa, 0, 0, 0, 1, 2, 0, 0, 0, 3], 12),
        ("WRITE(16)", &[0x8a, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("WRITE AND VERIFY(10)", &[0x2e, 0, 0, 0, 1, 2], 10),
        ("WRITE AND VERIFY(12)", &[0xae, 0, 0, 0, 1, 2, 0, 0, 0, 3], 12),
        ("WRITE AND VERIFY(16)", &[0x8e, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("VERIFY(10)", &[0x2f, 0, 0, 0, 1, 2], 10),
        ("VERIFY(12)", &[0xaf, 0, 0, 0, 1, 2, 0, 0, 0, 3], 12),
        ("VERIFY(16)", &[0x8f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("PRE-FETCH(10)", &[0x34, 0, 0, 0, 1, 2], 10),
        ("PRE-FETCH(16)", &[0x90, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("SYNCHRONIZE CACHE(10)", &[0x35, 0, 0, 0, 1, 2], 10),
        ("SYNCHRONIZE CACHE(16)", &[0x91, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("WRITE SAME(10)", &[0x41, 0, 0, 0, 1, 2], 10),
        ("WRITE SAME(16)", &[0x93, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("COMPARE AND WRITE", &[0x89, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("ORWRITE(16)", &[0x8b, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3], 16),
        ("UNMAP", &[0x42, 0, 0, 0, 0, 0], 10),
    ];
    /// The length of those of 10 bytes stands behind the group, and the control byte behind all.
    const BEHIND: &[u8] = &[0, 3];

    /// What a command says of the group, and of blocks if it names any.
    fn said(command: &ScsiCommand) -> (Class, Option<(u64, u32)>) {
        match *command {
            ScsiCommand::Read(transfer)
            | ScsiCommand::Write(transfer)
            | ScsiCommand::WriteAndVerify(transfer, _)
            | ScsiCommand::Verify(transfer, _)
            | ScsiCommand::CompareAndWrite(transfer)
            | ScsiCommand::OrWrite(transfer)
            | ScsiCommand::WriteSame { transfer, .. }
            | ScsiCommand::Prefetch(transfer)
            | ScsiCommand::SynchronizeCache(transfer) => (transfer.class, Some((transfer.lba, transfer.blocks))),
            ScsiCommand::Unmap { class, length } => {
                assert_eq!(length, 3);
                (class, None)
            }
            ref other => panic!("{other:?} has no group"),
        }
    }

    /// Planted breaks that were seen red: the group of a command of 12 bytes is read from byte 6; UNMAP has none.
    /// Promise: iscsi-group-number.
    #[test]
    fn the_group_stands_where_the_standard_has_it_and_nothing_else_is_the_class() {
        for &(name, before, length) in GROUPED {
            let mut cdb = [0; CDB_BYTES];
            cdb[..before.len()].copy_from_slice(before);
            if length == 10 {
                cdb[before.len() + 1..][..BEHIND.len()].copy_from_slice(BEHIND);
            }
            let blocks = (before[0] != 0x42).then_some((0x0102, 3));
            for byte in 0..=u8::MAX {
                // The upper three bits are others' or reserved.
                cdb[before.len()] = byte;
                let group = Class::new(byte & 0x1f).unwrap();
                assert_eq!(said(&ScsiCommand::decode(&cdb).unwrap()), (group, blocks), "{name} {byte:#04x}");
            }
        }
    }

    /// Planted breaks that were seen red: a stop without NO_FLUSH flushes nothing; a verification is not forced.
    /// Promise: iscsi-medium.
    #[test]
    fn what_stops_the_medium_or_verifies_it_makes_all_durable_first() {
        let decoded = |code: u8, first: u8, fourth: u8| {
            ScsiCommand::decode(&[code, first, 0, 0, fourth, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap()
        };
        // A stop, an eject, the conditions idle and standby, and those of a timer; the same without a flush.
        for fourth in [0x00, 0x02, 0x20, 0x21, 0x30, 0xa0, 0xb0] {
            assert_eq!(decoded(0x1b, 0, fourth), ScsiCommand::StartStopUnit { synchronizes: true }, "{fourth:#04x}");
            let without = decoded(0x1b, 0, fourth | 0x04);
            assert_eq!(without, ScsiCommand::StartStopUnit { synchronizes: false }, "{fourth:#04x}");
        }
        for fourth in [0x01, 0x03, 0x10, 0x11] {
            assert_eq!(decoded(0x1b, 0, fourth), ScsiCommand::StartStopUnit { synchronizes: false }, "{fourth:#04x}");
        }
        for code in [0x2e, 0x2f, 0x8e, 0x8f, 0xae, 0xaf] {
            let is_forced = match decoded(code, 2, 0) {
                ScsiCommand::Verify(transfer, _) | ScsiCommand::WriteAndVerify(transfer, _) => transfer.is_forced,
                other => panic!("{other:?}"),
            };
            assert!(is_forced, "{code:#04x}");
        }
    }

    /// The shortest reads and writes have no room for a group.
    /// Promise: iscsi-group-number.
    #[test]
    fn a_command_of_six_bytes_is_unclassified() {
        for code in [0x08, 0x0a] {
            let mut cdb = [0xff; CDB_BYTES];
            cdb[..6].copy_from_slice(&[code, 0, 1, 2, 3, 0]);
            assert_eq!(said(&ScsiCommand::decode(&cdb).unwrap()), (Class::UNCLASSIFIED, Some((0x0102, 3))));
        }
    }
}
