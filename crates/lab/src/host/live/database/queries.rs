//! Queries, one after the other, as the measured load: each is a unit, and a source of its own beside all of them.

use super::super::crew::{HEAD_START, Load, Log};
use super::super::error::failed;
use super::super::runner::Done;
use super::super::tally::{Tallies, Tally};
use super::super::{HostError, clock};
use super::server::Client;
use crate::scenario::DatabaseSetup;
use crate::tpch::sql;
use plimsoll_core::{Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// When a query was answered, since the first began.
type Answered = (u64, Span);

/// The queries. Dropping it ends whatever is asked.
pub(super) struct Queries<'run> {
    setup: &'run DatabaseSetup,
    client: Client,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Answered>, HostError>>>,
}

impl<'run> Queries<'run> {
    /// Those of `setup`, not asked yet.
    pub(super) fn new(setup: &'run DatabaseSetup, client: Client) -> Queries<'run> {
        Queries { setup, client, stop: Arc::default(), thread: None }
    }

    /// Ends whatever is asked; answers with what was answered until then.
    fn end(&mut self) -> Result<Vec<Answered>, HostError> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Vec::new()) };
        thread.join().unwrap_or_else(|_| Err(failed(&self.setup.name, "its thread has panicked")))
    }
}

fn ask(client: &Client, queries: &[u64], origin: Time, stop: &AtomicBool) -> Result<Vec<Answered>, HostError> {
    clock::sleep_until(origin);
    let mut answered = Vec::new();
    for &number in queries {
        match client.say(sql::query(number), stop) {
            Ok(done) => answered.push((number, done.since(origin))),
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(answered)
}

impl Load for Queries<'_> {
    fn start(&mut self) -> Result<Time, HostError> {
        let origin = clock::now() + HEAD_START;
        let (client, queries, stop) = (self.client.clone(), self.setup.queries.clone(), self.stop.clone());
        let thread = std::thread::Builder::new().name("queries".to_owned());
        let thread = thread.spawn(move || ask(&client, &queries, origin, &stop));
        self.thread = Some(thread.map_err(|error| failed("start a thread", error))?);
        Ok(origin)
    }

    fn is_over(&mut self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn finish(mut self) -> Result<Log, HostError> {
        let answered = self.end()?;
        let (mut log, mut counted, mut since) = (Log::default(), Tallies::default(), Span::ZERO);
        for &(number, at) in &answered {
            let mut alone = Tally::default();
            alone.ended = Some(at);
            for tally in [&mut alone, &mut counted.all] {
                tally.record("unit", at, at - since, 0);
            }
            counted.sized.insert(self.setup.query_source(number), alone);
            since = at;
        }
        // Those that were not answered in time have not ended, nor have all of them.
        counted.all.ended = (answered.len() == self.setup.queries.len()).then_some(since);
        log.add(&self.setup.name, Done { tallies: counted, processor_ns: 0 });
        Ok(log)
    }
}

impl Drop for Queries<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
