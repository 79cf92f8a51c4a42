//! Exports as doors.

use super::listener::serve;
use super::nbd_connection::{NbdConnection, export_info};
use crate::connection::{Listener, Serving};
use crate::doors::{Arrival, Arrived, DoorPlan, Doors};
use plimsoll_protocols::nbd::export::{ExportInfo, SharedExports};
use std::io;

/// The exports of a daemon.
#[derive(Default)]
pub(crate) struct ExportDoors(SharedExports);

impl Doors for ExportDoors {
    fn add(&self, plan: DoorPlan) -> Result<(), String> {
        let info = ExportInfo { name: plan.name, ..export_info(&plan.volume, plan.is_rotational) };
        self.0.add(info).map_err(|error| error.to_string())
    }

    fn add_for_session(&self, of: &str, session: &str, number: u64) -> Result<String, String> {
        let exports = self.0.snapshot();
        let own = exports.iter().find(|export| export.name == of);
        let own = own.ok_or_else(|| format!("there is no export {of:?}"))?;
        let name = format!("{of}/{session}#{number}");
        let info = ExportInfo { name: name.clone(), is_hidden: true, ..own.clone() };
        self.0.add(info).map_err(|error| error.to_string())?;
        Ok(name)
    }

    fn remove(&self, name: &str) {
        self.0.remove(name);
    }

    fn serve(&self, listener: Listener, arrived: Arrived) -> io::Result<Serving> {
        serve(listener, self.0.clone(), move |socket, negotiated, peer| {
            let door = negotiated.export.name.clone();
            arrived(Arrival { door, peer, front_end: Box::new(NbdConnection::new(socket, negotiated)) });
        })
    }
}
