//! Targets as doors.

use super::portal;
use super::target::{Target, Targets};
use crate::connection::{Listener, Serving};
use crate::doors::{Arrival, Arrived, DoorPlan, Doors};
use plimsoll_protocols::iscsi::names;
use std::io;

fn taken(name: &str) -> String {
    format!("there is already a target {name}")
}

/// The targets of a daemon.
#[derive(Default)]
pub(crate) struct TargetDoors(Targets);

impl Doors for TargetDoors {
    fn add(&self, plan: DoorPlan) -> Result<(), String> {
        let target = Target::of_volume(&plan.name, plan.login, &plan.volume, plan.is_rotational);
        self.0.add(target).map(drop).ok_or_else(|| taken(&plan.name))
    }

    fn add_for_session(&self, of: &str, session: &str, number: u64) -> Result<String, String> {
        let own = self.0.find(of).ok_or_else(|| format!("there is no target {of}"))?;
        // What a session may be called and a target may not.
        let session = session.to_lowercase().replace('_', "-");
        let name = format!("{of}:{session}.{number}");
        if !names::is_strict(&name) {
            return Err(format!("got target {name:?}, allowed are {} bytes", names::NAME_BYTES_MAX));
        }
        self.0.add(own.of_session(&name)).ok_or_else(|| taken(&name))?;
        Ok(name)
    }

    fn remove(&self, name: &str) {
        self.0.remove(name);
    }

    fn serve(&self, listener: Listener, arrived: Arrived) -> io::Result<Serving> {
        portal::serve(listener, self.0.clone(), move |session, peer| {
            let door = session.target.name().to_owned();
            arrived(Arrival { door, peer, front_end: Box::new(session.connection()) });
        })
    }
}
