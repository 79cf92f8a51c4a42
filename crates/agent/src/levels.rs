//! The two upper levels of a scheduler, on a running system.
//!
//! ```text
//!   gates   notifications -> Calls -> scheduler.call_entered     words <- close, open
//!   pages   tags' events  -> scheduler.pages_dirtied, pages_freed       writeback <- wishes
//!   blocks  tags' events  -> Below::issued, completed: only of an observed disk
//! ```
//!
//! One thread owns all of it and takes it in turns, that of the device's engine ([`UpperLevels`]). A turn has five
//! steps. Accounts are opened and closed. Then come events since the last turn (dirtied, freed, written, read). Then
//! come calls at the gates, calls that the scheduler lets go, and its wishes. So a scheduler hears of a page before it
//! is asked about the next call of the account that dirtied it. The exception is more events than fit into a turn
//! ([`happened::EVENTS_MAX`]).
//!
//! **Reads** have no event of their own that would ask the scheduler. It decides about them below, and an account with
//! too many waiting there finds the word of its reads closed ([`crate::readers`]).
//!
//! **An observed disk** has no volume on its engine. Its requests are seen when they have gone already, so
//! nothing can be held back there. Writes wait at their calls as always. An account with early *reads*, which the
//! scheduler would have delayed, waits at the word until the scheduler lets those go.
//!
//! An event that woke us would cost more than the write that it tells of. So events are fetched now and then while
//! there are some ([`pace`]), and only the first one after a silence wakes us.

mod freezing;
mod happened;
pub mod pace;

use crate::account_words::AccountWords;
use crate::calls::{Action, Calls};
use crate::commands::{Command, Enrollee, Joined, LevelsHandle, commands};
use crate::error::AgentError;
use crate::freezer::groups::FreezeOrders;
use crate::members::Members;
use crate::mounts::DeviceNumbers;
use crate::notified::Notified;
use crate::readers::Readers;
use crate::returns::Returns;
use crate::writeback::Slices;
use freezing::Freezing;
use pace::{FETCH_BUSY, Pace};
use plimsoll_core::{AccountId, Call, CallDecision, CallId, FileId, Scheduler, Span, Time, Wish};
use plimsoll_engine::{Below, HeldReads, UpperLevels};
use plimsoll_gates::words::RENEWAL;
use plimsoll_gates::{GateClass, GateWords, HeldCall, Listener, ListenerId, Listeners};
use plimsoll_linux::mailbox::Receiver;
use plimsoll_tags::{AccountsOf, Event, Tags};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Notifications handled in one turn, even if a tenant floods its listener: some ten microseconds each, which bounds
/// the delay of others' requests.
const NOTIFICATIONS_MAX: usize = 64;
/// Held calls that one turn looks at, to find calls of threads that have gone.
const HELD_LOOKS_MAX: usize = 64;
/// How often housekeeping is done.
const HOUSEKEEPING: Span = Span::from_secs(1);

/// What the levels are made of.
pub struct Parts {
    /// The causes, loaded before the file system was mounted if that was possible.
    pub tags: Tags,
    /// The words of shims.
    pub words: GateWords,
    /// The listeners of filters.
    pub listeners: Listeners,
    /// Where slices of writeback are asked for. Files are opened and closed there, never here: what serves the disk
    /// would wait for itself.
    pub slices: Slices,
    /// Numbers of the disk and of the file systems on it. Calls on other devices are not held.
    pub devices: DeviceNumbers,
    /// Bytes that may be dirty before the kernel makes writers wait by itself.
    pub dirty_bytes_max: u64,
    /// Where tenants are frozen that pass by their gates; `None`: they are not.
    pub freezer: Option<FreezeOrders>,
    /// On an observed disk: the session that pays for the requests of processes that have not joined. `None` where the
    /// requests are the engine's own.
    pub others: Option<AccountId>,
}

