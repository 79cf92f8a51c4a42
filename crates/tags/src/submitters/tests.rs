//! What comes of looks at processes that are made up: some are never done.

use super::processes::{Identity, Moved};
use super::*;
use crate::FileSystem;
use crate::account::{Accounts, AccountsOf};
use crate::shared::{Group, Plain, Registration};
use crate::survey::Survey;
use plimsoll_core::Span;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const ACCOUNT: u32 = 3;
const PROCESS: u32 = 40;
const CHILD: u32 = 41;
const CAPACITY_SECTORS: u64 = 1 << 21;
const MIB: u64 = 1 << 20;
/// For what must come, on the slowest machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// A process and, if it has forked, its child; it writes a MiB before each look at it.
#[derive(Default)]
struct Made {
    looks: AtomicU64,
    has_child: bool,
    /// Each look says that it has begun, and ends when this says so.
    hold: Option<(Sender<()>, Mutex<Receiver<()>>)>,
    /// Leaves during the look at it.
    leaves: Option<Arc<Shared>>,
}

impl Processes for Made {
    fn list(&self) -> Vec<u32> {
        if self.has_child { vec![PROCESS, CHILD] } else { vec![PROCESS] }
    }

    fn identity(&self, process: u32) -> Option<Identity> {
        let parent = if process == CHILD { PROCESS } else { 1 };
        Some(Identity { parent, began: u64::from(process) << 40 })
    }

    fn moved(&self, process: u32) -> Option<Moved> {
        if let Some((begun, end)) = &self.hold {
            let _ = begun.send(());
            let _ = end.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        if let (Some(shared), CHILD) = (&self.leaves, process) {
            shared.tables.delete(Table::Processes, &PROCESS.bytes());
        }
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        Some(Moved { written: looks * MIB, ..Moved::default() })
    }

    fn thread(&self, _: u32) -> Option<(u32, Moved)> {
        None
    }

    fn groups(&self, _: u32) -> Vec<Group> {
        Vec::new()
    }

    fn calls(&self, _: u32) -> Vec<(u32, i64)> {
        Vec::new()
    }
}

fn registration() -> Vec<u8> {
    Registration { account: ACCOUNT, is_automatic: 0 }.bytes()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = crate::now() + WAIT_MAX.into();
    while !is_so() {
        assert!(crate::now() < end, "still waiting for {what}");
        std::thread::park_timeout(PAUSE);
    }
}

fn keys(submitters: &Submitters) -> Vec<Vec<u8>> {
    submitters.survey().entries(Table::Processes).unwrap().into_iter().map(|(key, _)| key).collect()
}

/// Broken on purpose and seen red: a caller that asks for events waits for the look; a drop waits for the thread.
/// Promise: tags-no-bpf-stuck.
#[test]
fn a_look_that_is_never_done_keeps_no_caller() {
    let ((begun, has_begun), (end, ends)) = (channel(), channel());
    let made = Made { hold: Some((begun, Mutex::new(ends))), ..Made::default() };
    let mut submitters = Submitters::start(Box::new(made), CAPACITY_SECTORS, &[]).unwrap();
    let shared = Arc::clone(&submitters.shared);
    submitters.update(Table::Processes, &PROCESS.bytes(), &registration()).unwrap();
    has_begun.recv_timeout(WAIT_MAX).unwrap();
    let (answer, answered) = channel();
    std::thread::spawn(move || {
        submitters.events(usize::MAX, &mut |event| panic!("{event:?} though nobody has been looked at"));
        submitters.wake();
        submitters.update(Table::Processes, &CHILD.bytes(), &registration()).unwrap();
        assert_eq!(keys(&submitters), [PROCESS.bytes(), CHILD.bytes()]);
        assert!(submitters.delete(Table::Processes, &PROCESS.bytes()).unwrap());
        drop(submitters);
        answer.send(()).unwrap();
    });
    answered.recv_timeout(WAIT_MAX).expect("a thread that asks or drops it goes on");
    assert!(Arc::strong_count(&shared) > 1, "the thread hangs still");
    drop(end);
    wait_until("the end of the thread", || Arc::strong_count(&shared) == 1);
}

/// Broken on purpose and seen red: no thread is woken; a look that no thread has taken is put aside by the next one.
/// Promise: tenants-no-bpf.
#[test]
fn what_looks_find_is_handed_over_once_and_wakes_the_waiting_thread() {
    let made = Made::default();
    let mut submitters = Submitters::start(Box::new(made), CAPACITY_SECTORS, &[]).unwrap();
    submitters.update(Table::Processes, &PROCESS.bytes(), &registration()).unwrap();
    let mut polled = [rustix::event::PollFd::new(&submitters.shared.handed_over, rustix::event::PollFlags::IN)];
    let wait_max = rustix::event::Timespec { tv_sec: WAIT_MAX.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut polled, Some(&wait_max)), Ok(1), "something wakes whoever waits");
    // No thread takes it for some looks.
    std::thread::park_timeout(Duration::from_millis(100));
    let mut bytes_by_id = BTreeMap::new();
    wait_until("three MiB", || {
        submitters.wake();
        submitters.events(usize::MAX, &mut |event| {
            if let Event::Issued { id, bytes, causes, .. } = event {
                assert_eq!(causes, 1 << ACCOUNT);
                assert_eq!(bytes_by_id.insert(id, u64::from(bytes)), None, "told twice");
            }
        });
        bytes_by_id.len() >= 3
    });
    assert_eq!(bytes_by_id.keys().copied().collect::<Vec<_>>(), (0..bytes_by_id.len() as u64).collect::<Vec<_>>());
    assert_eq!(submitters.counters(ACCOUNT).unwrap().data_bytes, bytes_by_id.values().sum::<u64>());
}

