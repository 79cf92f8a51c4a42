//! Service threads for work that takes processor time: one set for all devices, if a volume needs them.

use crate::config::Configuration;
use crate::outcome::Failure;
use plimsoll_engine::ServiceRequest;
use plimsoll_executor::{Executor, ExecutorConfig};
use std::io;
use std::sync::Arc;

/// Pieces of requests under way at the most; the others wait at their engines. What 64 connections have that use all
/// that they may, of small requests.
const PIECES_MAX: usize = 16_384;
/// Which thread draws which queue does not matter: any seed does.
const SEED: u64 = 1;

/// The service threads, for engines and for callers that ask for their state.
pub(super) type ServiceThreads = Arc<Executor<ServiceRequest>>;

/// Starts the service threads, if any volume is compressed or encrypted.
pub(super) fn start(configuration: &Configuration) -> Result<Option<ServiceThreads>, Failure> {
    let Some(section) = configuration.service_threads() else { return Ok(None) };
    let (threads, rules) = (section.thread_count(), section.rules());
    let executor = Executor::start(ExecutorConfig { threads, rules, requests_max: PIECES_MAX, seed: SEED });
    executor.map(Arc::new).map(Some).map_err(no_thread)
}

/// A thread of the executor's could not be started.
pub(super) fn no_thread(error: io::Error) -> Failure {
    Failure::Failed(format!("executor: cannot start a service thread: {error}"))
}