/// Gates, pages and, where they are only seen, requests: see the [module's text](self).
pub struct Levels {
    parts: Parts,
    freezing: Option<Freezing>,
    members: Members,
    commands: Receiver<Command>,
    calls: Calls,
    notified: Notified,
    readers: Readers,
    returns: Returns,
    poll: OwnedFd,
    /// A listener may have something to say, from then on.
    hear_at: Option<Time>,
    /// The scheduler knows what it has to know at the start.
    is_introduced: bool,
    pace: Pace,
    renew_at: Time,
    housekeeping_at: Time,
    /// Held calls are looked at again.
    look_at: Time,
    /// Lists that keep their memory from turn to turn.
    events: Vec<Event>,
    wrote: BTreeMap<AccountId, FileId>,
    actions: Vec<Action>,
    wishes: Vec<Wish>,
}

impl Levels {
    /// Puts the parts together. The handle is for other threads.
    ///
    /// # Errors
    /// The system has no descriptor for it.
    pub fn new(mut parts: Parts) -> Result<(Levels, LevelsHandle), AgentError> {
        let system = |action| move |error: std::io::Error| AgentError::System { action, source: error };
        let members = Members::default();
        let (commands, handle) = commands(members.clone(), parts.tags.survey()).map_err(system("make an eventfd"))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| system("make an epoll")(errno.into()))?;
        let watched = epoll::add(&poll, &commands, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        watched.map_err(|errno| system("watch an eventfd")(errno.into()))?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let watched = epoll::add(&poll, &parts.tags, epoll::EventData::new_u64(0), flags);
        watched.map_err(|errno| system("watch events")(errno.into()))?;
        let levels = Levels {
            freezing: parts.freezer.take().map(Freezing::new),
            parts,
            members,
            commands,
            calls: Calls::default(),
            notified: Notified::default(),
            readers: Readers::default(),
            returns: Returns::default(),
            poll,
            hear_at: Some(Time::ZERO),
            is_introduced: false,
            pace: Pace::default(),
            renew_at: Time::ZERO,
            housekeeping_at: Time::ZERO,
            look_at: Time::ZERO,
            events: Vec::new(),
            wrote: BTreeMap::new(),
            actions: Vec::new(),
            wishes: Vec::new(),
        };
        Ok((levels, handle))
    }

    /// Which accounts the bits of masks are, for a thread that looks tags up.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Hears the listeners. Says when there may be more to hear.
    fn hear(&mut self, now: Time, scheduler: &mut dyn Scheduler) -> Option<Time> {
        let Levels { parts, calls, notified, members, .. } = self;
        let (clock, lease) = (plimsoll_gates::clock::monotonic_now(), parts.words.lease());
        let devices = &parts.devices;
        let turn = parts.listeners.turn(clock, lease, NOTIFICATIONS_MAX, |listener, held| {
            let Some(account) = members.account(held.call.account.0) else { return CallDecision::Admit };
            let Some(file) = file_of(held, devices) else { return CallDecision::Admit };
            let id = calls.next_id();
            let call = Call { id, account, file, entered: now, ..held.call.clone() };
            let decision = calls.entered(now, scheduler, call);
            if decision == CallDecision::Hold {
                notified.insert(id, (listener, held.call.id));
            }
            decision
        });
        match turn {
            Ok(turn) => {
                turn.restricting.into_iter().for_each(|(listener, call)| self.let_restrict(listener, call));
                for (listener, _) in turn.ended {
                    self.notified.take_all_at(listener).into_iter().for_each(|id| self.calls.abandoned(id));
                }
                for (listener, registration) in turn.returned {
                    tracing::info!("{}: took its seccomp listener over from an earlier agent", registration.name);
                    // Another account has its number by now.
                    if let Some(listener) = self.parts.listeners.get_mut(listener) {
                        listener.assign(AccountsOf::OTHERS);
                    }
                    self.watch(listener);
                }
                let again_at = turn.again_at.map(|at| now + at.since(clock));
                if turn.has_more { Some(now) } else { again_at }
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the notifications of the gates");
                None
            }
        }
    }

