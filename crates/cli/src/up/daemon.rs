//! Everything that runs while the daemon serves, in the order of start and end.
//!
//! ```text
//!   start:  check  ->  lock, recover  ->  bind  ->  open volumes  ->  engines  ->  mounts  ->  front ends, control answer
//!   stop:   control, front ends hear no more  ->  connections end  ->  unmount  ->  engines drain, volumes durable  ->  unlock
//! ```
//!
//! Steps that can fail without leaving a trace come first. A failure further on undoes the earlier steps, in the same
//! way as a stop: a half-started daemon is a daemon with less in it.

use super::administration::Administration;
use super::doors::OpenDoors;
use super::executor::ServiceThreads;
use super::front_ends;
use super::layouts::Layouts;
use super::served::{ServedDevice, ServedDisk};
use super::stuck_alarm::StuckAlarm;
use super::tenants::{Tenants, mount_with_station, no_station};
use super::{caches, executor, observed, plan};
use crate::config::{Configuration, Mount, Volume as VolumeSection};
use crate::control::server::{ControlServer, ControlSocket};
use crate::outcome::Failure;
use crate::signals;
use plimsoll_agent::ClassServer;
use plimsoll_agent::mounts;
use plimsoll_core::Span;
use plimsoll_engine as engine;
use plimsoll_engine::backend::{Volume, VolumeInfo};
use plimsoll_engine::cache::FoundCache;
use plimsoll_engine::{BufferMemory, EngineConfig, EngineHandle, SessionConfig};
use plimsoll_gates::directory::make_state;
use plimsoll_serve::attach::{self, AttachError, Attachment, FileSystemPlan, StateDirectory};
use plimsoll_serve::connection::Serving;
use plimsoll_serve::fuse::FuseConnection;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tracing::{error, info, warn};

/// A running daemon. Dropping it stops it.
pub(super) struct Daemon {
    configuration: Configuration,
    control: Option<ControlServer>,
    /// Lives as long as the control socket is heard.
    administration: Weak<Administration>,
    listeners: Vec<Serving>,
    doors: Arc<OpenDoors>,
    attachments: Vec<Attachment>,
    /// Dropped before the devices beneath are detached: no process on a mount that goes away may be held.
    tenants: Tenants,
    /// Dropped before the mounts with the files it knows.
    classes: Option<ClassServer>,
    layouts: Option<Layouts>,
    devices: Vec<ServedDevice>,
    executor: Option<ServiceThreads>,
    _stuck_alarm: Option<StuckAlarm>,
    state: Arc<StateDirectory>,
    /// What is served, a line each.
    served: Vec<String>,
    failures: Failures,
}

/// Engines that ended before they were told to, each with the reason.
#[derive(Clone)]
struct Failures {
    list: Arc<Mutex<Vec<String>>>,
    stop: Sender<()>,
}

impl Failures {
    /// Ends the daemon when this engine fails: its volumes would answer errors for ever.
    fn watch(&self, device: &str, engine: &EngineHandle) {
        let (failures, device) = (self.clone(), device.to_owned());
        engine.when_it_fails(move |why| {
            let line = format!("device {device}: its engine has failed: {why}");
            error!("{line}; the daemon ends");
            failures.list().push(line);
            // If the receiver is gone, the daemon ends already.
            let _ = failures.stop.send(());
        });
    }

