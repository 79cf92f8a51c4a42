//! The driver for iSCSI: the initiator of `plimsoll_testkit`, which here answers R2Ts too.

use crate::front::{Answer, Begun, Client, Driver, Front, Gone, Limits, Told};
use crate::sockets::Served;
use plimsoll_core::Operation;
use plimsoll_protocols::iscsi::pdu::{Digests, Header, encode, opcode};
use plimsoll_testkit::BLOCK;
use plimsoll_testkit::iscsi::initiator::{Initiator, login};
use std::cell::Cell;
use std::io::Write;

const TARGET: &str = "iqn.2026-01.org.example:v";
/// What the block limits page allows.
const BYTES_MAX: u32 = 1 << 20;
/// Bytes of a Data-Out PDU: less than the target takes.
const DATA_OUT_BYTES: usize = 64 << 10;
const FORCED: u8 = 0x08;
/// The number in the names of hostile sessions; others have lower ones.
const HOSTILE: u8 = 0xff;

const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;

pub const DRIVER: Driver = Driver {
    name: "iscsi",
    not_run: || None,
    limits: Limits { bytes_max: BYTES_MAX, larger_read: Err(Told::Refused), larger_write: Err(Told::Refused) },
    serve: |site| {
        let served = Served::new(site, "iscsi", TARGET);
        Box::new(Iscsi { served, block: site.block(), sessions: Cell::new(0) })
    },
};

struct Iscsi {
    served: Served,
    block: u32,
    sessions: Cell<u8>,
}

impl Iscsi {
    fn log_in(&self) -> Disk {
        self.sessions.set(self.sessions.get() + 1);
        let address = self.served.address().to_string();
        let address = address.trim_start_matches("tcp:");
        Disk { initiator: Initiator::log_in_at(address, TARGET, self.sessions.get(), &[]), block: self.block }
    }
}

impl Front for Iscsi {
    fn connect(&self) -> Box<dyn Client> {
        Box::new(self.log_in())
    }

    fn begin(&self, begun: Begun) -> Option<Box<dyn Gone>> {
        let mut disk = self.log_in();
        let number = disk.initiator.command_number;
        match begun {
            Begun::Half => {
                let whole = command(&disk.cdb(WRITE_16, 0, 0, BLOCK as u32), number, &[1; BLOCK as usize]);
                disk.initiator.stream.write_all(&whole[..1000]).unwrap();
            }
            Begun::Whole(Operation::Read, block) => {
                let cdb = disk.cdb(READ_16, 0, block * BLOCK, BLOCK as u32);
                disk.initiator.request(&cdb, BLOCK as u32, &[]);
            }
            Begun::Whole(_, block) => {
                let cdb = disk.cdb(WRITE_16, 0, block * BLOCK, BLOCK as u32);
                disk.initiator.request(&cdb, 0, &[1; BLOCK as usize]);
            }
        }
        Some(Box::new(disk))
    }

    fn messages(&self) -> Vec<Vec<u8>> {
        let (header, data) = login(TARGET, HOSTILE, &[("HeaderDigest", "None")]);
        let cdb = |code, length| cdb(code, 0, 8192, length, self.block).to_vec();
        let mut ping = Header::new(opcode::NOP_OUT | 0x40, 77);
        ping.set_u32(20, u32::MAX);
        let mut logout = Header::new(opcode::LOGOUT | 0x40, 78);
        logout.0[1] = 0x80;
        vec![
            encode(header, &data, Digests::default()),
            command(&[0; 6], 1, &[]),
            command(&cdb(WRITE_16, 4096), 2, &[3; 4096]),
            command(&cdb(READ_16, 4096), 3, &[]),
            command(&[0x12, 1, 0x83, 0, 255, 0], 4, &[]),
            encode(ping, b"ping", Digests::default()),
            command(&unmap(16_384, 4096, self.block).0, 5, &unmap(16_384, 4096, self.block).1),
            command(&cdb(READ_16, 64 << 10), 6, &[]),
            encode(logout, &[], Digests::default()),
        ]
    }

    fn say(&self, messages: &[Vec<u8>]) {
        self.served.say(messages);
    }
}

/// READ(16), WRITE(16), WRITE SAME(16).
fn cdb(code: u8, flags: u8, offset: u64, length: u32, block: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, flags);
    cdb[2..10].copy_from_slice(&(offset / u64::from(block)).to_be_bytes());
    cdb[10..14].copy_from_slice(&(length / block).to_be_bytes());
    cdb
}

/// UNMAP of one range: the command and its data.
fn unmap(offset: u64, length: u32, block: u32) -> ([u8; 10], Vec<u8>) {
    let mut data = vec![0, 22, 0, 16, 0, 0, 0, 0];
    data.extend((offset / u64::from(block)).to_be_bytes());
    data.extend((length / block).to_be_bytes());
    data.extend([0; 4]);
    ([0x42, 0, 0, 0, 0, 0, 0, 0, data.len() as u8, 0], data)
}