    /// A process installs a filter of its own, without its shim. That filter may forbid system calls that the gates
    /// make. So the shims of its account hold nothing any more: a word that closes from now on holds none of them.
    fn let_restrict(&mut self, listener: ListenerId, call: CallId) {
        let bit = self.parts.listeners.get(listener).map(|listener| listener.account().0);
        if let Some(account) = bit.and_then(|bit| self.members.account(bit)) {
            let bit = bit.map(AccountId).expect("it has a bit");
            self.parts.words.begin_generation(bit);
            tracing::info!(
                "account {}: a process installs a seccomp filter of its own by a direct system call; writes and reads of the account are \
                 charged and not held from now on (docs/gates.md)",
                account.0
            );
        }
        if let Err(error) = self.parts.listeners.resume(listener, call) {
            tracing::error!(%error, "cannot let a call go on: it waits until its keeper does");
        }
    }

    /// Wakes up for a listener's calls from now on.
    fn watch(&mut self, listener: ListenerId) {
        let change = self.returns.listener_came();
        self.tell_returns(change);
        let Some(listener) = self.parts.listeners.get(listener) else { return };
        // Once for each change: one that has ended stays readable until its keeper is gone too.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if let Err(error) = epoll::add(&self.poll, listener, epoll::EventData::new_u64(1), flags) {
            tracing::error!(%error, "cannot watch a seccomp listener: its calls wait until another event wakes the \
                                     agent");
        }
    }

    fn tell_returns(&mut self, are_told: Option<bool>) {
        if let Some(Err(error)) = are_told.map(|are_told| self.parts.tags.tell_returns(are_told)) {
            tracing::error!(%error, "cannot switch events for returns from calls on or off");
        }
    }

    /// Asks the scheduler for accounts with words, and lets released calls continue.
    fn decide(&mut self, now: Time, scheduler: &mut dyn Scheduler) {
        let mut actions = std::mem::take(&mut self.actions);
        self.wrote.extend(self.calls.admitted_before(now));
        for seen in std::mem::take(&mut self.wrote) {
            self.calls.wrote(now, scheduler, seen, &mut actions);
        }
        self.calls.released(now, scheduler, &mut actions);
        self.act(&mut actions);
        self.actions = actions;
    }

    fn act(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::GoOn(id) => {
                    let Some((listener, call)) = self.notified.take(id) else { continue };
                    if self.parts.listeners.get(listener).is_some_and(Listener::is_full) {
                        // Calls that wait behind it are not announced once more.
                        self.hear_at = Some(Time::ZERO);
                    }
                    if let Err(error) = self.parts.listeners.resume(listener, call) {
                        tracing::error!(%error, "cannot let a call go on: it waits until its keeper does");
                    }
                }
                Action::Close(account) => self.words().close(account, GateClass::Write),
                Action::Open(account) => self.words().open(account, GateClass::Write),
                Action::Admit(account, count) => {
                    if self.words().admit(account, GateClass::Write, count) < count {
                        self.words().open(account, GateClass::Write);
                        self.calls.nobody_waits(account);
                    }
                }
            }
        }
    }

    fn words(&self) -> AccountWords<'_> {
        AccountWords { words: &self.parts.words, members: &self.members }
    }

    /// Does what the scheduler wishes, and answers with when it wants to be asked again.
    fn grant(&mut self, now: Time, scheduler: &mut dyn Scheduler) -> Option<Time> {
        self.wishes.clear();
        scheduler.wishes(now, &mut self.wishes);
        let mut wake_at = None;
        for wish in &self.wishes {
            match *wish {
                // No call has a journal commit and does not wait; a call that wishes goes on without.
                Wish::Commit => {}
                Wish::WakeAt(at) => wake_at = Some(wake_at.map_or(at, |before: Time| before.min(at))),
                // Where there is no room it will be wished again.
                Wish::StartWriteback { file, bytes_max } => {
                    self.parts.slices.ask(file, bytes_max);
                }
            }
        }
        wake_at
    }

    fn keep_house(&mut self, now: Time, below: &mut Below<'_>) {
        self.housekeeping_at = now + HOUSEKEEPING;
        let change = self.returns.look(!self.parts.listeners.is_empty());
        self.tell_returns(change);
        // Keepers that ended are found, and those of an earlier agent come back.
        self.hear_at = Some(now);
        below.give_up_lost();
        self.calls.silent_since(now, below.scheduler(), now.saturating_sub(HOUSEKEEPING));
    }

    /// A thread that was killed or interrupted at a gate leaves its call and its place at its listener behind. Places
    /// are few, so this frees them, also if the scheduler has released the call since. Returns when to look at the
    /// calls that are left, or at all again.
    fn leave_out_who_is_gone(&mut self, now: Time) -> Time {
        if !self.calls.may_abandon() {
            return now + HOUSEKEEPING;
        }
        let (gone, has_more) = self.parts.listeners.take_gone(HELD_LOOKS_MAX);
        if !gone.is_empty() {
            // Calls that wait behind a listener that was full are not announced once more.
            self.hear_at = Some(now);
        }
        let gone = gone.into_iter().filter_map(|place| self.notified.take_at(place));
        gone.for_each(|id| self.calls.abandoned(id));
        now + if has_more { FETCH_BUSY } else { HOUSEKEEPING }
    }

    /// Something wants to be heard: commands at once, listeners in this turn.
    fn wake_up(&mut self, now: Time, scheduler: &mut dyn Scheduler) {
        let mut woken =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 16];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // Entries that are not taken out now are there the next time.
        let _ = epoll::wait(&self.poll, &mut woken, Some(&at_once));
        self.hear_at = Some(now);
        self.obey(now, scheduler);
    }

    fn obey(&mut self, now: Time, scheduler: &mut dyn Scheduler) {
        self.commands.clear();
        while let Some(command) = self.commands.next() {
            match command {
                Command::Join { account, name, answer } => drop(answer.send(self.join(account, &name))),
                Command::Enroll { account, enrollee, answer } => drop(answer.send(self.enroll(account, &enrollee))),
                Command::Listen { guarded, answer } => {
                    let now = plimsoll_gates::clock::monotonic_now();
                    let id = self.parts.listeners.add(now, *guarded);
                    let listener = self.parts.listeners.get_mut(id);
                    // Its account may have left while a keeper was started for it.
                    if let Some(listener) = listener.filter(|it| self.members.account(it.account().0).is_none()) {
                        listener.assign(AccountsOf::OTHERS);
                    }
                    self.watch(id);
                    let _ = answer.send(());
                }
                Command::Listeners { account, answer } => drop(answer.send(self.listeners(account))),
                Command::Ended { answer } => drop(answer.send(self.parts.tags.accounts().ended())),
                Command::Unregister { registrations, answer } => {
                    let _ = answer.send(self.parts.tags.accounts().unregister(&registrations));
                    // So many in a turn, whichever account asks.
                    return self.commands.wake_again();
                }
                Command::Free { accounts } => {
                    if let Err(error) = self.parts.tags.accounts().free(accounts) {
                        tracing::warn!(%error, "the numbers of ended accounts cannot be used again");
                    }
                }
                Command::Inside { answer } => drop(answer.send(self.calls.threads_inside().collect())),
                Command::Returned { threads } => {
                    threads.into_iter().for_each(|thread| self.calls.returned(now, scheduler, thread));
                }
                Command::Leave { account, answer } => drop(answer.send(self.leave(now, scheduler, account))),
                Command::Mounted { devices } => self.parts.devices = devices,
            }
        }
    }
}

