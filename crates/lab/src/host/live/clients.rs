//! Tenants as clients of the engine: block requests over NBD, on a volume as large as the device.
//!
//! ```text
//!   a thread an account: its tenants' requests  ->  one NBD connection  ->  engine: a session of the account's own
//! ```
//!
//! There is no file system and nothing to prepare. Pages of the volume that were never written take no memory. So the
//! volume is as large as the device, and requests go where the scenario says. Requests come as on the simulator, from
//! the same places with the same seed; what the two hosts do not share is time. Tenants of one account share its
//! connection, because that is what a session is; one that is over before it could ask has none.

use super::crew::{HEAD_START, Load, Log};
use super::disk::{Disk, VOLUME};
use super::error::failed;
use super::runner::Done;
use super::tally::{Tallies, Tally};
use super::{HostError, clock};
use crate::host::requests::Requests;
use crate::scenario::{AccountSetup, Arrivals, Setup, TenantSetup};
use plimsoll_core::{Span, Time};
use plimsoll_engine::{EngineHandle, SessionConfig};
use plimsoll_protocols::nbd::{Command, CommandFlags, ExportInfo, SharedExports};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::nbd::client::{ClientError, ClientOptions};
use plimsoll_serve::nbd::{Address, Client, Listener, NbdConnection, export_info};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

/// Most outstanding requests of a tenant with free arrivals. More wait, and go as soon as they can.
const OUTSTANDING_MAX: u32 = 4096;
/// A tenant that stops so soon after its start asks for nothing: scenarios leave one out in that way.
const ACTIVE_MIN: Span = Span::from_millis(1);
/// A client waits so long for an answer: a session without a reserve may wait long.
const PATIENCE: Span = Span::from_secs(600);
/// Bytes that are written are this.
const FILL: u8 = 0xA5;

/// Why tenants cannot be run here, if so.
pub(super) fn why_not(setup: &Setup) -> Option<String> {
    if !setup.processes.is_empty() {
        return Some("a scenario has processes or tenants".to_owned());
    }
    if setup.machine.cache.is_some() {
        return Some("a cache can only be on a mounted device, because its blocks have classes".to_owned());
    }
    if let Some(scheduler) = setup.machine.kernel_scheduler {
        return Some(format!(
            "tenants are clients of the engine, and the kernel's {scheduler} is above a block device"
        ));
    }
    let threads = setup.tenants.iter().find(|tenant| tenant.threads > 0)?;
    Some(format!("{} has threads on NUMA nodes, which are modelled on the simulator only", threads.name))
}

/// Whether a tenant comes later or goes earlier than the run.
pub(super) fn are_timed(setup: &Setup) -> bool {
    let asking = setup.tenants.iter().filter(|tenant| asks(tenant));
    asking.into_iter().any(|tenant| tenant.start > Span::ZERO || tenant.stop < setup.duration)
}

fn asks(tenant: &TenantSetup) -> bool {
    tenant.stop.saturating_sub(tenant.start) > ACTIVE_MIN
}

/// All clients of a run.
pub(super) struct Clients {
    connections: Vec<TenantSession>,
    threads: Vec<JoinHandle<Result<BTreeMap<String, Done>, String>>>,
    is_over: Arc<AtomicBool>,
    has_failed: Arc<AtomicBool>,
    _serving: Serving,
}

/// A session, and the tenants that are in it.
struct TenantSession {
    client: Client,
    streams: Vec<Stream>,
    /// Requests that are not outstanding: when each may be sent, and its tag.
    waiting: BTreeSet<(Time, u32)>,
    /// By tag.
    slots: Vec<Slot>,
}

/// One of the requests that a tenant may have outstanding.
struct Slot {
    stream: usize,
    /// When it was sent, whether it reads, and its bytes.
    sent: (Time, bool, u64),
}

/// One tenant.
struct Stream {
    setup: TenantSetup,
    requests: Requests,
    /// Requests that were sent, or have a slot that waits for them.
    sent: u64,
    tally: Tally,
}