/// A command with its data, or one that reads up to 64 KiB, as bytes.
fn command(cdb: &[u8], number: u32, data: &[u8]) -> Vec<u8> {
    let mut header = Header::new(opcode::COMMAND, number);
    header.0[1] = 0x80 | if data.is_empty() { 0x40 } else { 0x20 };
    header.set_u32(20, if data.is_empty() { 64 << 10 } else { data.len() as u32 });
    header.set_u32(24, number);
    header.0[32..32 + cdb.len()].copy_from_slice(cdb);
    encode(header, data, Digests::default())
}

/// The unit, as one initiator sees it.
struct Disk {
    initiator: Initiator,
    block: u32,
}

impl Disk {
    fn cdb(&self, code: u8, flags: u8, offset: u64, length: u32) -> [u8; 16] {
        cdb(code, flags, offset, length, self.block)
    }

    /// Sends a command without its data, which the target asks for; fills `room` with what is read.
    fn carry_out(&mut self, cdb: &[u8], room: &mut [u8], data: &[u8]) -> Answer {
        let number = self.initiator.command_number;
        let mut header = Header::new(opcode::COMMAND, number);
        header.0[1] = 0x80 | if data.is_empty() { 0x40 } else { 0x20 };
        header.set_u32(20, (room.len() + data.len()) as u32);
        header.set_u32(24, number);
        header.0[32..32 + cdb.len()].copy_from_slice(cdb);
        self.initiator.command_number += 1;
        self.initiator.send(header, &[]);
        let mut filled = 0;
        loop {
            let (header, bytes) = self.initiator.receive();
            match header.opcode() {
                opcode::READY_TO_TRANSFER => self.send_data(&header, number, data),
                opcode::DATA_IN => {
                    let at = header.u32(40) as usize;
                    room[at..at + bytes.len()].copy_from_slice(&bytes);
                    filled += bytes.len();
                    if header.0[1] & 1 == 0 {
                        continue;
                    }
                    let answer = told(header.0[3], &[]);
                    assert!(answer.is_err() || filled == room.len(), "all of it was read");
                    return answer;
                }
                opcode::RESPONSE => {
                    let answer = told(header.0[3], &bytes);
                    assert!(answer.is_err() || filled == room.len(), "all of it was read");
                    return answer;
                }
                other => panic!("{other:#x}"),
            }
        }
    }

    /// Answers an R2T.
    fn send_data(&mut self, asked: &Header, tag: u32, data: &[u8]) {
        let (start, length) = (asked.u32(40) as usize, asked.u32(44) as usize);
        let pieces = data[start..start + length].chunks(DATA_OUT_BYTES);
        let last = pieces.len() - 1;
        for (number, piece) in pieces.enumerate() {
            let mut header = Header::new(opcode::DATA_OUT, tag);
            header.0[1] = if number == last { 0x80 } else { 0 };
            header.set_u32(20, asked.u32(20));
            header.set_u32(36, number as u32);
            header.set_u32(40, (start + number * DATA_OUT_BYTES) as u32);
            self.initiator.send(header, piece);
        }
    }
}

/// A status and sense data (SPC-4, 4.5).
fn told(status: u8, sense: &[u8]) -> Answer {
    const ILLEGAL_REQUEST: u8 = 5;
    const DATA_PROTECT: u8 = 7;
    match status {
        0 => Ok(()),
        2 => match sense.get(4).map(|key| key & 15) {
            Some(ILLEGAL_REQUEST | DATA_PROTECT) => Err(Told::Refused),
            _ => Err(Told::Failed),
        },
        other => panic!("status {other:#x}"),
    }
}

impl Client for Disk {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Answer {
        self.carry_out(&self.cdb(READ_16, 0, offset, bytes.len() as u32), bytes, &[])
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.carry_out(&self.cdb(WRITE_16, 0, offset, bytes.len() as u32), &mut [], bytes)
    }

    fn write_forced(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.carry_out(&self.cdb(WRITE_16, FORCED, offset, bytes.len() as u32), &mut [], bytes)
    }

    fn flush(&mut self) -> Answer {
        // SYNCHRONIZE CACHE(10) of the whole unit.
        self.carry_out(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &mut [], &[])
    }

    fn trim(&mut self, offset: u64, length: u32) -> Answer {
        let (cdb, data) = unmap(offset, length, self.block);
        self.carry_out(&cdb, &mut [], &data)
    }

    fn zero(&mut self, offset: u64, length: u32) -> Answer {
        // WRITE SAME(16) of a block of zeroes.
        let block = vec![0; self.block as usize];
        self.carry_out(&self.cdb(0x93, 0, offset, length), &mut [], &block)
    }
}
