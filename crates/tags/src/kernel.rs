//! Loading and attaching the BPF programs, and their maps.
//!
//! The kernel's type information (BTF) tells which programs it can have. Each is for one tracepoint; one without its
//! tracepoint (XFS not built in, a later name) is left out.

mod batch;
mod programs;
mod ring;
mod settings;
mod words;

use crate::device::Device;
use crate::error::TagsError;
use crate::memory::SharedMemory;
use crate::shared::{self, ACCOUNTS, CLASSES, COUNTERS, ENTRY_BYTES, Plain, State};
use crate::source::{self, Source, Surveyed, Table};
use crate::{Counters, Coverage, Event, Options};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use programs::{Programs, SWEEP};
use ring::Ring;
use settings::{CALL_PROGRAM, Plan};
use std::ffi::OsStr;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The compiled programs.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tags.bpf.o"));
/// Files with known recent writers, at once: the least recently used is forgotten.
const INODES_MAX: u32 = 1 << 16;
/// Blocks of metadata with known causes, at once: 512 MiB of metadata.
const METADATA_BLOCKS_MAX: u32 = 1 << 17;
/// Sequences of XFS's list of committed items: a handful is alive.
const CHECKPOINTS_MAX: u32 = 1 << 10;
/// Registrations of cgroups.
const CGROUPS_MAX: u32 = 1 << 10;
/// Bytes of the ring when no caller asked for events; the kernel allows no less.
const EVENT_BYTES_MIN: u32 = 4096;

/// Programs that are loaded and attached.
pub(crate) struct Kernel {
    /// Detached first: before the object of the programs.
    _links: Vec<Link>,
    /// The program that tells of returns, while it does.
    returns: Option<Link>,
    programs: Arc<Programs>,
    counts: MapHandle,
    flows: MapHandle,
    events: MapHandle,
    ring: Ring,
    state: Arc<SharedMemory>,
    entries: Arc<SharedMemory>,
    slot_shift: u32,
}

pub(crate) use settings::check_machine;

/// Loads and attaches the programs for the block device at `path`.
pub(crate) fn load(path: &Path, options: &Options) -> Result<(Box<dyn Source>, Coverage), TagsError> {
    check_machine()?;
    let device = Device::open(path)?;
    let plan = Plan::new(path, &device, options)?;
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(refused("open the programs"))?;
    let missing = plan.select_programs(&mut open)?;
    prepare(&mut open, &plan, options)?;
    let loaded = words::told(|| open.load());
    let object = loaded.map_err(|(error, words)| refused_with("load the programs", &error, &words))?;
    let state = Arc::new(shared_memory(&object, ".data.state", size_of::<State>(), true)?);
    source::initialize(&state, &device);
    plan.tell_layout(&object)?;
    let entries = Arc::new(shared_memory(&object, "tags", ENTRY_BYTES << plan.slot_shift, false)?);
    let handle = |name| map(&object, name);
    let events = handle("events")?;
    let ring = Ring::new(&events, events.max_entries() as usize).map_err(unmappable)?;
    let mut kernel = Kernel {
        _links: Vec::new(),
        returns: None,
        counts: handle("counts")?,
        flows: handle("flows")?,
        events,
        ring,
        state,
        entries,
        slot_shift: plan.slot_shift,
        programs: Arc::new(Programs::new(object)?),
    };
    kernel.attach()?;
    Ok((Box::new(kernel), plan.coverage(&device, &missing)))
}

impl Kernel {
    fn attach(&mut self) -> Result<(), TagsError> {
        let is_for_now = |name: &OsStr| name != SWEEP && name != CALL_PROGRAM;
        let programs = self.programs.object.progs_mut();
        for program in programs.filter(|program| program.autoload() && is_for_now(program.name())) {
            self._links.push(program.attach().map_err(refused("attach a program"))?);
        }
        Ok(())
    }
}

impl Source for Kernel {
    fn state(&self) -> &Arc<SharedMemory> {
        &self.state
    }

    fn entries_of_tags(&self) -> (&Arc<SharedMemory>, u32) {
        (&self.entries, self.slot_shift)
    }