    fn list(&self) -> MutexGuard<'_, Vec<String>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl Daemon {
    /// Starts everything that `configuration` asks for. `stop` is told when a client of the control socket wants it to
    /// end.
    ///
    /// # Errors
    /// The first failure; all earlier steps are undone.
    pub(super) fn start(configuration: Configuration, stop: Sender<()>) -> Result<Daemon, Failure> {
        let state_directory = &configuration.daemon.state_directory;
        make_state(state_directory).map_err(failed)?;
        let (state, recovered) = attach::recover(state_directory).map_err(failed)?;
        for step in &recovered {
            match step.is_left_over {
                true => warn!("left by a predecessor: {step}"),
                false => info!("recovered from a predecessor: {step}"),
            }
        }
        let mut daemon = Daemon {
            configuration,
            control: None,
            administration: Weak::new(),
            listeners: Vec::new(),
            doors: Arc::default(),
            attachments: Vec::new(),
            tenants: Tenants::default(),
            classes: None,
            layouts: None,
            devices: Vec::new(),
            executor: None,
            _stuck_alarm: None,
            state,
            served: Vec::new(),
            failures: Failures { list: Arc::default(), stop: stop.clone() },
        };
        let control = ControlSocket::bind(&daemon.configuration.daemon.control_socket).map_err(failed)?;
        let bound = front_ends::bind(&daemon.configuration)?;
        let volumes = daemon.open_volumes()?;
        let infos: Vec<VolumeInfo> = volumes.iter().map(|volume| volume.info().clone()).collect();
        let caches = caches::find(&daemon.configuration, &volumes)?;
        daemon.start_engines(volumes, caches)?;
        let disks = daemon.mount_all(&infos)?;
        daemon.hear_classes();
        daemon.observe_all()?;
        daemon.layouts = Some(daemon.read_layouts(&infos)?);
        daemon.serve(bound, &infos)?;
        let administration = Administration::new(
            daemon.configuration.clone(),
            daemon.devices.clone(),
            daemon.executor.clone(),
            disks,
            daemon.tenants.clone(),
            daemon.doors.clone(),
            stop,
        );
        let administration = Arc::new(administration);
        daemon.administration = Arc::downgrade(&administration);
        daemon.control = Some(control.serve(move |request| administration.answer(request))?);
        daemon.served.push(format!("control on unix:{}", daemon.configuration.daemon.control_socket.display()));
        Ok(daemon)
    }

    /// What is served, a line each.
    pub(super) fn served(&self) -> &[String] {
        &self.served
    }

    /// Opens every volume's content, or says everything that is wrong with all of them.
    fn open_volumes(&self) -> Result<Vec<Volume>, Failure> {
        let (mut volumes, mut problems) = (Vec::new(), Vec::new());
        for section in &self.configuration.volumes {
            match plan::open(&self.configuration, section) {
                Ok(volume) => volumes.push(volume),
                Err(problem) => problems.push(problem),
            }
        }
        match Failure::of_all(problems) {
            None => Ok(volumes),
            Some(failure) => Err(failure),
        }
    }

    fn start_engines(&mut self, volumes: Vec<Volume>, caches: Vec<Option<FoundCache>>) -> Result<(), Failure> {
        self.executor = executor::start(&self.configuration)?;
        self._stuck_alarm = self.executor.as_ref().map(StuckAlarm::start).transpose()?;
        self.served.extend(self.configuration.service_threads().map(|section| format!("executor: {section}")));
        let buffers = self.configuration.daemon.buffer_bytes.map_or_else(BufferMemory::default, BufferMemory::new);
        for device in &self.configuration.devices {
            let mut config = EngineConfig { executor: self.executor.clone(), ..plan::engine(device, &buffers) };
            if let Some(path) = &device.observe {
                config.profile = observed::profile(device, &mounts::PresentDisk::of(path).map_err(failed)?);
            }
            let profile = config.profile.clone();
            let engine = engine::spawn(config).map_err(failed)?;
            self.failures.watch(&device.name, &engine);
            self.devices.push(ServedDevice { profile, engine });
            let like = device.emulate.as_ref().map_or(String::new(), |model| format!(", behaves like {model}"));
            self.served.push(format!("device {}: scheduler {}{like}", device.name, device.scheduler));
        }
        let (configuration, mut lines) = (&self.configuration, Vec::new());
        for pool in &configuration.pools {
            let path = configuration.pool_path(&pool.name);
            self.engine(&pool.device).open_pool(&path, pool.allocation).map_err(failed)?;
        }
        for ((section, volume), cache) in configuration.volumes.iter().zip(volumes).zip(caches) {
            let engine = self.engine(&section.device);
            let add = engine.open_pool(&configuration.volume_path(section), section.allocation);
            add.and_then(|()| engine.add_volume(volume)).map_err(failed)?;
            engine.set_read_ahead(&section.name, section.read_ahead).map_err(failed)?;
            if let (Some(found), Some(cache)) =
                (cache, section.cache.as_deref().and_then(|name| configuration.cache(name)))
            {
                lines.push(caches::found_line(&section.name, cache, &found.report));
                engine.attach_cache(&section.name, found).map_err(failed)?;
            }
            #[cfg(debug_assertions)]
            super::panic_on_purpose::plant(&section.name, engine).map_err(failed)?;
        }
        self.served.extend(lines);
        Ok(())
    }

