//! The real target against an initiator of our own that says what no good one would.

use plimsoll_core::{DeviceProfile, Operation};
use plimsoll_engine::RECORDER_EVENTS_DEFAULT;
use plimsoll_engine::backend::Volume;
use plimsoll_protocols::iscsi::parameters::DATA_BYTES_MAX;
use plimsoll_protocols::iscsi::pdu::{Header, NO_TAG, encode, opcode};
use plimsoll_serve::iscsi::COMMANDS_MAX;
use plimsoll_testkit::iscsi::Portal;
use plimsoll_testkit::iscsi::initiator::Initiator;
use plimsoll_testkit::{encrypted_config, file_config, memory, pause, profile};
use std::io::{Read, Write};
use std::net::TcpStream;

const VOLUME_BYTES: u64 = 16 << 20;

fn portal() -> Portal {
    Portal::new(profile(), vec![(memory("memory", VOLUME_BYTES, 0), None)])
}

/// READ(10) and WRITE(10) of `blocks` at `lba` in `group`.
fn transfer(code: u8, lba: u8, group: u8, blocks: u8) -> [u8; 10] {
    [code, 0, 0, 0, 0, lba, group, 0, blocks, 0]
}

/// Whether the target has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 512]), Ok(0) | Err(_))
}

/// Promise: iscsi-group-number.
#[test]
fn the_group_number_is_the_class_of_a_request() {
    let portal = portal();
    let mut initiator = Initiator::log_in(&portal, "memory", 1, &[]);
    let mut recording = portal.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    assert_eq!(initiator.command(&transfer(0x2a, 8, 19, 1), 0, &[7; 512]).0, 0);
    assert_eq!(initiator.command(&transfer(0x28, 8, 0xe0 | 7, 1), 512, &[]), (0, vec![7; 512]));
    assert_eq!(initiator.command(&transfer(0x28, 8, 0, 1), 512, &[]).0, 0);
    recording.stop();
    let mut records = Vec::new();
    while !recording.is_over() {
        records.extend(recording.take(100));
        pause();
    }
    records.extend(recording.take(100));
    let seen: Vec<_> = records.iter().map(|record| (record.operation, record.class.number())).collect();
    assert_eq!(seen, [(Operation::Write, 19), (Operation::Read, 7), (Operation::Read, 0)]);
}

/// What an initiator sent is compared with what is read back, or written many times: it stays as it is. Planted break:
/// it is encrypted where it lies.
/// Promise: encrypted-client-buffer.
#[test]
fn what_an_initiator_sent_to_an_encrypted_volume_is_still_what_it_was_when_it_is_used_again() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = Volume::open(encrypted_config("safe", &directory.path().join("safe"), VOLUME_BYTES)).unwrap();
    let block_bytes = volume.info().block_bytes as usize;
    let portal = Portal::new(profile(), vec![(volume, None)]);
    let mut initiator = Initiator::log_in(&portal, "safe", 1, &[]);
    let data: Vec<u8> = (0..8 * block_bytes).map(|at| (at * 7 / 3) as u8 | 1).collect();
    // WRITE AND VERIFY(10) with BYTCHK, which compares.
    assert_eq!(initiator.command(&[0x2e, 2, 0, 0, 0, 3, 0, 0, 8, 0], 0, &data), (0, vec![]));
    assert_eq!(initiator.command(&transfer(0x28, 3, 0, 8), data.len() as u32, &[]), (0, data.clone()));
    // WRITE SAME(10) of more than is repeated at a time.
    let (block, blocks) = (&data[..block_bytes], 200);
    assert_eq!(initiator.command(&[0x41, 0, 0, 0, 0, 100, 0, 0, blocks, 0], 0, block), (0, vec![]));
    let read = initiator.command(&transfer(0x28, 100, 0, blocks), u32::from(blocks) * block_bytes as u32, &[]);
    assert!(read == (0, block.repeat(blocks.into())));
}

#[test]
fn digests_protect_both_ways_and_a_wrong_one_ends_the_session() {
    let portal = portal();
    let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C"), ("MaxRecvDataSegmentLength", "512")];
    let mut initiator = Initiator::log_in(&portal, "memory", 1, &keys);
    let data: Vec<u8> = (0..20 * 512u32).map(|at| (at / 3) as u8).collect();
    assert_eq!(initiator.command(&transfer(0x2a, 0, 0, 20), 0, &data).0, 0);
    // In PDUs of 512 bytes, each with digests that `receive` checks; the last is cut where the initiator has no room.
    assert_eq!(initiator.command(&transfer(0x28, 0, 0, 20), 20 * 512, &[]), (0, data.clone()));
    assert_eq!(initiator.command(&transfer(0x28, 0, 0, 20), 1001, &[]).1, data[..1001]);
    let mut header = Header::new(opcode::NOP_OUT | 0x40, 99);
    header.set_u32(20, NO_TAG);
    let mut ping = encode(header, b"ping", initiator.digests);
    *ping.last_mut().unwrap() ^= 1;
    initiator.stream.write_all(&ping).unwrap();
    assert!(is_closed(&mut initiator.stream));
}