/// As it is where the programs tell. Broken on purpose and seen red: a number comes free while a process is registered
/// as it.
/// Promise: tags-number-reuse.
#[test]
fn a_number_is_used_again_when_no_task_is_registered_as_it() {
    let made = Made { has_child: true, ..Made::default() };
    let mut submitters = Submitters::start(Box::new(made), CAPACITY_SECTORS, &[]).unwrap();
    let device =
        Device { number: 0, start_sector: 0, sectors: CAPACITY_SECTORS, file_system: FileSystem::Other, mounted: None };
    source::initialize(&submitters.state, &device);
    let mut accounts = Accounts::new(Span::ZERO);
    let mut accounts = AccountsOf { accounts: &mut accounts, source: &mut submitters };
    let a = accounts.open("a").unwrap();
    let registration = Registration { account: a.0, is_automatic: 0 }.bytes();
    accounts.source.update(Table::Processes, &PROCESS.bytes(), &registration).unwrap();
    let survey = Survey::of(accounts.source);
    wait_until("its child", || survey.tasks(a).unwrap().len() == 2);
    assert_eq!(survey.registrations(u64::MAX).unwrap(), [], "of an account that lives");
    accounts.close(a).unwrap();
    assert_eq!(survey.registrations(u64::MAX).unwrap().len(), 2);
    assert_eq!(accounts.recycle().unwrap().len(), 1);
    assert_eq!(accounts.open("b").unwrap(), a);
    assert_eq!(survey.tasks(a).unwrap(), []);
}

/// Broken on purpose and seen red: an heir of an account that has ended meanwhile is registered.
#[test]
fn an_account_that_leaves_during_a_look_leaves_nothing_behind() {
    for leaves in [false, true] {
        let shared = Arc::new(Shared::new().unwrap());
        let leaving = leaves.then(|| Arc::clone(&shared));
        let made = Made { has_child: true, leaves: leaving, ..Made::default() };
        let mut watch = Watch::new(Box::new(made), CAPACITY_SECTORS, &[]);
        shared.tables.update(Table::Processes, &PROCESS.bytes(), &registration());
        let found = watch.look(crate::now(), &shared);
        let (left, has_events) = (shared.tables.entries(Table::Processes).len(), !found.events.is_empty());
        assert_eq!((left, has_events), if leaves { (0, false) } else { (2, true) });
        // Its child is a stranger from now on.
        let found = watch.look(crate::now(), &shared);
        let (left, has_events) = (shared.tables.entries(Table::Processes).len(), !found.events.is_empty());
        assert_eq!((left, has_events), if leaves { (0, false) } else { (2, true) });
    }
}
