//! Serves one volume over NBD until its standard input ends: the smallest whole server, and what `bench-peers/`
//! measures.
//!
//! ```text
//! serve <socket path> <scheduler> <backing file, or memory:SIZE>
//! ```

use plimsoll_core::{Allocation, ByteCount, DeviceProfile, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::{EngineConfig, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_protocols::nbd::SharedExports;
use plimsoll_serve::connection::ListenerOptions;
use plimsoll_serve::nbd::{Address, Listener, NbdConnection, export_info, serve};
use std::error::Error;
use std::io::Read;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, scheduler, backing] = arguments.as_slice() else {
        return Err("usage: serve <socket path> <scheduler> <backing file, or memory:SIZE>".into());
    };
    let backing = match backing.strip_prefix("memory:") {
        Some(size) => Backing::Memory { size_bytes: size.parse::<ByteCount>()?.0 },
        None => Backing::File { path: backing.into(), size_bytes: None, creates: false, encryption: None },
    };
    let config =
        VolumeConfig { name: "volume".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false };
    let volume = Volume::open(config)?;
    let exports = SharedExports::new();
    exports.add(export_info(volume.info(), false))?;
    let profile = DeviceProfile {
        name: "device".into(),
        capacity_bytes: volume.info().size_bytes,
        worst_case_runs_per_second: 1e6,
        sequential_bytes_per_second: 1e10,
        sequential_write_bytes_per_second: 1e10,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 128,
    };
    let engine = spawn(EngineConfig::new(profile, scheduler))?;
    engine.open_pool("pool", Allocation::default())?;
    engine.add_volume(volume)?;
    let of_connections = engine.clone();
    let listener = Listener::bind(&Address::Unix(socket.into()), ListenerOptions::default())?;
    let serving = serve(listener, exports, move |socket, negotiated, peer| {
        let session = SessionConfig { name: peer.to_string(), allocation: Allocation::default() };
        let connection = Box::new(NbdConnection::new(socket, negotiated));
        if let Err(error) = of_connections.attach("volume", session, connection) {
            eprintln!("{peer} was turned away: {error}");
        }
    })?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(serving);
    engine.shutdown(GRACE_DEFAULT)?;
    Ok(())
}
