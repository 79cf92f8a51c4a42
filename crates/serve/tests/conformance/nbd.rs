//! The driver for NBD: the client of `plimsoll_serve::nbd`, and bare sockets.

use crate::front::{Answer, Begun, Client, Driver, Front, Gone, Limits, Told};
use crate::sockets::Served;
use plimsoll_core::Operation;
use plimsoll_protocols::nbd::option::{EXPORT_NAME_REPLY_BYTES, GREETING_BYTES, number, option};
use plimsoll_protocols::nbd::{Command, CommandFlags, Errno, Request};
use plimsoll_serve::nbd::client::{ClientError, ClientOptions};
use plimsoll_testkit::BLOCK;
use std::io::{Read, Write};
use std::net::TcpStream;

/// What NBD allows without asking (NBD protocol, "Block size constraints"). The server may close on a larger write.
const BYTES_MAX: u32 = 32 << 20;
const DOOR: &str = "v";

pub const DRIVER: Driver = Driver {
    name: "nbd",
    not_run: || None,
    limits: Limits { bytes_max: BYTES_MAX, larger_read: Err(Told::Refused), larger_write: Err(Told::Ended) },
    serve: |site| Box::new(Nbd(Served::new(site, "nbd", DOOR))),
};

struct Nbd(Served);

impl Front for Nbd {
    fn connect(&self) -> Box<dyn Client> {
        let options = ClientOptions { export_name: DOOR.into(), ..ClientOptions::default() };
        Box::new(Whole(plimsoll_serve::nbd::Client::connect(self.0.address(), &options).unwrap()))
    }

    fn begin(&self, begun: Begun) -> Option<Box<dyn Gone>> {
        let mut stream = self.0.connect();
        stream.write_all(&hello()).unwrap();
        stream.read_exact(&mut [0; GREETING_BYTES + EXPORT_NAME_REPLY_BYTES]).unwrap();
        let write = || [request(Command::Write, 0, BLOCK as u32), vec![1; BLOCK as usize]].concat();
        match begun {
            Begun::Half => stream.write_all(&write()[..1000]).unwrap(),
            Begun::Whole(Operation::Read, block) => {
                stream.write_all(&request(Command::Read, block * BLOCK, BLOCK as u32)).unwrap();
            }
            Begun::Whole(_, block) => {
                let header = request(Command::Write, block * BLOCK, BLOCK as u32);
                stream.write_all(&[header, vec![1; BLOCK as usize]].concat()).unwrap();
            }
        }
        Some(Box::<TcpStream>::new(stream))
    }

    fn messages(&self) -> Vec<Vec<u8>> {
        let header = |command, length| request(command, 8192, length);
        vec![
            hello(),
            [header(Command::Write, 4096), vec![3; 4096]].concat(),
            header(Command::Read, 4096),
            request(Command::WriteZeroes, 16_384, 8192),
            request(Command::Trim, 16_384, 4096),
            request(Command::Flush, 0, 0),
            header(Command::Read, 64 << 10),
            request(Command::Disconnect, 0, 0),
        ]
    }

    fn say(&self, messages: &[Vec<u8>]) {
        self.0.say(messages);
    }
}

/// What a client says until it is past its handshake.
fn hello() -> Vec<u8> {
    [&[0, 0, 0, 3][..], &option(number::EXPORT_NAME, DOOR.len() as u32), DOOR.as_bytes()].concat()
}

fn request(command: Command, offset: u64, length: u32) -> Vec<u8> {
    Request { flags: CommandFlags::NONE, command, cookie: 1, offset, length }.encode().to_vec()
}

fn told(answer: Result<(), ClientError>) -> Answer {
    answer.map_err(|error| match error {
        ClientError::Answered(Errno::InvalidArgument | Errno::NoSpace | Errno::NotPermitted) => Told::Refused,
        ClientError::Answered(_) => Told::Failed,
        ClientError::Socket { .. } => Told::Ended,
        other => panic!("{other}"),
    })
}

/// A client that cuts no request into pieces.
struct Whole(plimsoll_serve::nbd::Client);

impl Whole {
    fn ask(&mut self, command: Command, offset: u64, length: u32, room: &mut [u8]) -> Answer {
        told(self.0.submit(0, command, CommandFlags::NONE, offset, length))?;
        self.answer(room)
    }

    fn answer(&mut self, room: &mut [u8]) -> Answer {
        let take = |_, at: u32, bytes: &[u8]| room[at as usize..][..bytes.len()].copy_from_slice(bytes);
        told(self.0.receive(take).and_then(|completed| Ok(completed.result?)))
    }

    fn send(&mut self, flags: CommandFlags, offset: u64, bytes: &[u8]) -> Answer {
        told(self.0.submit_write(0, flags, offset, bytes))?;
        self.answer(&mut [])
    }
}

impl Client for Whole {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Answer {
        self.ask(Command::Read, offset, bytes.len() as u32, bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.send(CommandFlags::NONE, offset, bytes)
    }

    fn write_forced(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.send(CommandFlags::FUA, offset, bytes)
    }

    fn flush(&mut self) -> Answer {
        self.ask(Command::Flush, 0, 0, &mut [])
    }

    fn trim(&mut self, offset: u64, length: u32) -> Answer {
        self.ask(Command::Trim, offset, length, &mut [])
    }

    fn zero(&mut self, offset: u64, length: u32) -> Answer {
        self.ask(Command::WriteZeroes, offset, length, &mut [])
    }
}
