//! How other threads talk to an engine.
//!
//! A handle sends closures through a list and wakes the engine's ring; the engine runs them between two turns and sends
//! back what they return.

mod caches;
mod detach;
mod recording;

pub use recording::{RECORDER_EVENTS_DEFAULT, Recording};

use super::block_tags::BlockTags;
use super::config::{AttachmentId, EngineConfig, SessionConfig};
use super::error::EngineError;
use super::front_end::FrontEnd;
use super::status::EngineStatus;
use super::turn::{Command, Engine};
use super::upper_levels::UpperLevels;
use super::urgency;
use crate::backend::Volume;
use crate::read_ahead::ReadAhead;
use plimsoll_core::{Account, AccountId, Allocation, Span};
use plimsoll_linux::mailbox::{Sender, mailbox};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The thread of an engine, as its handles share it.
struct EngineThread {
    /// The engine stops when it is gone.
    commands: Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
    failure: Arc<Mutex<Failure>>,
}

/// Whether the engine ended before it was told to, and the callback for that.
#[derive(Default)]
enum Failure {
    /// It works, or ended as it was told to.
    #[default]
    None,
    /// The same, and this is to be told why it failed.
    Watched(Box<dyn FnOnce(String) + Send>),
    /// It failed, for this reason.
    Failed(String),
}

fn of_failure(failure: &Mutex<Failure>) -> MutexGuard<'_, Failure> {
    failure.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread said when it panicked.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("its thread has panicked: {}", text.unwrap_or_else(|| "without a word".to_owned()))
}

/// A running engine. Clones are cheap; when the last one is gone, the engine stops by itself.
#[derive(Clone)]
pub struct EngineHandle {
    engine: Arc<EngineThread>,
}