/// Promise: iscsi-hostile-bytes.
#[test]
fn hostile_bytes_close_their_own_session_and_no_other() {
    let portal = portal();
    let mut good = Initiator::log_in(&portal, "memory", 1, &[]);
    let mut too_long = Header::new(opcode::NOP_OUT, 5);
    too_long.set_data_bytes(DATA_BYTES_MAX + 1);
    let second_login = Header::new(opcode::LOGIN | 0x40, 0);
    for (number, header) in [too_long, second_login].into_iter().enumerate() {
        let mut hostile = Initiator::log_in(&portal, "memory", 10 + number as u8, &[]);
        hostile.stream.write_all(&header.0).unwrap();
        assert!(is_closed(&mut hostile.stream), "{header:?}");
    }
    // Not even a login.
    let mut stranger = TcpStream::connect(portal.address()).unwrap();
    stranger.write_all(&[0xff; 48]).unwrap();
    assert!(is_closed(&mut stranger));
    assert_eq!(good.command(&transfer(0x28, 0, 0, 1), 512, &[]), (0, vec![0; 512]));
}

#[test]
fn commands_beyond_the_window_are_ignored_and_unknown_data_too() {
    let portal = portal();
    let mut initiator = Initiator::log_in(&portal, "memory", 1, &[]);
    let number = initiator.command_number;
    for wrong in [number - 1, number + 1, number + 1000] {
        initiator.command_number = wrong;
        initiator.request(&[0; 6], 0, &[]);
    }
    let stray = Header::new(opcode::DATA_OUT, 12345);
    initiator.send(stray, &[1; 100]);
    initiator.command_number = number;
    assert_eq!(initiator.command(&transfer(0x28, 0, 0, 1), 512, &[]), (0, vec![0; 512]));
}

#[test]
fn a_new_session_of_the_same_port_takes_the_old_ones_place() {
    let portal = portal();
    const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
    const CONFLICT: u8 = 0x18;
    let mut first = Initiator::log_in(&portal, "memory", 1, &[]);
    let mut other = Initiator::log_in(&portal, "memory", 2, &[]);
    assert_eq!(first.command(&RESERVE, 0, &[]).0, 0);
    assert_eq!(other.command(&RESERVE, 0, &[]).0, CONFLICT);
    let _second = Initiator::log_in(&portal, "memory", 1, &[]);
    assert!(is_closed(&mut first.stream));
    assert_eq!(other.command(&RESERVE, 0, &[]).0, 0, "a reservation ends with its session");
}

#[test]
fn a_reset_ends_what_waits_for_data_and_all_sessions_hear_of_it() {
    let portal = portal();
    let mut initiator = Initiator::log_in(&portal, "memory", 1, &[("ImmediateData", "No")]);
    let mut other = Initiator::log_in(&portal, "memory", 2, &[]);
    let mut write = Header::new(opcode::COMMAND, 77);
    write.0[1] = 0xa0;
    write.set_u32(20, 512);
    write.set_u32(24, initiator.command_number);
    write.0[32..42].copy_from_slice(&transfer(0x2a, 0, 0, 1));
    initiator.command_number += 1;
    initiator.send(write, &[]);
    assert_eq!(initiator.receive().0.opcode(), opcode::READY_TO_TRANSFER);
    let mut reset = Header::new(opcode::TASK_MANAGEMENT | 0x40, 78);
    reset.0[1] = 0x80 | 5;
    initiator.send(reset, &[]);
    let (answer, _) = initiator.receive();
    assert_eq!((answer.opcode(), answer.0[2]), (opcode::TASK_MANAGEMENT_RESPONSE, 0));
    for heard in [&mut initiator, &mut other] {
        let (status, sense) = heard.command(&[0; 6], 0, &[]);
        assert_eq!((status, &sense[4..5], &sense[14..16]), (2, &[6][..], &[0x29, 0x03][..]));
        assert_eq!(heard.command(&[0; 6], 0, &[]).0, 0);
    }
}

