//! What can be seen of a site's daemon or scenario on this machine: what others do here at the same time is not ours,
//! except for sysctls.

use crate::support::Site;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where words are that cannot be in the state directory.
const MEMORY: &str = "/dev/shm";
/// What a live scenario notes to put back, and makes in memory.
const NOTES: [&str; 4] = ["vm-knobs", "queue-settings", "cgroups", "memory-group"];
const LIVE: &str = "plimsoll-live";
const LOOKS: u32 = 3000;

/// See the [module's text](self).
#[derive(Debug, Default, PartialEq)]
pub struct Traces {
    mounts: Vec<String>,
    loop_devices: Vec<String>,
    processes: Vec<String>,
    files: BTreeSet<String>,
    /// BPF programs of our names that no process holds: they have been pinned.
    programs: BTreeSet<u32>,
    /// What is the whole machine's: cgroups of live scenarios, sysctls. Only they touch those, and only one at a time.
    machine: Option<(BTreeSet<String>, Vec<String>)>,
}

impl Traces {
    pub fn of(site: &Site) -> Traces {
        let folder = site.folder.path().canonicalize().unwrap();
        let folder = folder.to_str().unwrap();
        Traces {
            mounts: lines_with("/proc/self/mounts", folder),
            loop_devices: loop_devices(folder),
            processes: processes(folder),
            files: files(site),
            programs: programs::without_holder(),
            machine: None,
        }
    }

    pub fn of_machine(site: &Site) -> Traces {
        Traces { machine: Some((groups(), knobs())), ..Traces::of(site) }
    }

    /// Waits until all is as it was `before`: BPF programs and keepers end a little later.
    pub fn settle(site: &Site, before: &Traces) {
        let look = if before.machine.is_some() { Traces::of_machine } else { Traces::of };
        // A program that another test has left to the kernel goes meanwhile: the one that was there before may be gone,
        // and none may be new.
        let now = || {
            let mut now = look(site);
            if now.programs.is_subset(&before.programs) {
                now.programs.clone_from(&before.programs);
            }
            now
        };
        for _ in 0..LOOKS {
            if now() == *before {
                return;
            }
            pause();
        }
        assert_eq!(now(), *before);
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let has_come = (0..LOOKS).any(|_| {
        pause();
        is_so()
    });
    assert!(has_come, "never came: {what}");
}

fn pause() {
    let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
}

/// All sysctls of dirty pages, of which a live scenario turns some.
pub fn knobs() -> Vec<String> {
    let mut knobs = names("/proc/sys/vm");
    knobs.retain(|name| name.starts_with("dirty"));
    knobs.sort();
    knobs.iter().map(|name| format!("{name} {}", fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap())).collect()
}

/// Whether another test run has a live scenario: two would turn the same sysctls.
pub fn another_is_live() -> bool {
    Path::new(MEMORY).join(LIVE).exists() || std::env::temp_dir().join(LIVE).join(NOTES[0]).exists()
}

fn lines_with(path: &str, text: &str) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn loop_devices(folder: &str) -> Vec<String> {
    let file =
        |device: &String| fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).unwrap_or_default();
    names("/sys/block").into_iter().filter(|device| file(device).contains(folder)).collect()
}

fn process_numbers() -> Vec<u32> {
    names("/proc").iter().filter_map(|name| name.parse().ok()).collect()
}