impl Levels {
    fn join(&mut self, account: AccountId, name: &str) -> Result<Joined, AgentError> {
        if self.members.bit(account).is_some() {
            return Err(AgentError::Membership { account, has_joined: true });
        }
        let bit = self.parts.tags.accounts().open(name)?.0;
        self.members.set(bit, Some(account));
        // Processes of a tenant before, of this agent or the one before it, may look at the same words.
        let generation = self.parts.words.begin_generation(AccountId(bit));
        Ok(Joined { bit, generation })
    }

    fn enroll(&mut self, account: AccountId, enrollee: &Enrollee) -> Result<(), AgentError> {
        let bit = self.members.bit(account).ok_or(AgentError::Membership { account, has_joined: false })?;
        let (mut accounts, bit) = (self.parts.tags.accounts(), AccountId(bit));
        match enrollee {
            Enrollee::Process(process) => accounts.register_process(bit, *process)?,
            Enrollee::Thread(thread) => accounts.register_thread(bit, *thread)?,
            Enrollee::Cgroup(path) => accounts.register_cgroup(bit, path)?,
        }
        Ok(())
    }

    fn listeners(&self, account: AccountId) -> Result<usize, AgentError> {
        let bit = self.members.bit(account).ok_or(AgentError::Membership { account, has_joined: false })?;
        Ok(self.parts.listeners.of(AccountId(bit)))
    }

