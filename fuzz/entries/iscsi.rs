//! What the iSCSI and SCSI fuzz targets do with their bytes, and what must hold for any bytes.
//!
//! The fuzz targets call these functions, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/protocols/tests/corpus.rs`). Each says whether the bytes were understood to their end.

use plimsoll_core::Operation;
use plimsoll_protocols::iscsi::chap::{CHALLENGE_BYTES, Challenge};
use plimsoll_protocols::iscsi::login::{Login, LoginStep};
use plimsoll_protocols::iscsi::pdu::{Digests, Frame, HEADER_BYTES, encode, opcode};
use plimsoll_protocols::iscsi::{Chap, Credentials};
use plimsoll_protocols::scsi::extents::Extent;
use plimsoll_protocols::scsi::inquiry::TRANSFER_BYTES_MAX;
use plimsoll_protocols::scsi::{
    Answer, CDB_BYTES, Geometry, Identity, Job, JobProgress, LogicalUnit, NexusId, Outcome, Place, PortName, Status,
    Step,
};

/// Data of one PDU that are received here, bytes.
const DATA_BYTES_MAX: u32 = 4096;
/// The volume of `cdbs`.
const BLOCK_BYTES: u32 = 512;
const BLOCKS: u64 = 64;
/// Bytes of an answer at the most: 256 descriptors of GET LBA STATUS, and all commands with their timeouts.
const ANSWER_BYTES_MAX: usize = 8192;

/// The first byte says which digests are agreed; the rest is what an initiator sends. PDUs come out the same in pieces
/// as at once; logins among them are answered within bounds.
pub fn pdus(bytes: &[u8]) -> bool {
    let (first, mut rest) = bytes.split_first().unwrap_or((&0, &[]));
    let digests = Digests { header: first & 1 != 0, data: first & 2 != 0 };
    let mut login = Login::new(Challenge { identifier: 1, bytes: [2; CHALLENGE_BYTES] });
    loop {
        let frame = match Frame::decode(rest, DATA_BYTES_MAX, digests) {
            Err(_) => return false,
            Ok(None) => return true,
            Ok(Some(frame)) => frame,
        };
        assert!(frame.length >= HEADER_BYTES && frame.length <= Frame::bytes_max(DATA_BYTES_MAX));
        assert_eq!(frame.length, Frame::length(rest, digests));
        assert_eq!(frame.data.len(), frame.header.data_bytes() as usize);
        for cut in [0, HEADER_BYTES - 1, frame.length - 1] {
            assert!(matches!(Frame::decode(&rest[..cut], DATA_BYTES_MAX, digests), Ok(None)), "a part is no whole");
        }
        if frame.header.0[4] == 0 {
            let again = encode(frame.header, frame.data, digests);
            let again = Frame::decode(&again, DATA_BYTES_MAX, digests).unwrap().unwrap();
            assert_eq!((again.header, again.data), (frame.header, frame.data));
        }
        if frame.header.opcode() == opcode::LOGIN && !take_login(&mut login, &frame) {
            return false;
        }
        rest = &rest[frame.length..];
    }
}

/// Gives a login request to a login; whether it goes on, or has ended well.
fn take_login(login: &mut Login, frame: &Frame<'_>) -> bool {
    let lookup = |name: &str| match name {
        "open" => Some(None),
        "kept" => {
            let initiator = Credentials { user: "alice".into(), secret: "correct horse battery".into() };
            Some(Some(Chap { initiator, target: None }))
        }
        _ => None,
    };
    let (answer, step) = login.advance(&frame.header, frame.data, &lookup).expect("it is a login request");
    let answer = Frame::decode(&answer, u32::MAX >> 8, Digests::default()).unwrap().unwrap();
    assert!(answer.data.len() <= 32 * 1024);
    match step {
        LoginStep::GoesOn => true,
        LoginStep::Refused(_) => {
            assert_ne!(answer.header.0[36], 0);
            false
        }
        LoginStep::LoggedIn(negotiated) => {
            assert_ne!(negotiated.target.as_deref(), Some("kept"), "nobody here knows the secret");
            assert!((512..=0xff_ffff).contains(&negotiated.parameters.initiator_data_bytes_max));
            assert!((512..=TRANSFER_BYTES_MAX).contains(&negotiated.parameters.burst_bytes_max));
            *login = Login::new(Challenge { identifier: 1, bytes: [2; CHALLENGE_BYTES] });
            true
        }
    }
}