    fn engine(&self, device: &str) -> &EngineHandle {
        let served = self.devices.iter().find(|served| served.profile.name == device);
        &served.expect("every device has an engine before anything is put on it").engine
    }

    fn mount_all(&mut self, infos: &[VolumeInfo]) -> Result<Vec<ServedDisk>, Failure> {
        let sections = self.configuration.volumes.clone();
        let mounted = sections.iter().zip(infos).filter_map(|(section, info)| {
            let mount = section.mount.as_ref()?;
            Some(self.mount(section, info, mount))
        });
        mounted.collect()
    }

    /// Classes are hints: without them everything else is served.
    fn hear_classes(&mut self) {
        match self.tenants.hear_classes(&self.configuration.daemon.state_directory) {
            Ok(Some(server)) => {
                self.served.push(format!("classes of files at {}", server.path().display()));
                self.classes = Some(server);
            }
            Ok(None) => {}
            Err(error) => warn!("applications cannot say the classes of their files: {error}"),
        }
    }

    fn read_layouts(&self, infos: &[VolumeInfo]) -> Result<Layouts, Failure> {
        let engine = |section: &VolumeSection| self.engine(&section.device).clone();
        Layouts::start(&self.configuration, infos, engine).map_err(failed)
    }

    /// Starts stations above the observed disks.
    fn observe_all(&mut self) -> Result<(), Failure> {
        for device in &self.configuration.devices {
            let Some(path) = &device.observe else { continue };
            let disk = mounts::PresentDisk::of(path).map_err(failed)?;
            let station = observed::observe(self.engine(&device.name), &self.configuration, device, &disk);
            let (station, said) =
                station.map_err(|error| no_station(error, |error| format!("{}: {error}", path.display())))?;
            self.served.extend(said);
            self.tenants.add(station);
        }
        Ok(())
    }

    fn mount(&mut self, section: &VolumeSection, info: &VolumeInfo, mount: &Mount) -> Result<ServedDisk, Failure> {
        let file_system = mount.file_system.as_ref();
        let wrong =
            |error: AttachError, daemon: &Daemon| failed(plan::at(&daemon.configuration, section, "mount", error));
        let plan = plan::attachment(info, file_system.cloned());
        let (mut attachment, connection) =
            Attachment::mount_disk(&self.state, plan).map_err(|error| wrong(error, self))?;
        attachment.has_data_in(plan::data_places(section), signals::is_told_to_end);
        // From here on a stop detaches it.
        self.attachments.push(attachment);
        let session =
            SessionConfig { name: "mount".into(), allocation: self.configuration.session_allocation(section) };
        let front_end = Box::new(FuseConnection::new(connection));
        let engine = self.engine(&section.device).clone();
        engine.attach(&section.name, session, front_end).map_err(failed)?;
        let attachment = self.attachments.last_mut().expect("pushed above");
        let mut listeners = None;
        let built = match file_system.filter(|_| mount.takes_tenants) {
            None => {
                let built = attachment.build();
                built.map_err(|error| failed(plan::at(&self.configuration, section, "mount", error)))
            }
            Some(FileSystemPlan { target, .. }) => {
                let station = mount_with_station(attachment, &engine, &self.configuration, section, target);
                station.map(|station| {
                    listeners = Some(station.listeners());
                    self.tenants.add(station);
                })
            }
        };
        let block_device = attachment.device_path();
        built?;
        let device = block_device.as_ref().map_or(String::new(), |device| device.display().to_string());
        self.served.push(match file_system {
            Some(FileSystemPlan { kind, target, .. }) => {
                format!("volume {}: {kind} on {} ({device})", section.name, target.display())
            }
            None => format!("volume {}: block device {device}", section.name),
        });
        if let Some(listeners) = listeners {
            self.served.push(format!("volume {}: tenants join, containers at {}", section.name, listeners.display()));
        }
        Ok(ServedDisk { volume: section.name.clone(), block_device })
    }

