//! A server for tests that need one which is not the engine: memory behind the real handshake, one request at a time.

use plimsoll_protocols::nbd::wire::{REQUEST_BYTES, error_chunk, none_chunk, offset_data_chunk, simple_reply};
use plimsoll_protocols::nbd::{Command, Errno, ExportInfo, Negotiated, Request};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// The volume's content.
pub type Memory = Arc<Mutex<Vec<u8>>>;

/// An export with every feature, and the memory for it.
pub fn memory_export(name: &str, size_bytes: usize) -> (ExportInfo, Memory) {
    let mut export = ExportInfo::new(name, size_bytes as u64);
    export.set_transmission_flags(0xffff);
    export.is_read_only = false;
    (export, Arc::new(Mutex::new(vec![0; size_bytes])))
}

/// Serves one connection until the client disconnects. Waits for every reply to be sent before it reads on.
pub fn serve_memory(socket: OwnedFd, negotiated: &Negotiated, memory: &Memory) -> io::Result<()> {
    let mut stream = File::from(socket);
    let mut header = [0; REQUEST_BYTES];
    loop {
        stream.read_exact(&mut header)?;
        let request = Request::decode(&header).map_err(io::Error::other)?;
        let mut payload = vec![0; request.payload_bytes() as usize];
        stream.read_exact(&mut payload)?;
        if request.command == Command::Disconnect {
            return Ok(());
        }
        let result = request.check(&negotiated.export).map(|()| carry_out(&request, &payload, memory));
        stream.write_all(&reply(&request, result, negotiated.structured_replies))?;
    }
}

/// What a read reads; nothing otherwise.
fn carry_out(request: &Request, payload: &[u8], memory: &Memory) -> Vec<u8> {
    let mut memory = memory.lock().unwrap();
    let start = request.offset as usize;
    let end = start + request.length as usize;
    match request.command {
        Command::Read => return memory[start..end].to_vec(),
        Command::Write => memory[start..end].copy_from_slice(payload),
        Command::WriteZeroes | Command::Trim => memory[start..end].fill(0),
        _ => {}
    }
    Vec::new()
}

fn reply(request: &Request, result: Result<Vec<u8>, Errno>, structured: bool) -> Vec<u8> {
    let cookie = request.cookie;
    match result {
        Ok(data) if !structured => [&simple_reply(cookie, Ok(()))[..], &data].concat(),
        Err(errno) if !structured => simple_reply(cookie, Err(errno)).to_vec(),
        Err(errno) => error_chunk(cookie, true, errno).to_vec(),
        Ok(data) if data.is_empty() => none_chunk(cookie).to_vec(),
        Ok(data) => {
            // Two chunks and an end: what a client must put together.
            let (first, second) = data.split_at(data.len() / 2);
            let mut reply = Vec::new();
            for (at, part) in [(first.len(), second), (0, first)].into_iter().filter(|(_, part)| !part.is_empty()) {
                reply.extend_from_slice(&offset_data_chunk(
                    cookie,
                    false,
                    request.offset + at as u64,
                    part.len() as u32,
                ));
                reply.extend_from_slice(part);
            }
            reply.extend_from_slice(&none_chunk(cookie));
            reply
        }
    }
}
