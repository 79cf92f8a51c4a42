//! `plimsoll up FILE`: serves a configuration in the foreground, until it is told to stop.
//!
//! There is no forking and no pid file: systemd, a terminal or a script holds the process. What is served is printed on
//! stdout, a line each; the log goes to stderr.

mod administration;
mod cache_advice;
mod caches;
mod daemon;
mod doors;
mod executor;
mod front_ends;
mod layouts;
mod observed;
#[cfg(debug_assertions)]
mod panic_on_purpose;
mod plan;
mod preflight;
mod promises;
mod refusal;
mod remarks;
mod served;
mod steer;
mod stuck_alarm;
mod tenants;
mod unserved;

use crate::arguments::AgentArguments;
use crate::config::{self, Configuration, Defaults, Device, MeasuredProfile, Place, TAGS_OF_SUBMITTERS, load};
use crate::outcome::{self, Failure, Outcome};
use crate::signals::{self, Told};
use administration::Administration;
pub(crate) use caches::{adopt as adopt_cache, forget as forget_cache, make as make_cache, rescue as rescue_cache};
use daemon::Daemon;
use plimsoll_agent::mounts;
use plimsoll_core::{Span, shown};
use plimsoll_engine::GRACE_DEFAULT;
use plimsoll_schedulers::Target;
pub(crate) use preflight::refused;
pub(crate) use remarks::remarks;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tracing::{info, warn};

/// How long a daemon with a failed engine may take to end.
const END_AT_LATEST: Duration = Duration::from_secs(60);

/// Serves the configuration in `file` until SIGTERM, SIGINT or `shutdown` on the control socket.
///
/// # Errors
/// The configuration is wrong, something could not be started (what was started is undone), or stopping left something
/// behind.
pub fn run(file: &Path) -> Outcome {
    serve(load(file, &Defaults::of_this_user())?, true)
}

/// Observes the disk of a mounted file system, until SIGTERM, SIGINT or `shutdown` on the control socket. The
/// configuration has one device, and needs no file.
///
/// # Errors
/// An argument is wrong, or as of [`run`].
pub fn agent(arguments: &AgentArguments) -> Outcome {
    if arguments.wdt {
        return steer::run(arguments);
    }
    serve(agent_configuration(arguments)?, false)
}

fn agent_configuration(arguments: &AgentArguments) -> Result<Configuration, Failure> {
    let AgentArguments { mount, scheduler, tags, profile, run_directory, .. } = arguments;
    let schedulers = plimsoll_schedulers::registry();
    if schedulers.iter().all(|entry| entry.name != scheduler) {
        let allowed = schedulers.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::BadInput(format!("--scheduler: got {scheduler:?}, allowed {allowed}")));
    }
    if let Some((got, allowed)) = plimsoll_schedulers::refused_target(scheduler, Target::Observed, &[]) {
        return Err(Failure::BadInput(format!("--scheduler: got {got}, allowed {allowed}")));
    }
    let disk = mounts::PresentDisk::of(mount).map_err(|error| Failure::BadInput(format!("--mount: {error}")))?;
    let place = disk.mounted.map_or(disk.device, |mounted| mounted.mount_point);
    let name = observed::name_of(&place);
    let mut known = Device::unknown_profile(&name, 0.0);
    if let Some(file) = profile {
        MeasuredProfile::read(file)?.put(&mut known);
    }
    let defaults = match run_directory {
        Some(path) => Defaults::in_directory(std::path::absolute(path)?),
        None => Defaults::of_this_user(),
    };
    let device = Device {
        name,
        emulate: None,
        observe: Some(place),
        is_by_submitter: tags == TAGS_OF_SUBMITTERS,
        scheduler: scheduler.clone(),
        seed: 1,
        profile: known,
        place: Place::default(),
    };
    let (control_socket, notes_directory) = (defaults.control_socket(), defaults.notes_directory());
    let state_directory = defaults.state_directory;
    Ok(Configuration {
        file: format!("agent of {}", mount.display()).into(),
        keys: Default::default(),
        daemon: config::DaemonSection {
            control_socket,
            state_directory,
            notes_directory,
            buffer_bytes: None,
            place: Place::default(),
        },
        listens: config::Listens::new(),
        executor: config::ExecutorSection::default(),
        devices: vec![device],
        pools: Vec::new(),
        caches: Vec::new(),
        volumes: Vec::new(),
    })
}

