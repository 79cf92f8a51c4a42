//! The least that a FUSE disk can cost: a server that keeps nothing. Reads answer zeroes out of one page, writes are
//! acknowledged and forgotten; no scheduler, no accounts, no ring, one thread that waits in `read`.
//!
//! ```text
//!   bare_fuse STATE_DIRECTORY SIZE_MIB      prints "ready DEVICE"; stop it by closing its standard input
//! ```
//!
//! `bench/fuse-loop.sh` measures it beside the engine, so that one sees how much of the distance to a plain loop device
//! is the kernel's FUSE path and how much is ours.

use plimsoll_protocols::fuse::limits::{PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX};
use plimsoll_protocols::fuse::reply::{FileAttributes, Reply};
use plimsoll_protocols::fuse::wire::{Call, FuseRequest};
use plimsoll_serve::attach::{AttachPlan, Attachment, recover};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, writev};
use std::error::Error;
use std::io::{IoSlice, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

const BLOCK_BYTES: u32 = 4096;

/// Answers until the mount is gone.
fn serve(device: OwnedFd, file: FileAttributes) -> Result<(), Errno> {
    fcntl_setfl(&device, fcntl_getfl(&device)? - OFlags::NONBLOCK)?;
    let mut bytes = vec![0; REQUEST_BYTES_MAX];
    let zeroes = vec![0; PAYLOAD_BYTES_MAX as usize];
    loop {
        let length = match read(&device, &mut bytes[..]) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::NOENT) => continue,
            Err(Errno::NODEV) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let Ok(request) = FuseRequest::parse(&bytes[..length]) else { continue };
        let (unique, mut data) = (request.unique, &zeroes[..0]);
        let reply = match request.call {
            Call::Unanswered => continue,
            Call::Read { length, .. } => {
                data = &zeroes[..length as usize];
                Reply::data(unique, length)
            }
            Call::Write { length, .. } => Reply::written(unique, length),
            Call::Initialize(offer) => Reply::initialized(unique, offer).map_err(|_| Errno::PROTO)?,
            Call::GetAttributes | Call::SetAttributes { .. } => Reply::attributes(unique, file),
            Call::Open => Reply::opened(unique),
            Call::Statistics => Reply::statistics(unique, file),
            Call::Allocate { .. } => Reply::error(unique, Errno::OPNOTSUPP),
            Call::Unsupported { .. } => Reply::error(unique, Errno::NOSYS),
            Call::Fsync | Call::Flush | Call::Release | Call::Destroy => Reply::done(unique),
        };
        match writev(&device, &[IoSlice::new(reply.as_bytes()), IoSlice::new(data)]) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let state_directory = words.next().ok_or("no state directory")?;
    let size_bytes = words.next().ok_or("no size")?.parse::<u64>()? << 20;
    let (state, _) = recover(Path::new(&state_directory))?;
    let plan = AttachPlan {
        volume: "bare".to_owned(),
        size_bytes,
        block_bytes: BLOCK_BYTES,
        is_read_only: false,
        file_system: None,
    };
    let (mut attachment, device) = Attachment::mount_disk(&state, plan)?;
    let file = FileAttributes { size_bytes, block_bytes: BLOCK_BYTES };
    let server = std::thread::spawn(move || serve(device, file));
    attachment.build()?;
    println!("ready {}", attachment.device_path().unwrap_or_default().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    attachment.detach();
    Ok(server.join().map_err(|_| "the server's thread ended early")??)
}