    fn leave(&mut self, now: Time, scheduler: &mut dyn Scheduler, account: AccountId) -> Result<(), AgentError> {
        if let Some(bit) = self.members.bit(account) {
            self.words().open(account, GateClass::Write);
            self.freezing.iter_mut().for_each(|freezing| freezing.leave(account, bit));
            self.readers.leave(account, &AccountWords { words: &self.parts.words, members: &self.members });
            self.members.set(bit, None);
            // A process left behind them belongs to no account, also when the bit is another's.
            self.parts.listeners.hand_over(AccountId(bit), AccountsOf::OTHERS);
            self.parts.tags.accounts().close(AccountId(bit))?;
        }
        self.calls.writes_no_more(now, scheduler, account);
        if self.calls.is_busy(account) { Err(AgentError::Busy { account }) } else { Ok(()) }
    }
}

/// The file of a notified call, by its inode; `None` if it is on another device. The end of a path is not known. If the
/// path starts from a directory on the disk, the device stands for the file.
fn file_of(held: &HeldCall, devices: &DeviceNumbers) -> Option<FileId> {
    match held.file {
        Some(file) if devices.contains(&file.device) => Some(FileId(file.inode)),
        Some(_) if !held.is_by_path => None,
        _ => Some(FileId::DEVICE),
    }
}

impl UpperLevels for Levels {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    fn turn(&mut self, now: Time, is_ready: bool, below: &mut Below<'_>) -> Option<Time> {
        if is_ready {
            self.wake_up(now, below.scheduler());
        }
        if !std::mem::replace(&mut self.is_introduced, true) {
            below.scheduler().dirty_memory_limited(now, self.parts.dirty_bytes_max);
        }
        if now >= self.renew_at {
            self.parts.words.renew();
            self.renew_at = now + RENEWAL;
        }
        self.fetch(now, below);
        if self.hear_at.is_some_and(|at| now >= at) {
            self.hear_at = self.hear(now, below.scheduler());
        }
        self.decide(now, below.scheduler());
        if now >= self.housekeeping_at {
            self.keep_house(now, below);
        }
        if now >= self.look_at {
            self.look_at = self.leave_out_who_is_gone(now);
        }
        let wake_at = self.grant(now, below.scheduler());
        let thaw_at = self.freezing.as_mut().and_then(|freezing| freezing.mind(now, &self.members, &self.calls));
        let times = [self.pace.at(), self.renew_at, self.look_at];
        let asked = [wake_at, thaw_at, self.hear_at, self.calls.admitted_until(), self.readers.admitted_until()];
        times.into_iter().chain(asked.into_iter().flatten()).min()
    }

    fn reads_held(&mut self, now: Time, reads: &HeldReads) {
        let Levels { parts, members, readers, freezing, .. } = self;
        readers.mind(now, reads, members, &AccountWords { words: &parts.words, members });
        freezing.iter_mut().for_each(|freezing| freezing.reads_held(now, reads));
    }

    fn scheduler_switched(&mut self, _now: Time, _scheduler: &mut dyn Scheduler) {
        let mut actions = Vec::new();
        self.calls.all_go_on(&mut actions);
        self.act(&mut actions);
        self.is_introduced = false;
    }
}