/// `has_file`: the configuration was read from a file, which SIGHUP has read again.
fn serve(configuration: Configuration, has_file: bool) -> Outcome {
    if let Some(reason) = preflight::refusal(&configuration) {
        return Err(Failure::NotRun(reason));
    }
    if let Some(wrong) = preflight::wrong_files(&configuration).or_else(|| preflight::wrong_mounts(&configuration)) {
        return Err(Failure::BadInput(wrong));
    }
    remarks(&configuration).iter().for_each(|line| warn!("{}", shown(line)));
    preflight::raise_open_files_max();
    let (stop, stopped) = channel();
    let (hurry, reload) = (Hurry::default(), Reload::default());
    listen_for_signals(&hurry, &reload, stop.clone())?;
    let mut daemon = Daemon::start(configuration, stop)?;
    hurry.watch(&daemon);
    reload.watch(&daemon, has_file);
    let mut out = std::io::stdout().lock();
    for line in daemon.served() {
        // A reader that went away does not end the daemon.
        let _ = writeln!(out, "{}", shown(line));
    }
    let _ = writeln!(out, "serving; Ctrl-C or SIGTERM ends it");
    let _ = out.flush();
    // All senders gone cannot be: this thread's daemon holds one.
    let _ = stopped.recv();
    let failures = daemon.failures();
    if !failures.is_empty() {
        end_in_any_case();
        daemon.stop(|| hurry.grace());
        return Err(Failure::EngineFailed(failures.join("\n")));
    }
    info!("stopping; a second signal cuts connections off");
    match daemon.stop(|| hurry.grace()) {
        true => Ok(()),
        false => Err(Failure::Failed("stopped, but not everything could be undone: see the log".into())),
    }
}

/// A wait for a failed engine may never end. So the process ends after [`END_AT_LATEST`], even if threads still wait.
fn end_in_any_case() {
    let watch = || {
        std::thread::park_timeout(END_AT_LATEST);
        tracing::error!("not everything could be undone in time");
        std::process::exit(i32::from(outcome::ENGINE_FAILED));
    };
    if let Err(error) = std::thread::Builder::new().name("end".to_owned()).spawn(watch) {
        warn!("cannot start the thread that limits the time of the end: {error}");
    }
}

/// Cuts connections off.
type Cut = Box<dyn Fn() + Send>;

/// Number of signals to stop, and what a second one cuts off.
#[derive(Clone, Default)]
struct Hurry {
    signals: Arc<AtomicU32>,
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Hurry {
    /// Takes note of what a second signal cuts off.
    fn watch(&self, daemon: &Daemon) {
        let (devices, volumes) = (daemon.devices(), daemon.volumes_without_mounts());
        let cut = move || {
            for (device, volume) in devices.iter().flat_map(|device| volumes.iter().map(move |volume| (device, volume)))
            {
                // A volume is on one of the devices only, and gone once its engine has stopped.
                let _ = device.engine.stop_volume(volume, Span::ZERO);
            }
        };
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(cut));
    }

    /// How long connections may take to end from now on.
    fn grace(&self) -> Span {
        if self.signals.load(Ordering::Relaxed) > 1 { Span::ZERO } else { GRACE_DEFAULT }
    }

    /// A signal came; answers how many there were.
    fn signalled(&self) -> u32 {
        let signals = self.signals.fetch_add(1, Ordering::Relaxed) + 1;
        if signals > 1
            && let Some(cut) = &*self.cut.lock().unwrap_or_else(PoisonError::into_inner)
        {
            cut();
        }
        signals
    }
}

/// What SIGHUP has looked at again, once the daemon serves; never longer than that.
#[derive(Clone, Default)]
struct Reload(Arc<Mutex<Reloaded>>);

#[derive(Default)]
struct Reloaded {
    administration: Weak<Administration>,
    /// Whether a SIGHUP came before the daemon served: the file may have changed since it was read.
    has_missed: bool,
    /// There is a configuration to look at again, or nothing more to wait for.
    is_known: bool,
}

impl Reload {
    fn lock(&self) -> MutexGuard<'_, Reloaded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on SIGHUP has this daemon's configuration looked at again, if it has one.
    fn watch(&self, daemon: &Daemon, has_file: bool) {
        let mut reloaded = self.lock();
        reloaded.is_known = true;
        if has_file {
            reloaded.administration = daemon.administration();
        }
        if std::mem::take(&mut reloaded.has_missed) {
            drop(reloaded);
            self.reload();
        }
    }

    fn reload(&self) {
        let mut reloaded = self.lock();
        if !reloaded.is_known {
            reloaded.has_missed = true;
            return;
        }
        let administration = reloaded.administration.upgrade();
        drop(reloaded);
        match administration {
            Some(administration) => administration.reload(),
            None => info!("SIGHUP: there is no configuration file to read again, and the daemon goes on"),
        }
    }
}

fn listen_for_signals(hurry: &Hurry, reload: &Reload, stop: Sender<()>) -> Outcome {
    let (hurry, reload) = (hurry.clone(), reload.clone());
    signals::listen(move |told| match told {
        Told::HangUp => reload.reload(),
        Told::ToEnd => {
            if hurry.signalled() > 1 {
                warn!("cutting connections off");
            }
            let _ = stop.send(());
        }
    })
}
