//! Says the classes of the server's files: the classifier of `plimsoll classify postgresql` on a thread, and a server
//! like a daemon's.

use super::super::HostError;
use super::super::error::failed;
use super::super::tenants::Tenants;
use super::server::Server;
use plimsoll_agent::ClassServer;
use plimsoll_classes::Client;
use plimsoll_classifiers::postgresql::{self, Classifier};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The thread and the socket. Dropping it ends both.
pub(super) struct Classes {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Dropped when the thread has ended and says no more classes.
    _socket: ClassServer,
}

impl Classes {
    /// Says the classes of all files that are there, and from now on of those that come.
    pub(super) fn say(server: &Server, tenants: &Tenants, mounted: &Path) -> Result<Classes, HostError> {
        let socket = tenants.hear_classes(mounted)?;
        let client = server.client();
        let catalogue = postgresql::Server { psql: client.psql.clone(), options: client.options() };
        let not_classified = |error| failed("classify files", error);
        let classifier = Classifier::new(server.data(), Some(catalogue), Client::new(socket.path()));
        let mut classifier = classifier.map_err(not_classified)?;
        classifier.look().map_err(not_classified)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let thread = std::thread::Builder::new().name("classifier".to_owned());
        let thread = thread.spawn(move || classifier.keep_looking(&seen));
        let thread = thread.map_err(|error| failed("start a thread", error))?;
        Ok(Classes { is_over, thread: Some(thread), _socket: socket })
    }
}

impl Drop for Classes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