impl Clients {
    /// Opens the accounts on the device of `disk`, parents first, and connects those with requests to send.
    pub(super) fn connect(disk: &Disk, setup: &Setup, seed: u64) -> Result<Clients, HostError> {
        let (engine, volume) = (disk.engine(), disk.volume());
        let exports = SharedExports::new();
        let mut sessions: BTreeMap<String, (String, SessionConfig)> = BTreeMap::new();
        let mut paths: BTreeMap<&str, String> = BTreeMap::new();
        for AccountSetup { name, parent, is_pool, allocation } in &setup.accounts {
            let parent = parent.as_ref().map_or("", |parent| paths[parent.as_str()].as_str());
            if *is_pool {
                let path = if parent.is_empty() { name.clone() } else { format!("{parent}/{name}") };
                engine.open_pool(&path, *allocation).map_err(|error| failed(name, error))?;
                paths.insert(name, path);
            } else {
                let session = SessionConfig { name: name.clone(), allocation: *allocation };
                sessions.insert(name.clone(), (parent.to_owned(), session));
                let export = ExportInfo { name: name.clone(), ..export_info(volume, false) };
                exports.add(export).map_err(|error| failed(name, error))?;
            }
        }
        let (serving, attached) = serve(engine.clone(), disk, exports, sessions)?;
        let mut connections: BTreeMap<&str, Vec<Stream>> = BTreeMap::new();
        for (number, tenant) in setup.tenants.iter().enumerate().filter(|(_, tenant)| asks(tenant)) {
            let requests = Requests::new(tenant, number, volume.size_bytes, seed)?;
            let stream = Stream { setup: tenant.clone(), requests, sent: 0, tally: Tally::default() };
            connections.entry(&tenant.account).or_default().push(stream);
        }
        let connect = |(account, streams)| TenantSession::open(account, streams, serving.address(), &attached);
        let connections = connections.into_iter().map(connect).collect::<Result<_, _>>()?;
        let (is_over, has_failed) = (Arc::default(), Arc::default());
        Ok(Clients { connections, threads: Vec::new(), is_over, has_failed, _serving: serving })
    }
}

/// Serves each account's export with a session of its own; says of each connection whether it was let in.
fn serve(
    engine: EngineHandle,
    disk: &Disk,
    exports: SharedExports,
    sessions: BTreeMap<String, (String, SessionConfig)>,
) -> Result<(Serving, Receiver<Result<(), String>>), HostError> {
    let (said, attached) = channel();
    let address = Address::Unix(disk.folder().with_file_name("clients.sock"));
    let listener = Listener::bind(&address, ListenerOptions::default());
    let listener = listener.map_err(|error| failed("listen for clients", error))?;
    let serving = plimsoll_serve::nbd::serve(listener, exports, move |socket, negotiated, _| {
        let (pool, session) = sessions[&negotiated.export.name].clone();
        let front_end = Box::new(NbdConnection::new(socket, negotiated));
        let let_in = engine.attach_in(VOLUME, &pool, session, front_end);
        let _ = said.send(let_in.map(drop).map_err(|error| error.to_string()));
    });
    Ok((serving.map_err(|error| failed("listen for clients", error))?, attached))
}

impl Load for Clients {
    fn start(&mut self) -> Result<Time, HostError> {
        let origin = clock::now() + HEAD_START;
        for connection in self.connections.drain(..) {
            let (is_over, has_failed) = (self.is_over.clone(), self.has_failed.clone());
            let thread = std::thread::Builder::new().name("client".to_owned()).spawn(move || {
                let done = connection.run(origin, &is_over);
                has_failed.fetch_or(done.is_err(), Ordering::Relaxed);
                done
            });
            self.threads.push(thread.map_err(|error| failed("start a thread", error))?);
        }
        Ok(origin)
    }