#[test]
fn what_came_while_answers_waited_is_answered_when_they_have_gone() {
    const COMMANDS: u32 = 4000;
    const ALLOCATION: u32 = 4096;
    let portal = portal();
    let mut initiator = Initiator::log_in(&portal, "memory", 1, &[]);
    // REPORT SUPPORTED OPERATION CODES with timeouts: a kilobyte for 48 bytes; immediate, and so not bounded by the
    // window.
    let mut command = Header::new(opcode::COMMAND | 0x40, 0);
    command.0[1] = 0x80 | 0x40;
    command.set_u32(20, ALLOCATION);
    command.set_u32(24, initiator.command_number);
    command.0[32..35].copy_from_slice(&[0xa3, 0x0c, 0x80]);
    command.set_u32(38, ALLOCATION);
    let mut bytes = Vec::new();
    for tag in 0..COMMANDS {
        command.set_u32(16, tag);
        bytes.extend(encode(command, &[], initiator.digests));
    }
    let mut stream = initiator.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || stream.write_all(&bytes).unwrap());
    for tag in 0..COMMANDS {
        let (answer, data) = initiator.receive();
        assert_eq!((answer.opcode(), answer.initiator_tag()), (opcode::DATA_IN, tag));
        assert!(data.len() > 512);
    }
    sender.join().unwrap();
}

#[test]
fn an_initiator_may_have_room_for_as_much_as_it_can_say() {
    let portal = portal();
    let mut initiator = Initiator::log_in(&portal, "memory", 1, &[]);
    assert_eq!(initiator.command(&transfer(0x2a, 0, 0, 1), 0, &[7; 512]).0, 0);
    for room in [u32::MAX, u32::MAX - 510] {
        assert_eq!(initiator.command(&transfer(0x28, 0, 0, 1), room, &[]), (0, vec![7; 512]), "{room}");
    }
}

/// Planted break that was seen red: a turn of the engine ends when nothing more comes of it.
/// Promise: volume-turns.
#[test]
fn a_verification_of_a_whole_volume_holds_up_no_session_and_can_be_aborted() {
    // What was never written takes no memory, and is verified in some ten seconds.
    const LARGE_BYTES: u64 = 1 << 40;
    let device = DeviceProfile { capacity_bytes: LARGE_BYTES, ..profile() };
    let portal = Portal::new(device, vec![(memory("large", LARGE_BYTES, 0), None)]);
    let mut greedy = Initiator::log_in(&portal, "large", 1, &[]);
    let mut other = Initiator::log_in(&portal, "large", 2, &[]);
    let mut verify = [0; 16];
    verify[0] = 0x8f;
    verify[10..14].copy_from_slice(&((LARGE_BYTES / 512) as u32).to_be_bytes());
    greedy.request(&verify, 0, &[]);
    for _ in 0..100 {
        assert_eq!(other.command(&transfer(0x28, 0, 0, 1), 512, &[]), (0, vec![0; 512]));
    }
    assert!(portal.engine.status().unwrap().requests_under_way <= 1);
    let mut abort = Header::new(opcode::TASK_MANAGEMENT | 0x40, 78);
    abort.0[1] = 0x80 | 2;
    greedy.send(abort, &[]);
    let (answer, _) = greedy.receive();
    assert_eq!(
        (answer.opcode(), answer.0[2]),
        (opcode::TASK_MANAGEMENT_RESPONSE, 0),
        "before the verification is over"
    );
    assert_eq!(greedy.command(&[0; 6], 0, &[]).0, 0);
}

/// Broken on purpose and seen red: answers are sent together whatever their buffers are.
/// Promise: iscsi-window.
#[test]
fn a_client_that_asks_for_more_as_soon_as_an_answer_has_come_finds_room_for_it() {
    const READ_BYTES: u32 = 1 << 20;
    const COMMANDS: u32 = 200;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = Volume::open(file_config("file", &directory.path().join("disk"), Some(VOLUME_BYTES))).unwrap();
    let portal = Portal::new(profile(), vec![(file, None)]);
    // As large as the target sends them, so that one send has as many answers as may be.
    let segment = DATA_BYTES_MAX.to_string();
    let mut initiator = Initiator::log_in(&portal, "file", 1, &[("MaxRecvDataSegmentLength", segment.as_str())]);
    let read = |initiator: &mut Initiator| {
        initiator.request(&[0x28, 0, 0, 0, 0, 0, 0, ((READ_BYTES / 512) >> 8) as u8, 0, 0], READ_BYTES, &[]);
    };
    // As many as the window lets in, and their answers wait before any is taken.
    (0..COMMANDS_MAX).for_each(|_| read(&mut initiator));
    wait_until_idle(&portal);
    for _ in 0..COMMANDS {
        let mut length = 0;
        while length < READ_BYTES {
            let (header, data) = initiator.receive();
            assert_eq!(header.opcode(), opcode::DATA_IN, "{header:?}");
            length += data.len() as u32;
        }
        read(&mut initiator);
    }
}

/// Waits until the engine has done everything, or for a while: it may be waiting for an initiator.
fn wait_until_idle(portal: &Portal) {
    for _ in 0..100 {
        pause();
        if portal.engine.status().unwrap().requests_under_way == 0 {
            return;
        }
    }
}
