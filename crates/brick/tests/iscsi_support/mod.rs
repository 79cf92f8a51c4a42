//! What the iSCSI tests share: an engine with volumes that can be reached as targets.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod initiator;

use plimsoll_brick::backend::Volume;
use plimsoll_brick::connection::{ListenerOptions, Serving};
use plimsoll_brick::engine::{EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_brick::iscsi::{Chap, Target, Targets, serve};
use plimsoll_brick::nbd::{Address, Listener};
use plimsoll_core::{Allocation, DeviceProfile};

/// The iSCSI name of a volume.
pub fn target_name(volume: &str) -> String {
    format!("iqn.2026-01.org.example:{volume}")
}

/// An engine with targets on a port of this machine.
pub struct Portal {
    pub engine: EngineHandle,
    serving: Option<Serving>,
}

impl Portal {
    pub fn new(profile: DeviceProfile, volumes: Vec<(Volume, Option<Chap>)>) -> Portal {
        Portal::with(EngineConfig::new(profile, "noop"), volumes)
    }

    pub fn with(config: EngineConfig, volumes: Vec<(Volume, Option<Chap>)>) -> Portal {
        let engine = spawn(config).unwrap();
        engine.open_pool("pool", Allocation::default()).unwrap();
        let targets = Targets::default();
        for (volume, chap) in volumes {
            let name = target_name(&volume.info().name);
            assert!(targets.add(Target::of_volume(&name, chap, volume.info(), false)).is_some());
            engine.add_volume(volume).unwrap();
        }
        let address: Address = "tcp:127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&address, ListenerOptions::default()).unwrap();
        let of_sessions = engine.clone();
        let serving = serve(listener, targets, move |session, _| {
            let volume = session.target.name().rsplit(':').next().unwrap().to_owned();
            let config = SessionConfig { name: "iscsi".into(), allocation: Allocation::default() };
            of_sessions.attach(&volume, config, Box::new(session.connection())).unwrap();
        });
        Portal { engine, serving: Some(serving.unwrap()) }
    }

    /// Where it listens, as initiators write it.
    pub fn address(&self) -> String {
        match self.serving.as_ref().unwrap().address() {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => panic!("{}", path.display()),
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
