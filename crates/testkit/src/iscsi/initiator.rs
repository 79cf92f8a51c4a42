//! An initiator of our own, which says what it is told to say.

use super::{Portal, target_name};
use crate::PATIENCE;
use plimsoll_protocols::iscsi::parameters::DATA_BYTES_MAX;
use plimsoll_protocols::iscsi::pdu::{Digests, Frame, HEADER_BYTES, Header, NO_TAG, encode, opcode};
use plimsoll_protocols::iscsi::text;
use plimsoll_serve::connection::Address;
use std::io::{Read, Write};
use std::net::TcpStream;

/// The initiator's name.
const NAME: &str = "iqn.2026-01.org.example:initiator";

/// An initiator that has logged in.
pub struct Initiator {
    /// Its connection: a socket of any kind, which std's type reads and writes alike.
    pub stream: TcpStream,
    /// What was agreed on.
    pub digests: Digests,
    /// The number of its next command, and that command's tag.
    pub command_number: u32,
}

impl Initiator {
    /// Logs in to the target of `volume` with `keys`, straight into the operational stage.
    pub fn log_in(portal: &Portal, volume: &str, isid: u8, keys: &[(&str, &str)]) -> Initiator {
        Initiator::log_in_at(&portal.address(), &target_name(volume), isid, keys)
    }

    /// The same at an address of any portal, to the target called `target`.
    pub fn log_in_at(address: &str, target: &str, isid: u8, keys: &[(&str, &str)]) -> Initiator {
        let mut initiator = Initiator::connect(address);
        initiator.full_feature(login(target, isid, keys));
        let is_agreed = |key| keys.contains(&(key, "CRC32C"));
        initiator.digests = Digests { header: is_agreed("HeaderDigest"), data: is_agreed("DataDigest") };
        // The unit attention of a new session.
        assert_eq!(initiator.command(&[0; 16], 0, &[]).0, 2);
        initiator
    }

    /// Asks the portal at `address` in a discovery session for all its targets; answers with the text that came.
    pub fn discover(address: &str) -> Vec<u8> {
        let mut initiator = Initiator::connect(address);
        initiator.full_feature(login_with(1, [("InitiatorName", NAME), ("SessionType", "Discovery")]));
        let mut request = Header::new(opcode::TEXT | 0x40, 2);
        request.0[1] = 0x80;
        request.set_u32(20, NO_TAG);
        request.set_u32(24, 1);
        let mut data = Vec::new();
        text::push(&mut data, "SendTargets", "All");
        initiator.send(request, &data);
        let (answer, data) = initiator.receive();
        assert_eq!((answer.opcode(), answer.0[1]), (opcode::TEXT_RESPONSE, 0x80), "all of it came");
        data
    }

    fn connect(address: &str) -> Initiator {
        let address: Address = address.parse().unwrap();
        let stream = TcpStream::from(address.connect().unwrap());
        stream.set_read_timeout(Some(std::time::Duration::from_nanos(PATIENCE.as_nanos()))).unwrap();
        Initiator { stream, digests: Digests::default(), command_number: 1 }
    }

    fn full_feature(&mut self, (request, data): (Header, Vec<u8>)) {
        self.send(request, &data);
        let (answer, _) = self.receive();
        assert_eq!((answer.opcode(), answer.0[36]), (opcode::LOGIN_RESPONSE, 0));
        assert_eq!(answer.0[1] & 0x83, 0x83, "straight to full feature");
    }

    /// Sends a PDU.
    pub fn send(&mut self, header: Header, data: &[u8]) {
        self.stream.write_all(&encode(header, data, self.digests)).unwrap();
    }

    /// The next PDU that comes: its header and its data.
    pub fn receive(&mut self) -> (Header, Vec<u8>) {
        let mut bytes = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut bytes).unwrap();
        let length = Frame::length(&bytes, self.digests);
        bytes.resize(length, 0);
        self.stream.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
        let frame = Frame::decode(&bytes, DATA_BYTES_MAX, self.digests).unwrap().unwrap();
        (frame.header, frame.data.to_vec())
    }

    /// Sends a command with its data, or one that reads `expected` bytes.
    pub fn request(&mut self, cdb: &[u8], expected: u32, data: &[u8]) {
        let mut header = Header::new(opcode::COMMAND, self.command_number);
        header.0[1] = 0x80 | if data.is_empty() { 0x40 } else { 0x20 };
        header.set_u32(20, if data.is_empty() { expected } else { data.len() as u32 });
        header.set_u32(24, self.command_number);
        header.0[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command_number += 1;
        self.send(header, data);
    }

    /// Status of a command, and what it read or its sense data.
    pub fn command(&mut self, cdb: &[u8], expected: u32, data: &[u8]) -> (u8, Vec<u8>) {
        self.request(cdb, expected, data);
        let mut read = Vec::new();
        loop {
            let (header, data) = self.receive();
            match header.opcode() {
                opcode::DATA_IN => read.extend(data),
                opcode::RESPONSE => return (header.0[3], data),
                other => panic!("{other:#x}"),
            }
            if header.0[1] & 1 != 0 {
                return (header.0[3], read);
            }
        }
    }
}

/// The header and the data with which an initiator asks for the operational stage of a session of `target`.
pub fn login(target: &str, isid: u8, keys: &[(&str, &str)]) -> (Header, Vec<u8>) {
    let names = [("InitiatorName", NAME), ("TargetName", target)];
    login_with(isid, names.into_iter().chain(keys.iter().copied()))
}

fn login_with<'k>(isid: u8, keys: impl IntoIterator<Item = (&'k str, &'k str)>) -> (Header, Vec<u8>) {
    let mut request = Header::new(opcode::LOGIN | 0x40, 0);
    request.0[1] = 0x80 | 1 << 2 | 3;
    request.0[13] = isid;
    request.set_u32(24, 1);
    let mut data = Vec::new();
    keys.into_iter().for_each(|(key, value)| text::push(&mut data, key, value));
    (request, data)
}
