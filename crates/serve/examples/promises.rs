//! The promises to tenants, kept live: real clients, real sockets, real time, on an emulated 7200 rpm drive.
//!
//! ```text
//! promises [SECONDS] [--json FILE]      60 seconds for each experiment unless said otherwise; about 6 minutes in all
//! ```
//!
//! Every tenant is an NBD client over a Unix socket that keeps so many 4 KiB reads outstanding, at random places of its
//! volume; the volumes lie side by side and cover the drive. Three experiments:
//!
//! 1. **Reserve.** A tenant with a reserve against four greedy ones. What counts is what its client got, second by
//!    second.
//! 2. **Limit.** A tenant with a limit, alone. What counts is what went to the drive: a completion may come late and
//!    make a second look fuller than it was, a dispatch may not.
//! 3. **Alone.** One tenant, under noop and zygaria in turns on the same drive at the same places, because a machine
//!    drifts.
//!
//! The same is tested in virtual time (`crates/schedulers/tests/disk.rs`); the point here is the real path. A machine
//! that is too busy makes the emulated drive answer late. Seconds in which it does don't count, and an experiment goes
//! on until it has enough that do; if that takes too long nothing is shown, and it says `not run`.
//!
//! Exit code: 0 if all holds, 1 if something does not, 3 if everything that was run holds and something was not run.