    fn is_over(&mut self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn finish(mut self) -> Result<Log, HostError> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut log = Log::default();
        for thread in self.threads.drain(..) {
            let done = thread.join().unwrap_or_else(|_| Err("its thread panicked".to_owned()));
            let done = done.map_err(|error| failed("a client", error))?;
            done.into_iter().for_each(|(name, done)| log.add(&name, done));
        }
        Ok(log)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl TenantSession {
    fn open(
        account: &str,
        streams: Vec<Stream>,
        address: &Address,
        attached: &Receiver<Result<(), String>>,
    ) -> Result<TenantSession, HostError> {
        let mut slots = Vec::new();
        for (stream, Stream { setup, .. }) in streams.iter().enumerate() {
            let depth = match setup.arrivals {
                Arrivals::Closed { depth, .. } => depth,
                Arrivals::Open { outstanding_max, .. } => outstanding_max.unwrap_or(OUTSTANDING_MAX),
            };
            slots.extend((0..depth).map(|_| Slot { stream, sent: (Time::ZERO, true, 0) }));
        }
        let depth_max = slots.len() as u32;
        let options =
            ClientOptions { export_name: account.to_owned(), depth_max, timeout: PATIENCE, ..Default::default() };
        let client = Client::connect(address, &options).map_err(|error| failed(account, error))?;
        let is_let_in = attached.recv().map_err(|error| failed(account, error))?;
        is_let_in.map_err(|error| failed(account, error))?;
        Ok(TenantSession { client, streams, waiting: BTreeSet::new(), slots })
    }

    /// Sends and receives until the run is over.
    fn run(mut self, origin: Time, is_over: &AtomicBool) -> Result<BTreeMap<String, Done>, String> {
        for tag in 0..self.slots.len() as u32 {
            self.wait_for_turn(origin, Time::ZERO, tag);
        }
        while !is_over.load(Ordering::Relaxed) {
            let done = self.turn(origin);
            done.map_err(|error| format!("{}: {error}", self.streams[0].setup.account))?;
        }
        let mut processor_ns = clock::thread_processor_time().as_nanos();
        let done = self.streams.into_iter().map(|Stream { setup, tally, .. }| {
            let tallies = Tallies { all: tally, ..Tallies::default() };
            (setup.name, Done { tallies, processor_ns: std::mem::take(&mut processor_ns) })
        });
        Ok(done.collect())
    }

    /// Sends due requests, and waits for an answer or for the next due time.
    fn turn(&mut self, origin: Time) -> Result<(), ClientError> {
        let mut now = clock::now();
        while let Some(&(at, tag)) = self.waiting.first().filter(|&&(at, _)| at <= now) {
            self.waiting.remove(&(at, tag));
            self.send(origin, tag)?;
            now = clock::now();
        }
        let next = self.waiting.first().map_or(Time::MAX, |&(at, _)| at);
        if !self.client.wait(next.min(now + clock::SLICE).since(now))? {
            return Ok(());
        }
        let completed = self.client.receive(|_, _, _| {})?;
        completed.result?;
        now = clock::now();
        let Slot { stream, sent: (sent_at, is_read, bytes) } = self.slots[completed.tag as usize];
        let stream = &mut self.streams[stream];
        let kind = if is_read { "read" } else { "write" };
        stream.tally.record(kind, now.since(origin), now.since(sent_at), bytes);
        self.wait_for_turn(origin, now, completed.tag);
        Ok(())
    }

    /// The slot is free since `now`: from when on may it be used again?
    fn wait_for_turn(&mut self, origin: Time, now: Time, tag: u32) {
        let stream = &mut self.streams[self.slots[tag as usize].stream];
        let begin = origin + stream.setup.start;
        let at = match stream.setup.arrivals {
            Arrivals::Closed { think, .. } => (now + think).max(begin),
            Arrivals::Open { per_second, .. } => begin + Span::from_secs_f64(stream.sent as f64 / per_second),
        };
        stream.sent += 1;
        self.waiting.insert((at, tag));
    }

    fn send(&mut self, origin: Time, tag: u32) -> Result<(), ClientError> {
        let slot = &mut self.slots[tag as usize];
        let stream = &mut self.streams[slot.stream];
        let now = clock::now();
        if now.since(origin) >= stream.setup.stop {
            return Ok(());
        }
        let (offset, bytes, is_read) = stream.requests.next();
        slot.sent = (now, is_read, bytes);
        if is_read {
            return self.client.submit(tag, Command::Read, CommandFlags::NONE, offset, bytes as u32);
        }
        self.client.submit_write(tag, CommandFlags::NONE, offset, &vec![FILL; bytes as usize])
    }
}