    fn serve(&mut self, bound: Vec<front_ends::Bound>, infos: &[VolumeInfo]) -> Result<(), Failure> {
        let engine = |device: &str| self.engine(device).clone();
        let (listeners, served) = front_ends::serve(&self.configuration, &self.doors, bound, infos, engine)?;
        self.listeners.extend(listeners);
        self.served.extend(served);
        Ok(())
    }

    /// Stops in order, giving connections `grace` to hear the answers to what they asked. False if something could not
    /// be undone or made durable; the log says what.
    pub(super) fn stop(&mut self, grace: impl Fn() -> Span) -> bool {
        let mut is_clean = true;
        // The control socket ends when its clients have their answers.
        for device in &self.devices {
            let _ = device.engine.keep_caches();
        }
        self.control = None;
        self.classes = None;
        self.layouts = None;
        self.tenants = Tenants::default();
        self.listeners.clear();
        // Mounts need their engine until they are gone; connections do not, and unmounting is faster without them.
        for volume in self.configuration.volumes.iter().filter(|volume| volume.mount.is_none()) {
            if let Some(served) = self.devices.iter().find(|served| served.profile.name == volume.device) {
                // Not there if starting failed before it was added.
                let _ = served.engine.stop_volume(&volume.name, grace());
            }
        }
        while let Some(mut attachment) = self.attachments.pop() {
            let steps = match self.has_failed_engine(attachment.volume()) {
                true => attachment.detach_from_failed_engine(),
                false => attachment.detach(),
            };
            for step in steps {
                is_clean &= !step.is_left_over;
                match step.is_left_over {
                    true => error!("{step}"),
                    false => info!("{step}"),
                }
            }
        }
        for device in self.devices.drain(..) {
            if let Err(error) = device.engine.shutdown(grace()) {
                error!("device {}: {error}", device.profile.name);
                is_clean = false;
            }
        }
        is_clean
    }

    fn has_failed_engine(&self, volume: &str) -> bool {
        let section = self.configuration.volumes.iter().find(|section| section.name == volume);
        section.is_some_and(|section| {
            self.devices.iter().any(|served| served.profile.name == section.device && served.engine.has_failed())
        })
    }

    /// Why engines ended before they were told to; empty if none did.
    pub(super) fn failures(&self) -> Vec<String> {
        self.failures.list().clone()
    }

    /// What administers it, for as long as it does.
    pub(super) fn administration(&self) -> Weak<Administration> {
        self.administration.clone()
    }

    /// The engines, for a caller that wants to hurry them.
    pub(super) fn devices(&self) -> Vec<ServedDevice> {
        self.devices.clone()
    }

    /// The volumes that only NBD clients and iSCSI initiators use. To cut those off loses no acknowledged write.
    pub(super) fn volumes_without_mounts(&self) -> Vec<String> {
        let volumes = self.configuration.volumes.iter().filter(|volume| volume.mount.is_none());
        volumes.map(|volume| volume.name.clone()).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop(|| engine::GRACE_DEFAULT);
    }
}