use plimsoll_core::{Allocation, DeviceProfile, Rate, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::{EmulationStatus, EngineConfig, EngineHandle, EngineStatus, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_protocols::nbd::SharedExports;
use plimsoll_protocols::nbd::wire::{Command, CommandFlags};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::nbd::client::{ClientError, ClientOptions};
use plimsoll_serve::nbd::{Address, Client, Listener, NbdConnection, export_info, serve};
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The drive that the Zygaria paper measured on.
const MODEL: &str = "hdd.deskstar-120";
/// Where its platter stands at first.
const MODEL_SEED: u64 = 1;
/// Seconds of each experiment, unless the command line says otherwise.
const SECONDS_DEFAULT: u64 = 60;
/// Not counted at the start of an experiment, seconds: the tenants' first requests find an idle drive.
const SETTLE_SECONDS: u64 = 2;
/// An experiment takes at most so many times its length to find seconds that count.
const PATIENCE_FACTOR: u64 = 3;
/// How late a reply may be: a hundredth of the seconds in which replies are counted.
const LATENESS_BOUND: Span = Span::from_millis(10);
/// Bytes of each request.
const REQUEST_BYTES: u32 = 4096;
/// Requests that a tenant keeps outstanding, where an experiment does not vary it.
const DEPTH: u32 = 16;

/// The promised tenant's reserve, per cent of the drive's worst case, and how many others there are.
const RESERVE_PERCENT: f64 = 30.0;
const GREEDY_TENANTS: usize = 4;
/// In every whole second it gets at least this part of its reserve.
const RESERVE_PART_MIN: f64 = 0.95;

/// The limited tenant's limit, per cent of the drive's worst case.
const LIMIT_PERCENT: f64 = 40.0;
/// No second goes beyond this part of it, and on average at least this part is used.
const LIMIT_PART_MAX: f64 = 1.02;
const LIMIT_PART_MIN: f64 = 0.97;

/// Depths of a tenant that is alone.
const ALONE_DEPTHS: [u32; 3] = [1, 10, 32];
/// Under zygaria it gets at least this part of what it gets under noop.
const ALONE_PART_MIN: f64 = 0.98;
/// How often the two take turns.
const ALONE_ROUNDS: u64 = 2;
/// A turn is this part of an experiment's length.
const ALONE_PART_OF_SECONDS: u64 = 3;

type Failure = Box<dyn Error + Send + Sync>;

/// Time since the machine started.
fn now() -> Span {
    let now = clock_gettime(ClockId::Monotonic);
    Span::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn sleep_until(at: Span) {
    let left_ns = at.saturating_sub(now()).as_nanos();
    let mut left = Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 };
    while let NanosleepRelativeResult::Interrupted(remaining) = nanosleep(&left) {
        left = remaining;
    }
}

/// Numbers that look random and are the same for the same seed: Marsaglia's xorshift with 64 bits.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // Never 0, which would stay 0; Knuth's multiplier spreads small seeds.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, evenly spread over 0 .. `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// A served drive that is divided among tenants, each with a pool and a volume called `tenantN`.
struct Drive {
    engine: EngineHandle,
    profile: DeviceProfile,
    serving: Option<Serving>,
    folder: tempfile::TempDir,
}

fn tenant_name(number: usize) -> String {
    format!("tenant{number}")
}

impl Drive {
    fn divided_among(allocations: &[Allocation]) -> Result<Drive, Failure> {
        let model = plimsoll_devices::build(MODEL, MODEL_SEED).ok_or("no such model")?;
        let profile = model.profile().clone();
        let config = EngineConfig { lateness_bound: LATENESS_BOUND, ..EngineConfig::emulated(model, "zygaria") };
        let engine = spawn(config)?;
        let exports = SharedExports::new();
        let block_bytes = u64::from(REQUEST_BYTES);
        let size_bytes = profile.capacity_bytes / allocations.len() as u64 / block_bytes * block_bytes;
        for (number, &allocation) in allocations.iter().enumerate() {
            let name = tenant_name(number);
            engine.open_pool(&name, allocation)?;
            let volume = Volume::open(VolumeConfig {
                pool: name.clone(),
                name,
                // Pages that nobody writes take no memory.
                backing: Backing::Memory { size_bytes },
                start_bytes: number as u64 * size_bytes,
                is_read_only: false,
            })?;
            exports.add(export_info(volume.info(), profile.is_rotational))?;
            engine.add_volume(volume)?;
        }
        let folder = tempfile::tempdir()?;
        let listener = Listener::bind(&socket_in(&folder), ListenerOptions::default())?;
        let of_connections = engine.clone();
        let serving = serve(listener, exports, move |socket, negotiated, peer| {
            let volume = negotiated.export.name.clone();
            let session = SessionConfig { name: "nbd".into(), allocation: Allocation::default() };
            let connection = Box::new(NbdConnection::new(socket, negotiated));
            if let Err(error) = of_connections.attach(&volume, session, connection) {
                eprintln!("{peer} was turned away: {error}");
            }
        })?;
        Ok(Drive { engine, profile, serving: Some(serving), folder })
    }

    /// Starts a tenant that keeps `depth` requests outstanding until `is_over`.
    fn start_tenant(&self, number: usize, depth: u32, seed: u64, is_over: &Arc<AtomicBool>) -> Result<Tenant, Failure> {
        let options = ClientOptions { export_name: tenant_name(number), depth_max: depth, ..ClientOptions::default() };
        let (client, is_over) = (Client::connect(&socket_in(&self.folder), &options)?, Arc::clone(is_over));
        Ok(Tenant(std::thread::spawn(move || read_at_random(client, depth, Random::new(seed), &is_over))))
    }

    fn look(&self) -> Result<Look, Failure> {
        let EngineStatus { uptime_ns, accounts, emulation, .. } = self.engine.status()?;
        let path = tenant_name(0);
        let account = accounts.into_iter().find(|account| account.path == path).ok_or("the pool is gone")?;
        // Each request is a run, as it goes to another place.
        let dispatched = account.runs + u64::from(account.in_flight);
        Ok(Look { at: Span::from_nanos(uptime_ns), dispatched, emulation: emulation.unwrap_or_default() })
    }

    /// Looks at the drive every second from `start` on until `seconds` count, or patience ends.
    fn watch(&self, start: Span, seconds: u64) -> Result<Watched, Failure> {
        sleep_until(start);
        let mut before = self.look()?;
        let mut watched = Watched { wanted: seconds, seconds: Vec::new() };
        for second in 1..=PATIENCE_FACTOR * seconds {
            sleep_until(start + Span::from_secs(second));
            let now = self.look()?;
            let elapsed = now.at.saturating_sub(before.at);
            watched.seconds.push(Second {
                dispatched_per_second: (now.dispatched - before.dispatched) as f64 / elapsed.as_secs_f64(),
                is_true: now.emulation.was_true_since(&before.emulation),
            });
            before = now;
            if watched.true_count() == seconds {
                break;
            }
        }
        Ok(watched)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.serving = None;
        let _ = self.engine.shutdown(GRACE_DEFAULT);
    }
}

fn socket_in(folder: &tempfile::TempDir) -> Address {
    Address::Unix(folder.path().join("nbd.sock"))
}

/// A tenant at work; its thread answers with the times of its completions.
struct Tenant(JoinHandle<Result<Vec<Span>, ClientError>>);

impl Tenant {
    fn completions(self) -> Result<Vec<Span>, Failure> {
        Ok(self.0.join().map_err(|_| "a tenant's thread ended early")??)
    }
}

fn read_at_random(
    mut client: Client,
    depth: u32,
    mut random: Random,
    is_over: &AtomicBool,
) -> Result<Vec<Span>, ClientError> {
    let places = client.export().size_bytes / u64::from(REQUEST_BYTES);
    let mut completions = Vec::new();
    let mut submit = |client: &mut Client, tag| {
        let offset = random.below(places) * u64::from(REQUEST_BYTES);
        client.submit(tag, Command::Read, CommandFlags::NONE, offset, REQUEST_BYTES)
    };
    (0..depth).try_for_each(|tag| submit(&mut client, tag))?;
    while client.under_way_count() > 0 {
        let completed = client.receive(|_, _, _| {})?;
        completed.result?;
        completions.push(now());
        if !is_over.load(Ordering::Relaxed) {
            submit(&mut client, completed.tag)?;
        }
    }
    client.disconnect()?;
    Ok(completions)
}

/// What the engine said at one time.
struct Look {
    /// On the engine's clock.
    at: Span,
    /// Requests that the first tenant's account had been given.
    dispatched: u64,
    emulation: EmulationStatus,
}

/// One second of an experiment.
struct Second {
    dispatched_per_second: f64,
    /// The drive was emulated truly: the second counts.
    is_true: bool,
}

/// All seconds of an experiment.
struct Watched {
    /// How many should count.
    wanted: u64,
    seconds: Vec<Second>,
}

impl Watched {
    fn true_count(&self) -> u64 {
        self.seconds.iter().filter(|second| second.is_true).count() as u64
    }

    fn emulation(&self) -> Emulation {
        let counted_seconds = self.true_count();
        let late_seconds = self.seconds.len() as u64 - counted_seconds;
        Emulation { counted_seconds, late_seconds, is_enough: counted_seconds >= self.wanted }
    }

    /// What was given in each second that counts.
    fn dispatched_per_second(&self) -> Vec<f64> {
        self.seconds.iter().filter(|second| second.is_true).map(|second| second.dispatched_per_second).collect()
    }

    /// How many of `times` lie in each second that counts, the first of which began at `start`.
    fn per_second(&self, times: &[Span], start: Span) -> Vec<f64> {
        let mut counts = vec![0.0; self.seconds.len()];
        for time in times.iter().filter(|&&time| time >= start) {
            if let Some(count) = counts.get_mut(time.saturating_sub(start).as_secs_f64() as usize) {
                *count += 1.0;
            }
        }
        let counted = counts.into_iter().zip(&self.seconds).filter(|(_, second)| second.is_true);
        counted.map(|(count, _)| count).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// How true the emulation was.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Emulation {
    counted_seconds: u64,
    late_seconds: u64,
    is_enough: bool,
}

impl Emulation {
    fn and(self, other: Emulation) -> Emulation {
        Emulation {
            counted_seconds: self.counted_seconds + other.counted_seconds,
            late_seconds: self.late_seconds + other.late_seconds,
            is_enough: self.is_enough && other.is_enough,
        }
    }
}

/// A claim and what became of it.
#[derive(Debug, Serialize)]
struct Claim {
    claim: String,
    measured: String,
    target: String,
    /// `None`: nothing was shown, because the machine was too busy.
    holds: Option<bool>,
    #[serde(flatten)]
    emulation: Emulation,
    /// What was measured, second by second or turn by turn, runs per second.
    runs_per_second: Vec<f64>,
}

impl Claim {
    fn new(emulation: Emulation, runs_per_second: &[f64], texts: [String; 3], holds: bool) -> Claim {
        let [claim, measured, target] = texts;
        let holds = emulation.is_enough.then_some(holds);
        Claim { claim, measured, target, holds, emulation, runs_per_second: runs_per_second.to_vec() }
    }

    fn verdict(&self) -> String {
        let Emulation { counted_seconds, late_seconds, .. } = self.emulation;
        let seconds = format!("{counted_seconds} s counted, {late_seconds} s the drive was late");
        match self.holds {
            Some(true) => format!("holds ({seconds})"),
            Some(false) => format!("DOES NOT HOLD ({seconds})"),
            None => format!("not run: the machine was too busy ({seconds})"),
        }
    }
}

/// A reserve against greedy tenants.
fn reserve(seconds: u64) -> Result<Vec<Claim>, Failure> {
    let mut allocations = vec![Allocation::default(); GREEDY_TENANTS + 1];
    allocations[0].reserve = Rate::DevicePercent(RESERVE_PERCENT);
    let drive = Drive::divided_among(&allocations)?;
    let promised = allocations[0].reserve.runs_per_second(drive.profile.worst_case_runs_per_second);
    let (start, is_over) = (now() + Span::from_secs(SETTLE_SECONDS), Arc::default());
    let tenants = (0..allocations.len()).map(|number| drive.start_tenant(number, DEPTH, number as u64 + 1, &is_over));
    let tenants = tenants.collect::<Result<Vec<_>, _>>()?;
    let watched = drive.watch(start, seconds)?;
    is_over.store(true, Ordering::Relaxed);
    let rates = tenants.into_iter().map(|tenant| Ok(watched.per_second(&tenant.completions()?, start)));
    let rates = rates.collect::<Result<Vec<_>, Failure>>()?;
    let (own, others) = (&rates[0], rates[1..].iter().map(|rates| mean(rates)).sum::<f64>());
    let due = RESERVE_PART_MIN * promised;
    let texts = [
        format!("a reserve of {RESERVE_PERCENT}% ({promised:.1} runs/s) holds against {GREEDY_TENANTS} greedy tenants"),
        format!("least {:.0}, mean {:.1} (others {others:.1})", least(own), mean(own)),
        format!(">= {due:.1} in every second"),
    ];
    Ok(vec![Claim::new(watched.emulation(), own, texts, least(own) >= due)])
}

/// A limit, without another tenant.
fn limit(seconds: u64) -> Result<Vec<Claim>, Failure> {
    let limit = Rate::DevicePercent(LIMIT_PERCENT);
    let drive = Drive::divided_among(&[Allocation { limit: Some(limit), ..Allocation::default() }])?;
    let allowed = limit.runs_per_second(drive.profile.worst_case_runs_per_second);
    let (start, is_over) = (now() + Span::from_secs(SETTLE_SECONDS), Arc::default());
    let tenant = drive.start_tenant(0, DEPTH, 1, &is_over)?;
    let watched = drive.watch(start, seconds)?;
    is_over.store(true, Ordering::Relaxed);
    tenant.completions()?;
    let (emulation, rates) = (watched.emulation(), watched.dispatched_per_second());
    let (at_most, at_least) = (LIMIT_PART_MAX * allowed, LIMIT_PART_MIN * allowed);
    let kept = [
        format!("a limit of {LIMIT_PERCENT}% ({allowed:.1} runs/s) is kept"),
        format!("most {:.1}", most(&rates)),
        format!("<= {at_most:.1} in every second"),
    ];
    let used = ["and used".into(), format!("mean {:.1}", mean(&rates)), format!(">= {at_least:.1} on average")];
    Ok(vec![
        Claim::new(emulation, &rates, kept, most(&rates) <= at_most),
        Claim::new(emulation, &rates, used, mean(&rates) >= at_least),
    ])
}

/// One tenant at one depth, under both schedulers in turns.
fn alone(depth: u32, seconds: u64) -> Result<Claim, Failure> {
    let drive = Drive::divided_among(&[Allocation::default()])?;
    let (mut rates, mut emulation) = (Vec::new(), Emulation { is_enough: true, ..Emulation::default() });
    for round in 1..=ALONE_ROUNDS {
        for scheduler in ["noop", "zygaria"] {
            drive.engine.switch_scheduler(scheduler)?;
            let (start, is_over) = (now() + Span::from_secs(SETTLE_SECONDS), Arc::default());
            let tenant = drive.start_tenant(0, depth, round, &is_over)?;
            let watched = drive.watch(start, seconds)?;
            is_over.store(true, Ordering::Relaxed);
            rates.push(mean(&watched.per_second(&tenant.completions()?, start)));
            emulation = emulation.and(watched.emulation());
        }
    }
    let turns_from = |first: usize| rates.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
    let (noop, zygaria) = (mean(&turns_from(0)), mean(&turns_from(1)));
    let texts = [
        format!("one tenant alone at depth {depth} has the whole drive"),
        format!("{:.3} of noop ({zygaria:.1} against {noop:.1})", zygaria / noop),
        format!(">= {ALONE_PART_MIN} of noop"),
    ];
    Ok(Claim::new(emulation, &rates, texts, zygaria >= ALONE_PART_MIN * noop))
}

fn print(claims: &[Claim]) {
    const HEADER: [&str; 4] = ["claim", "measured (runs/s)", "target", "verdict"];
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(claims.iter().map(|one| [one.claim.clone(), one.measured.clone(), one.target.clone(), one.verdict()]));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [first, second, third] = [0, 1, 2].map(width);
    for [claim, measured, target, verdict] in &rows {
        println!("{claim:first$}  {measured:second$}  {target:third$}  {verdict}");
    }
}

/// Seconds of each experiment, and where JSON goes.
fn arguments() -> Result<(u64, Option<String>), Failure> {
    const USAGE: &str = "usage: promises [SECONDS, at least 3] [--json FILE]";
    let (mut seconds, mut json) = (SECONDS_DEFAULT, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = Some(words.next().ok_or(USAGE)?),
            _ => seconds = word.parse().ok().filter(|&seconds| seconds >= ALONE_PART_OF_SECONDS).ok_or(USAGE)?,
        }
    }
    Ok((seconds, json))
}

fn main() -> Result<ExitCode, Failure> {
    let (seconds, json) = arguments()?;
    let mut claims = reserve(seconds)?;
    claims.extend(limit(seconds)?);
    for depth in ALONE_DEPTHS {
        claims.push(alone(depth, seconds / ALONE_PART_OF_SECONDS)?);
    }
    print(&claims);
    if let Some(file) = json {
        std::fs::write(file, serde_json::to_vec_pretty(&claims)?)?;
    }
    Ok(if claims.iter().any(|claim| claim.holds == Some(false)) {
        ExitCode::from(1)
    } else if claims.iter().any(|claim| claim.holds.is_none()) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    })
}