    fn lookup(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, TagsError> {
        self.programs.table(table).lookup(key, MapFlags::ANY).map_err(refused("look up an account"))
    }

    fn survey(&self) -> Arc<dyn Surveyed> {
        Arc::clone(&self.programs) as Arc<dyn Surveyed>
    }

    fn update(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), TagsError> {
        self.programs.table(table).update(key, value, MapFlags::ANY).map_err(refused("register an account"))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, TagsError> {
        match self.programs.table(table).delete(key) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(refused("end an account")(error)),
        }
    }

    fn counters(&self, account: u32) -> Result<Counters, TagsError> {
        let parts = self.counts.lookup_percpu(&account.bytes(), MapFlags::ANY).map_err(refused("read counters"))?;
        let mut sum = Counters::default();
        for part in parts.into_iter().flatten() {
            sum.add(&shared::Counters::take(&mut &part[..]).expect("the kernel gives back whole values"));
        }
        Ok(sum)
    }

    fn reset_counters(&mut self, account: u32) -> Result<(), TagsError> {
        const ZERO: shared::Counters = shared::Counters {
            read: 0,
            data: 0,
            journal: 0,
            metadata: 0,
            dirtied: 0,
            freed: 0,
            by_class: [0; CLASSES],
        };
        let processors = libbpf_rs::num_possible_cpus().map_err(refused("count processors"))?;
        let values = vec![ZERO.bytes(); processors];
        self.counts.update_percpu(&account.bytes(), &values, MapFlags::ANY).map_err(refused("reset counters"))
    }

    fn take_flows(&self) -> Result<Vec<(Vec<u8>, u64)>, TagsError> {
        let keys: Vec<_> = self.flows.keys().collect();
        let taken = keys.into_iter().map(|key| {
            let value = self.flows.lookup_and_delete(&key).map_err(refused("take counted I/O"))?;
            Ok(value.and_then(|value| Some((key, u64::take(&mut &value[..])?))))
        });
        taken.filter_map(Result::transpose).collect()
    }

    fn events(&mut self, events_max: usize, each: &mut dyn FnMut(Event)) -> bool {
        self.ring.drain(events_max, &mut |record| Event::parse(record).into_iter().for_each(&mut *each))
    }

    fn tell_returns(&mut self, are_told: bool) -> Result<(), TagsError> {
        if !are_told {
            self.returns = None;
        } else if self.returns.is_none() {
            let mut programs = self.programs.object.progs_mut();
            let program = programs.find(|program| program.autoload() && program.name() == CALL_PROGRAM);
            let attached = program.map(|program| program.attach()).transpose();
            self.returns = attached.map_err(refused("attach a program"))?;
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn wake(&self) {
        self.state.word(offset_of!(State, wants_waking)).store(1, Ordering::SeqCst);
    }

    /// How often the kernel left a program out because it was running already.
    fn missed(&self) -> Result<u64, TagsError> {
        let mut missed = 0;
        for program in self.programs.object.progs().filter(|program| program.autoload()) {
            missed += described(program.as_fd().as_raw_fd(), "recursion_misses:")?;
        }
        Ok(missed)
    }

    /// Bytes that the kernel says its maps take.
    fn memory_bytes(&self) -> u64 {
        self.programs.object.maps().filter_map(|map| described(map.as_fd().as_raw_fd(), "memlock:").ok()).sum()
    }
}

/// The kernel's value for a descriptor under `name`.
fn described(descriptor: i32, name: &str) -> Result<u64, TagsError> {
    let path = format!("/proc/self/fdinfo/{descriptor}");
    let text = std::fs::read_to_string(&path).map_err(TagsError::file(path))?;
    Ok(text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0))
}

/// Sets sizes and constants, which are fixed once the programs are loaded.
fn prepare(open: &mut OpenObject, plan: &Plan, options: &Options) -> Result<(), TagsError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let entries = match name.as_str() {
            "dirty_pages" => plan.page_lines(),
            "inodes" => INODES_MAX,
            "metadata" => METADATA_BLOCKS_MAX,
            "checkpoints" => CHECKPOINTS_MAX,
            "threads" | "processes" => options.tasks_max.max(1),
            "cgroups" => CGROUPS_MAX,
            "owners" => ACCOUNTS,
            "counts" => COUNTERS,
            "flows" => options.flows_max.unwrap_or(1),
            "layouts" => plan.layout.ranges.len().max(1) as u32,
            "inode_tables" => plan.layout.inodes.tables.len().max(1) as u32,
            "tags" => 1 << plan.slot_shift,
            "events" => options.event_bytes.unwrap_or(0).max(EVENT_BYTES_MIN).next_power_of_two(),
            ".rodata.settings" => {
                map.set_initial_value(&plan.settings.bytes()).map_err(refused("set the settings"))?;
                continue;
            }
            _ => continue,
        };
        map.set_max_entries(entries).map_err(refused("size a map"))?;
    }
    Ok(())
}

fn map(object: &Object, name: &str) -> Result<MapHandle, TagsError> {
    let map = object.maps().find(|map| map.name() == name).expect("it is compiled in");
    MapHandle::try_from(&map).map_err(refused("open a map"))
}

fn shared_memory(object: &Object, name: &str, bytes: usize, is_writable: bool) -> Result<SharedMemory, TagsError> {
    let map = object.maps().find(|map| map.name() == name).expect("it is compiled in");
    let mapped = SharedMemory::new(map.as_fd(), bytes, is_writable);
    mapped.map_err(unmappable)
}

fn unmappable(error: std::io::Error) -> TagsError {
    TagsError::Kernel { action: "map shared memory", reason: error.to_string() }
}

fn refused(action: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TagsError {
    move |error| refused_with(action, &error, "")
}

/// The kernel's refusal. The kernel answers EPERM if BPF is not permitted, and the verifier EACCES if it refuses a
/// program.
fn refused_with(action: &'static str, error: &libbpf_rs::Error, words: &str) -> TagsError {
    let reason = format!("{error:#}");
    if reason.ends_with("(os error 1)") {
        return TagsError::NotRun(format!("BPF is not permitted here: cannot {action}: {reason}"));
    }
    TagsError::Kernel { action, reason: if words.is_empty() { reason } else { format!("{reason}: {words}") } }
}