/// Commands of two sessions: a byte that names the session and says how many bytes follow the CDB, the CDB, those
/// bytes. What a command does stays within the volume and within the limits that the unit says; whether all of them
/// succeed.
pub fn cdbs(mut bytes: &[u8]) -> bool {
    let geometry = Geometry { block_bytes: BLOCK_BYTES, blocks: BLOCKS, is_read_only: false, is_rotational: false };
    let mut unit = LogicalUnit::new(geometry, Identity::new("target", "volume"));
    let port = |number: u8| PortName { initiator: "initiator".into(), isid: [0, 0, 0, 0, 0, number], target_port: 1 };
    let sessions = [unit.session_began(port(0)), unit.session_began(port(1))];
    for session in sessions {
        // The attention of a new session.
        let attention = answer(unit.command(session, 0, &[0; CDB_BYTES])).expect("no parameters, no job");
        assert_eq!(attention.status, Status::CheckCondition);
    }
    let mut volume = vec![0; (BLOCKS * u64::from(BLOCK_BYTES)) as usize];
    let mut all_good = true;
    while let Some((head, rest)) = bytes.split_first_chunk::<{ 1 + CDB_BYTES }>() {
        let count = usize::from(head[0] >> 1).min(rest.len());
        let cdb = head[1..].try_into().expect("the rest of the head");
        let (sent, rest) = rest.split_at(count);
        bytes = rest;
        all_good &= carry_out(&mut unit, sessions[usize::from(head[0] & 1)], &cdb, sent, &mut volume);
    }
    all_good
}

fn answer(outcome: Outcome) -> Option<Answer> {
    match outcome {
        Outcome::Answer(answer) => Some(answer),
        _ => None,
    }
}

/// Whether a command succeeds.
fn carry_out(unit: &mut LogicalUnit, session: NexusId, cdb: &[u8; CDB_BYTES], sent: &[u8], volume: &mut [u8]) -> bool {
    let outcome = match unit.command(session, 0, cdb) {
        Outcome::Parameters(length) => {
            assert!(length <= TRANSFER_BYTES_MAX);
            unit.parameters(session, cdb, &sent[..sent.len().min(length as usize)])
        }
        outcome => outcome,
    };
    match outcome {
        Outcome::Parameters(_) => panic!("parameters of parameters"),
        Outcome::Answer(answer) => {
            assert!(answer.data.len() <= ANSWER_BYTES_MAX);
            assert_eq!(answer.sense.is_some(), answer.status == Status::CheckCondition);
            matches!(answer.status, Status::Good | Status::ConditionMet)
        }
        Outcome::Job(job) => {
            assert_eq!(job.class.number(), group(cdb), "{cdb:02x?}");
            work(unit, job, sent, volume)
        }
    }
}

/// The group of a command that does something on the volume, by the length that its code says (SPC-5, 4.2.5.1): the
/// last byte but one, or that before the length of 10 bytes; 6 bytes have none.
fn group(cdb: &[u8; CDB_BYTES]) -> u8 {
    let byte = match cdb[0] >> 5 {
        0 => 0,
        1 | 2 => cdb[6],
        4 => cdb[14],
        5 => cdb[10],
        _ => panic!("no command of ours: {cdb:02x?}"),
    };
    byte & 0x1f
}

/// Carries a job out on a volume in memory; whether it succeeds.
fn work(unit: &mut LogicalUnit, job: Job, sent: &[u8], volume: &mut [u8]) -> bool {
    assert!(job.data_out_bytes <= TRANSFER_BYTES_MAX);
    let mut data: Vec<u8> =
        sent.iter().copied().chain(std::iter::repeat(0)).take(job.data_out_bytes as usize).collect();
    let progress = JobProgress::new(job, &data);
    // As the front end does: the block is repeated through the buffer.
    if data.len() == BLOCK_BYTES as usize {
        data = data.repeat(SCRATCH_BLOCKS);
    }
    let job = progress.job().clone();
    let ticket = unit.begin(&job).expect("nobody else is at work");
    let result = run(progress, &mut data, volume);
    unit.end(ticket, result.is_ok());
    result.is_ok()
}

const SCRATCH_BLOCKS: usize = 128;
/// Steps of a job at the most: an UNMAP of 256 extents.
const STEPS_MAX: u32 = 300;

fn run(mut progress: JobProgress, data: &mut [u8], volume: &mut [u8]) -> Result<(), Answer> {
    let mut steps = 0;
    while let Step::Volume { operation, offset, length, place } = progress.next() {
        steps += 1;
        assert!(steps <= STEPS_MAX, "a job that never ends");
        let extent = Extent { offset, length: length.into() };
        assert!(extent.end() <= volume.len() as u64, "{operation:?} {extent:?}");
        let range = offset as usize..extent.end() as usize;
        let mut read = Vec::new();
        match (operation, place) {
            (Operation::Read, _) => read = volume[range].to_vec(),
            (Operation::Write, Place::Data(at)) => {
                volume[range].copy_from_slice(&data[at as usize..][..length as usize])
            }
            (Operation::Trim | Operation::WriteZeroes, Place::Nowhere) => volume[range].fill(0),
            (Operation::Flush, Place::Nowhere) => assert_eq!(length, 0),
            other => panic!("{other:?}"),
        }
        progress.completed(Ok(()), &read, data)?;
    }
    Ok(())
}