/// Starts the thread of a device.
///
/// # Errors
/// There is no such scheduler, or the system has no ring, thread or processor for it.
pub fn spawn(config: EngineConfig) -> Result<EngineHandle, EngineError> {
    let system = |action| move |source| EngineError::System { action, source };
    let (commands, received) = mailbox().map_err(system("make an eventfd"))?;
    let (started, has_started) = sync_channel(1);
    let thread = std::thread::Builder::new().name(format!("engine-{}", config.profile.name));
    let failure = Arc::new(Mutex::new(Failure::None));
    let of_thread = failure.clone();
    let thread = thread.spawn(move || {
        if config.model.is_some() {
            urgency::before_normal_threads();
        }
        match Engine::new(config, received) {
            Ok(engine) => {
                let _ = started.send(Ok(()));
                let why = match catch_unwind(AssertUnwindSafe(|| engine.run())) {
                    Ok(why) => why,
                    Err(panic) => Some(said(&*panic)),
                };
                let Some(why) = why else { return };
                let before = std::mem::replace(&mut *of_failure(&of_thread), Failure::Failed(why.clone()));
                if let Failure::Watched(tell) = before {
                    tell(why);
                }
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
    let thread = Mutex::new(Some(thread.map_err(system("start a thread"))?));
    let handle = EngineHandle { engine: Arc::new(EngineThread { commands, thread, failure }) };
    has_started.recv().unwrap_or(Err(EngineError::Stopped))?;
    Ok(handle)
}

impl EngineHandle {
    /// Calls `tell` once, on any thread and with the reason, if the engine ends by itself: its thread panics, or its
    /// ring fails. At once if it has. In place of what was to be told before.
    pub fn when_it_fails(&self, tell: impl FnOnce(String) + Send + 'static) {
        let mut failure = of_failure(&self.engine.failure);
        match &*failure {
            Failure::Failed(why) => {
                let why = why.clone();
                drop(failure);
                tell(why);
            }
            Failure::None | Failure::Watched(_) => *failure = Failure::Watched(Box::new(tell)),
        }
    }

    /// Whether the engine ended before it was told to.
    pub fn has_failed(&self) -> bool {
        matches!(&*of_failure(&self.engine.failure), Failure::Failed(_))
    }

    /// Has the engine's thread run `work` and waits for its answer.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (answer, answered) = sync_channel(1);
        let command: Command = Box::new(move |engine| drop(answer.send(work(engine))));
        if self.engine.commands.send(command).is_err() {
            return Err(EngineError::Stopped);
        }
        answered.recv().map_err(|_| EngineError::Stopped)
    }

    /// Takes a volume over. Its pool must be open.
    ///
    /// # Errors
    /// Its name or a part of its place is taken, it ends beyond the device, or its pool is not open.
    pub fn add_volume(&self, volume: Volume) -> Result<(), EngineError> {
        self.call(move |engine| engine.conductor.add_volume(volume))?
    }

    /// Makes a volume durable and closes it.
    ///
    /// # Errors
    /// A front end is attached to it (see [`stop_volume`](Self::stop_volume)), or it could not be made durable.
    pub fn remove_volume(&self, name: &str) -> Result<(), EngineError> {
        let name = name.to_owned();
        self.call(move |engine| engine.conductor.remove_volume(&name))?
    }

    /// Sets reading ahead for each session of a volume that no front end uses yet; `None` switches it off. Where the
    /// volume is in memory and the device not emulated there is nothing to read ahead.
    ///
    /// # Errors
    /// There is no such volume, or a front end is attached to it.
    pub fn set_read_ahead(&self, volume: &str, read_ahead: Option<ReadAhead>) -> Result<(), EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.conductor.set_read_ahead(&volume, read_ahead))?
    }

    /// Asks all front ends of a volume to finish, and cuts them off after `grace`. Does not wait for it.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn stop_volume(&self, name: &str, grace: Span) -> Result<(), EngineError> {
        let name = name.to_owned();
        self.call(move |engine| engine.stop_volume(&name, grace))?
    }

    /// Asks all front ends with a session in the pool at `path` to finish, and cuts them off after `grace`. Does not
    /// wait for it, nor for sessions in pools of that pool. O(accounts).
    ///
    /// # Errors
    /// There is no such pool.
    pub fn stop_pool(&self, path: &str, grace: Span) -> Result<(), EngineError> {
        let path = path.to_owned();
        self.call(move |engine| engine.stop_pool(&path, grace))?
    }

    /// Attaches a front end to a volume and opens a session for it in the volume's pool.
    ///
    /// # Errors
    /// There is no such volume, admission refuses the session, or memory for its buffers. The front end is dropped
    /// then.
    pub fn attach(
        &self,
        volume: &str,
        session: SessionConfig,
        front_end: Box<dyn FrontEnd>,
    ) -> Result<AttachmentId, EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.attach(&volume, None, session, front_end))?
    }

    /// As [`attach`](Self::attach), with the session in the pool at `pool`.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach), and there is no such pool.
    pub fn attach_in(
        &self,
        volume: &str,
        pool: &str,
        session: SessionConfig,
        front_end: Box<dyn FrontEnd>,
    ) -> Result<AttachmentId, EngineError> {
        let (volume, pool) = (volume.to_owned(), pool.to_owned());
        self.call(move |engine| engine.attach(&volume, Some(pool), session, front_end))?
    }

    /// Asks a front end to finish, and cuts it off after `grace`. Does not wait for it; one that is gone is no error.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn detach(&self, attachment: AttachmentId, grace: Span) -> Result<(), EngineError> {
        self.call(move |engine| engine.stop_front_end(attachment.0, grace))
    }

    /// Opens a pool. Its path is names joined by `/`, all but the last of open pools.
    ///
    /// # Errors
    /// Its parent is not open, its name is taken, or its reserve does not fit: the error says by how much.
    pub fn open_pool(&self, path: &str, allocation: Allocation) -> Result<(), EngineError> {
        let path = path.to_owned();
        self.call(move |engine| engine.conductor.open_pool(&path, allocation))?
    }

    /// Changes what a pool or session was promised, from the next request on.
    ///
    /// # Errors
    /// There is none at `path`, or the reserve does not fit: the error says by how much.
    pub fn change_account(&self, path: &str, allocation: Allocation) -> Result<(), EngineError> {
        let path = path.to_owned();
        self.call(move |engine| engine.conductor.change_account(&path, allocation))?
    }

    /// Closes a pool.
    ///
    /// # Errors
    /// It has members or a volume belongs to it.
    pub fn close_pool(&self, path: &str) -> Result<(), EngineError> {
        let path = path.to_owned();
        self.call(move |engine| engine.conductor.close_pool(&path))?
    }

    /// The account at `path`, if one is open.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn account(&self, path: &str) -> Result<Option<Account>, EngineError> {
        let path = path.to_owned();
        self.call(move |engine| engine.conductor.ground.tree.find(&path).cloned())
    }

    /// The path of an account; its number in words if it is not open.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn account_path(&self, account: AccountId) -> Result<String, EngineError> {
        self.call(move |engine| engine.conductor.ground.tree.path(account))
    }

    /// Opens a session for a tenant without a front end, known by [`BlockTags`] or [`UpperLevels`]. A number makes its
    /// name unique. It is open until [`close_session`](Self::close_session).
    ///
    /// # Errors
    /// There is no such pool, or admission refuses the session.
    pub fn open_session(&self, pool: &str, session: SessionConfig) -> Result<AccountId, EngineError> {
        let pool = pool.to_owned();
        self.call(move |engine| engine.conductor.open_session(&pool, &session))?
    }

    /// Changes what a session that [`open_session`](Self::open_session) opened was promised, from now on.
    ///
    /// # Errors
    /// It is not open, or the reserve does not fit: the error says by how much.
    pub fn change_session(&self, session: AccountId, allocation: Allocation) -> Result<(), EngineError> {
        self.call(move |engine| engine.conductor.change_session(session, allocation))?
    }

    /// Closes a session that [`open_session`](Self::open_session) opened. Tags that still name it name no session then.
    ///
    /// # Errors
    /// Requests that it caused are under way ([`EngineError::SessionBusy`]): try again.
    pub fn close_session(&self, session: AccountId) -> Result<(), EngineError> {
        self.call(move |engine| engine.conductor.close_session(session))?
    }

    /// Sets the source of tags for each block of a volume, from the next request on; `None`: no tags.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn set_tags(&self, volume: &str, tags: Option<Box<dyn BlockTags>>) -> Result<(), EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.conductor.set_tags(&volume, tags))?
    }

    /// Puts `levels` above the device's scheduler, and gives those that were there before.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn set_upper_levels(
        &self,
        levels: Option<Box<dyn UpperLevels>>,
    ) -> Result<Option<Box<dyn UpperLevels>>, EngineError> {
        self.call(move |engine| engine.conductor.set_upper_levels(levels))
    }

    /// Puts another scheduler in charge; requests that wait move over.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn switch_scheduler(&self, name: &str) -> Result<(), EngineError> {
        let name = name.to_owned();
        self.call(move |engine| engine.conductor.switch_scheduler(&name))?
    }

    /// What the engine says about itself.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn status(&self) -> Result<EngineStatus, EngineError> {
        self.call(|engine| engine.conductor.status())
    }

    /// Stops the engine. The engine hears front ends no more. It finishes and answers what is under way, at most for
    /// `grace`. Then it makes volumes durable and closes them. Waits for all of it.
    ///
    /// # Errors
    /// A volume could not be made durable, or the engine has stopped before.
    pub fn shutdown(&self, grace: Span) -> Result<(), EngineError> {
        let (answer, answered) = channel();
        self.call(move |engine| engine.shut_down(grace, Some(answer)))?;
        let result = answered.recv().unwrap_or(Err(EngineError::Stopped));
        let thread = self.engine.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        result
    }
}
