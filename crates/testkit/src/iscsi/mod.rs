//! What the iSCSI tests share: an engine with volumes that can be reached as targets.

pub mod initiator;

use plimsoll_core::{Allocation, DeviceProfile};
use plimsoll_engine::backend::Volume;
use plimsoll_engine::{EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_protocols::iscsi::Chap;
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::iscsi::{Target, Targets, serve};
use plimsoll_serve::nbd::{Address, Listener};

/// The iSCSI name of a volume.
pub fn target_name(volume: &str) -> String {
    format!("iqn.2026-01.org.example:{volume}")
}

/// An engine with targets on a port of this machine.
pub struct Portal {
    /// The engine, with an open pool `pool`.
    pub engine: EngineHandle,
    serving: Option<Serving>,
}

impl Portal {
    /// Starts an engine under `noop` and serves these volumes, each with the secret that initiators must know.
    pub fn new(profile: DeviceProfile, volumes: Vec<(Volume, Option<Chap>)>) -> Portal {
        Portal::with(EngineConfig::new(profile, "noop"), volumes)
    }

    /// The same with an engine of that configuration.
    pub fn with(config: EngineConfig, volumes: Vec<(Volume, Option<Chap>)>) -> Portal {
        Portal::at(&"tcp:127.0.0.1:0".parse().unwrap(), config, volumes)
    }

    /// The same at that address.
    pub fn at(address: &Address, config: EngineConfig, volumes: Vec<(Volume, Option<Chap>)>) -> Portal {
        let engine = spawn(config).unwrap();
        engine.open_pool("pool", Allocation::default()).unwrap();
        let targets = Targets::default();
        for (volume, chap) in volumes {
            let name = target_name(&volume.info().name);
            assert!(targets.add(Target::of_volume(&name, chap, volume.info(), false)).is_some());
            engine.add_volume(volume).unwrap();
        }
        let listener = Listener::bind(address, ListenerOptions::default()).unwrap();
        let of_sessions = engine.clone();
        let serving = serve(listener, targets, move |session, _| {
            let volume = session.target.name().rsplit(':').next().unwrap().to_owned();
            let config = SessionConfig { name: "iscsi".into(), allocation: Allocation::default() };
            of_sessions.attach(&volume, config, Box::new(session.connection())).unwrap();
        });
        Portal { engine, serving: Some(serving.unwrap()) }
    }

    /// Where it listens, as initiators write it; a Unix socket as the configuration has it.
    pub fn address(&self) -> String {
        match self.serving.as_ref().unwrap().address() {
            Address::Tcp(address) => address.to_string(),
            unix => unix.to_string(),
        }
    }

    /// What initiators write for a volume's unit.
    pub fn url(&self, volume: &str) -> String {
        format!("iscsi://{}/{}/0", self.address(), target_name(volume))
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.serving = None;
        let _ = self.engine.shutdown(GRACE_DEFAULT);
    }
}