/// Daemons and tenants have the site as their working directory; keepers have it in their argument.
fn processes(folder: &str) -> Vec<String> {
    let in_argument = folder.replace('/', "-");
    let described = process_numbers().into_iter().filter_map(|process| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let works_there = fs::read_link(format!("/proc/{process}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let is_ours = works_there || line.contains(folder) || line.contains(&in_argument);
        is_ours.then(|| format!("{process}: {line}"))
    });
    described.collect()
}

fn files(site: &Site) -> BTreeSet<String> {
    let of_state = site.path("state").to_string_lossy().replace('/', "-");
    let in_memory = names(MEMORY).into_iter().filter(|name| name.contains(&of_state) || name == LIVE);
    let in_state =
        names(site.path("state")).into_iter().filter(|name| name.ends_with(".sock") || name.starts_with("gates-"));
    let notes = names(site.path(LIVE)).into_iter().filter(|name| NOTES.contains(&name.as_str()));
    in_memory.chain(in_state).chain(notes).collect()
}

/// Groups of live scenarios, in all hierarchies.
fn groups() -> BTreeSet<String> {
    let below = |folder: &str| names(folder).into_iter().map(|name| format!("{folder}/{name}")).collect::<Vec<_>>();
    let hierarchies = below("/sys/fs/cgroup");
    let all = hierarchies.iter().flat_map(|hierarchy| below(hierarchy)).chain(hierarchies.iter().cloned());
    all.filter(|path| path.contains(LIVE)).collect()
}

mod programs {
    use super::{names, process_numbers};
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// `enum bpf_cmd`, include/uapi/linux/bpf.h.
    const PROG_GET_NEXT_ID: i64 = 11;
    const PROG_GET_FD_BY_ID: i64 = 13;
    /// Bytes of a program's name, the end included.
    const NAME_BYTES: usize = 16;

    /// The first members of `union bpf_attr` for both commands: a number, and the next one.
    #[repr(C)]
    struct Numbers {
        number: u32,
        next: u32,
        flags: u32,
    }

    fn bpf(command: i64, number: u32) -> Option<(i64, u32)> {
        let mut numbers = Numbers { number, next: 0, flags: 0 };
        // SAFETY: the pointer is to a whole attribute of the length that is told, which lives across the call.
        let outcome = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut numbers, size_of::<Numbers>()) };
        (outcome >= 0).then_some((outcome, numbers.next))
    }

    /// The names in our programs' source, as the kernel has them.
    fn our_names() -> BTreeSet<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tags/bpf");
        let sources = names(folder).into_iter().map(|name| fs::read_to_string(format!("{folder}/{name}")).unwrap());
        let named: BTreeSet<String> = sources
            .flat_map(|source| {
                let of = |line: &str| Some(line.strip_prefix("int BPF_PROG(")?.split([',', ')']).next()?.to_owned());
                source.lines().filter_map(of).collect::<Vec<_>>()
            })
            .map(|name| name.chars().take(NAME_BYTES - 1).collect())
            .collect();
        assert!(named.len() > 10, "{named:?}");
        named
    }

    fn held(process: u32, key: &str) -> BTreeSet<u32> {
        let folder = format!("/proc/{process}/fdinfo");
        let texts = names(&folder).into_iter().filter_map(|name| fs::read_to_string(format!("{folder}/{name}")).ok());
        let number = |text: String| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        texts.filter_map(number).collect()
    }

    pub(super) fn without_holder() -> BTreeSet<u32> {
        let ours = our_names();
        let (mut found, mut last) = (BTreeSet::new(), 0);
        while let Some((_, number)) = bpf(PROG_GET_NEXT_ID, last) {
            last = number;
            let Some((descriptor, _)) = bpf(PROG_GET_FD_BY_ID, number) else { continue };
            // SAFETY: the kernel has just opened it for us.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
            if ours.contains(&name_of(&descriptor)) {
                found.insert(number);
            }
        }
        let holders = if found.is_empty() { Vec::new() } else { process_numbers() };
        holders.into_iter().for_each(|process| found.retain(|number| !held(process, "prog_id:").contains(number)));
        found
    }

    /// The name of a program that is open (`BPF_OBJ_GET_INFO_BY_FD`).
    fn name_of(descriptor: &OwnedFd) -> String {
        const OBJ_GET_INFO_BY_FD: i64 = 15;
        /// Of `struct bpf_prog_info`.
        const NAME_OFFSET: usize = 64;
        #[repr(C)]
        struct Query {
            descriptor: u32,
            bytes: u32,
            info: u64,
        }
        let mut info = [0u8; NAME_OFFSET + NAME_BYTES];
        let mut query = Query {
            descriptor: descriptor.as_raw_fd() as u32,
            bytes: info.len() as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: both pointers are to memory of the lengths that are told, which lives across the call.
        let outcome = unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw mut query, size_of::<Query>()) };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
        let name = &info[NAME_OFFSET..];
        String::from_utf8_lossy(&name[..name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES)]).into_owned()
    }
}
