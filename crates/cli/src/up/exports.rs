//! NBD exports: the volumes', and the sessions that applications open on them.
//!
//! Each connection to a volume's export is a session by itself, with what the volume says. Who wants to be promised something
//! opens a session over the control socket first, and connects to the name that it gets: then all its connections share what
//! the session was promised. Such a name is told to nobody else, and a client that names no export does not get it.
//!
//! Whoever opened a session closes it when nobody is connected to it any more. Where that is left to us, because the opener is
//! gone, its export goes first, so that nobody comes any more, then those who are there, then the session.

use super::administration::Refusal;
use crate::control::protocol::Change;
use plimsoll_brick::connection::Peer;
use plimsoll_brick::engine::{self, EngineError, EngineHandle, SessionConfig};
use plimsoll_brick::nbd::export::ExportError;
use plimsoll_brick::nbd::{ExportInfo, NbdConnection, Negotiated, SharedExports};
use plimsoll_core::Allocation;
use plimsoll_core::account::AccountError;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where connections to an export go.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) engine: EngineHandle,
    pub(super) volume: String,
    /// Of each connection.
    pub(super) session: SessionConfig,
    /// The path of the account that it opens in.
    pub(super) account: String,
}

/// The exports of a daemon.
#[derive(Default)]
pub(super) struct Exports {
    list: SharedExports,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By the export's name.
    targets: BTreeMap<String, (ExportInfo, Target)>,
    /// By the session's path: the name of its export.
    sessions: BTreeMap<String, String>,
    opened: u64,
}

impl Exports {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What listeners read.
    pub(super) fn list(&self) -> SharedExports {
        self.list.clone()
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// Another one has the name.
    pub(super) fn add(&self, info: ExportInfo, target: Target) -> Result<(), ExportError> {
        self.list.add(info.clone())?;
        self.known().targets.insert(info.name.clone(), (info, target));
        Ok(())
    }

    /// A client has agreed on an export.
    pub(super) fn connected(&self, socket: OwnedFd, negotiated: Negotiated, peer: &Peer) {
        let Some((_, target)) = self.known().targets.get(&negotiated.export.name).cloned() else { return };
        let front_end = Box::new(NbdConnection::new(socket, negotiated));
        if let Err(error) = target.engine.attach_in(&target.volume, &target.account, target.session, front_end) {
            tracing::warn!("{peer} turned away from volume {}: {error}", target.volume);
        }
    }

    /// Opens a session on the export called `export`; answers with its path and the name to connect to. A number makes both
    /// unique.
    ///
    /// # Errors
    /// Admission refuses it.
    ///
    /// # Panics
    /// If there is no such export.
    pub(super) fn open_session(&self, export: &str, name: &str, change: &Change) -> Result<(String, String), Refusal> {
        let mut known = self.known();
        let (info, target) = known.targets.get(export).cloned().expect("the caller has looked");
        known.opened += 1;
        let name = format!("{name}#{}", known.opened);
        let (path, export) = (format!("{}/{name}", target.account), format!("{export}/{name}"));
        let allocation = change.apply(target.session.allocation);
        target.engine.open_pool(&path, allocation)?;
        let info = ExportInfo { name: export.clone(), is_hidden: true, ..info };
        // Schedulers ask who does the I/O for its priority and its deadlines.
        let Allocation { priority, deadlines, .. } = allocation;
        let of_connection = Allocation { priority, deadlines, ..Allocation::default() };
        let session = SessionConfig { allocation: of_connection, ..target.session.clone() };
        if let Err(error) = self.list.add(info.clone()) {
            target.engine.close_pool(&path)?;
            return Err(Refusal::Invalid(format!("session {name}: {error}")));
        }
        known.targets.insert(export.clone(), (info, Target { account: path.clone(), session, ..target }));
        known.sessions.insert(path.clone(), export.clone());
        Ok((path, export))
    }

    /// Whether a session of that path was opened here.
    pub(super) fn has_session(&self, path: &str) -> bool {
        self.known().sessions.contains_key(path)
    }

    /// Closes a session that nobody is connected to; answers whether there was one of that path.
    ///
    /// # Errors
    /// Somebody is connected to it.
    pub(super) fn close_session(&self, path: &str) -> Result<bool, EngineError> {
        let mut known = self.known();
        let Some(export) = known.sessions.get(path).cloned() else { return Ok(false) };
        known.targets[&export].1.engine.close_pool(path)?;
        self.list.remove(&export);
        known.targets.remove(&export);
        known.sessions.remove(path);
        Ok(true)
    }

    /// Ends a session whose opener is gone: nobody connects to it any more, and whoever is connected is asked to finish and cut
    /// off after [`engine::GRACE_DEFAULT`]. True once it is closed; until then, it has to be called again.
    pub(super) fn end_session(&self, path: &str) -> bool {
        let engine = {
            let known = self.known();
            let Some(export) = known.sessions.get(path) else { return true };
            self.list.remove(export);
            known.targets[export].1.engine.clone()
        };
        // Each time, for those who had agreed on the export before it went.
        let closed = engine.stop_pool(path, engine::GRACE_DEFAULT).and_then(|()| self.close_session(path));
        match closed {
            Err(EngineError::Account(AccountError::Tree { .. })) => return false,
            Err(error) => tracing::warn!("session {path}: {error}"),
            Ok(_) => tracing::info!("session {path} closed: who opened it is gone"),
        }
        true
    }
}
