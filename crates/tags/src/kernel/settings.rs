//! Constants of the programs, set before loading: the device, its layout, and addresses of the kernel.

use super::SWEEP;
use crate::coverage::Findings;
use crate::device::{Device, FileSystem, SECTOR_BYTES};
use crate::error::TagsError;
use crate::layout::StaticLayout;
use crate::shared::{CALL_WORDS, ENTRY_BYTES, Layout, Plain, Settings};
use crate::tag::BLOCK_BYTES;
use crate::{Coverage, Options};
use libbpf_rs::{MapCore, MapFlags, Object, OpenObject};
use rustix::mount::FsOpenFlags;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

const BTF_DIRECTORY: &str = "/sys/kernel/btf";
/// Modules with tracepoints that the programs use, where they are not built in.
const MODULES: [&str; 4] = ["vmlinux", "jbd2", "ext4", "xfs"];
/// How BTF names the type of a tracepoint.
const TRACEPOINT: &str = "btf_trace_";
/// Programs for records of requests: not loaded if the caller does not want them.
const REQUEST_PROGRAMS: [&str; 2] = ["block_rq_issue", "block_rq_complete"];
/// The program that reports returns from calls. Once attached, it delays every system call of the machine a little.
pub(super) const CALL_PROGRAM: &str = "sys_exit";
/// Slots of the table of tags: 256 MiB of blocks at least, and as many of 32 bytes as one map may have.
const SLOT_SHIFTS: std::ops::RangeInclusive<u32> = 16..=26;
/// Least lines of the table of dirty pages: one run of pages. Most: 4 GiB of lines.
const PAGE_LINES_MIN: u32 = 1 << 6;
const PAGE_LINES_MAX: u32 = 1 << 26;
/// The number of the first process identifier namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Whether programs can be loaded here at all.
pub(crate) fn check_machine() -> Result<(), TagsError> {
    let not_run = |why: &str| Err(TagsError::NotRun(why.to_owned()));
    if !rustix::process::geteuid().is_root() {
        return not_run("tags need root: they load BPF programs");
    }
    if !Path::new(BTF_DIRECTORY).join("vmlinux").exists() {
        return not_run("the kernel has no type information (CONFIG_DEBUG_INFO_BTF), which BPF programs need");
    }
    if fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.to_string_lossy() != FIRST_PID_NAMESPACE) {
        return not_run(
            "tags need the machine's own process numbers, this is a container's (start it with --pid=host)",
        );
    }
    Ok(())
}

/// What was found out before loading.
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) layout: StaticLayout,
    pub(super) slot_shift: u32,
    layout_problem: Option<String>,
    has_symbols: bool,
    left_out: Vec<String>,
}

impl Plan {
    pub(super) fn new(path: &Path, device: &Device, options: &Options) -> Result<Plan, TagsError> {
        let (layout, layout_problem) = match device.file_system {
            FileSystem::Ext4 => match StaticLayout::of(path) {
                Ok(layout) => (layout, None),
                Err(problem) => (StaticLayout::default(), Some(problem)),
            },
            _ => (StaticLayout::default(), None),
        };
        load_module(device.file_system);
        let symbols = Symbols::read()?;
        let slot_shift = slot_shift(device.sectors, options.tag_bytes_max);
        let mut left_out = options.left_out.clone();
        if options.event_bytes.is_none() || !options.has_request_events {
            left_out.extend(REQUEST_PROGRAMS.map(str::to_owned));
        }
        let mut calls = [0; CALL_WORDS];
        for &number in options.event_bytes.iter().flat_map(|_| &options.returns) {
            let word = calls.get_mut(number as usize / 64).ok_or(TagsError::Call { number })?;
            *word |= 1 << (number % 64);
        }
        if calls == [0; CALL_WORDS] {
            left_out.push(CALL_PROGRAM.to_owned());
        }
        let hierarchies = fs::read_to_string("/proc/cgroups").map_or(0, |text| text.lines().count().saturating_sub(1));
        let settings = Settings {
            start_sector: device.start_sector,
            slot_mask: (1 << slot_shift) - 1,
            end_of_buffer: symbols.address("end_bio_bh_io_sync"),
            end_of_journal: symbols.address("journal_end_buffer_io_sync"),
            end_of_fast_commit: symbols.address("ext4_end_buffer_io_sync"),
            end_of_xfs_log: symbols.address("xlog_bio_end_io"),
            end_of_xfs_buffer: symbols.address("xfs_buf_bio_end_io"),
            end_of_direct: symbols.address("iomap_dio_bio_end_io"),
            device: device.number,
            slot_shift,
            has_events: options.event_bytes.is_some().into(),
            has_account_per_process: options.has_account_per_process.into(),
            layout_ranges: layout.ranges.len() as u32,
            hierarchies: hierarchies as u32,
            block_sectors: layout
                .block_sectors
                .max((BLOCK_BYTES / SECTOR_BYTES) as u32 * u32::from(layout.ranges.is_empty())),
            has_flows: options.flows_max.is_some().into(),
            calls,
            page_line_mask: u64::from(page_lines(options.dirty_pages_max)) - 1,
            page_seed: RandomState::new().hash_one(device.number),
            inodes_per_group: layout.inodes.per_group,
            inode_bytes: layout.inodes.bytes,
        };
        let has_symbols = settings.end_of_buffer != 0;
        Ok(Plan { settings, layout, slot_shift, layout_problem, has_symbols, left_out })
    }

    /// Lines of the table of dirty pages.
    pub(super) fn page_lines(&self) -> u32 {
        self.settings.page_line_mask as u32 + 1
    }

    /// Leaves out what this kernel has no tracepoint for, and gives back its names.
    pub(super) fn select_programs(&self, open: &mut OpenObject) -> Result<Vec<String>, TagsError> {
        let tracepoints = tracepoints()?;
        let mut missing = Vec::new();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if name == SWEEP {
                continue;
            }
            let is_there = tracepoints.contains(name.as_bytes());
            if !is_there {
                missing.push(name.clone());
            }
            program.set_autoload(is_there && !self.left_out.contains(&name));
        }
        Ok(missing)
    }

    /// Hands the layout to the programs.
    pub(super) fn tell_layout(&self, object: &Object) -> Result<(), TagsError> {
        fill(object, "layouts", self.layout.ranges.iter().map(Layout::bytes))?;
        fill(object, "inode_tables", self.layout.inodes.tables.iter().map(Plain::bytes))
    }

    pub(super) fn coverage(self, device: &Device, missing: &[String]) -> Coverage {
        Coverage::of(Findings {
            file_system: device.file_system,
            is_mounted: device.mounted.is_some(),
            layout_problem: self.layout_problem,
            has_symbols: self.has_symbols,
            missing: missing.iter().map(String::as_str).collect(),
        })
    }
}

/// Writes an array of the programs' from its beginning.
fn fill(object: &Object, name: &str, values: impl Iterator<Item = Vec<u8>>) -> Result<(), TagsError> {
    let map = object.maps().find(|map| map.name() == name).expect("it is compiled in");
    for (number, value) in (0u32..).zip(values) {
        map.update(&number.bytes(), &value, MapFlags::ANY).map_err(super::refused("write the layout"))?;
    }
    Ok(())
}

/// Logarithm of the number of slots: one for each block, or as many as are allowed.
fn slot_shift(sectors: u64, tag_bytes_max: u64) -> u32 {
    let blocks = (sectors * SECTOR_BYTES).div_ceil(BLOCK_BYTES);
    let slots_allowed = (tag_bytes_max / ENTRY_BYTES as u64).max(1);
    let needed = blocks.next_power_of_two().trailing_zeros();
    needed.min(slots_allowed.ilog2()).clamp(*SLOT_SHIFTS.start(), *SLOT_SHIFTS.end())
}

/// Lines of the table of dirty pages, of four entries each (`bpf/page_table.h`). With the most dirty pages, a line has
/// one and a half on average at most. One page in a thousand then finds no room in either of its lines.
fn page_lines(dirty_pages_max: u32) -> u32 {
    let lines = (u64::from(dirty_pages_max) * 2).div_ceil(3).next_power_of_two();
    u32::try_from(lines).map_or(PAGE_LINES_MAX, |lines| lines.clamp(PAGE_LINES_MIN, PAGE_LINES_MAX))
}

/// Loads the module of a file system, which otherwise its first mount does. Without it there are no tracepoints. Asking
/// for a context to mount it loads it too; if there is none, its programs are left out, and `Coverage` says so.
fn load_module(file_system: FileSystem) {
    let name = match file_system {
        FileSystem::Ext4 => "ext4",
        FileSystem::Xfs => "xfs",
        FileSystem::Btrfs | FileSystem::Other => return,
    };
    let _ = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC);
}

/// The names of all tracepoints that programs can be attached to.
fn tracepoints() -> Result<BTreeSet<Vec<u8>>, TagsError> {
    let mut names = BTreeSet::new();
    for module in MODULES {
        let path = Path::new(BTF_DIRECTORY).join(module);
        match fs::read(&path) {
            Ok(types) => names.extend(
                types
                    .split(|byte| *byte == 0)
                    .filter_map(|name| name.strip_prefix(TRACEPOINT.as_bytes()).map(<[u8]>::to_vec)),
            ),
            Err(_) if module != "vmlinux" => {}
            Err(error) => return Err(TagsError::file(path)(error)),
        }
    }
    Ok(names)
}

/// Addresses of the kernel's functions.
struct Symbols {
    text: String,
}

impl Symbols {
    fn read() -> Result<Symbols, TagsError> {
        const PATH: &str = "/proc/kallsyms";
        Ok(Symbols { text: fs::read_to_string(PATH).map_err(TagsError::file(PATH))? })
    }

    /// Address of the function `name`; 0 if it is missing, hidden, or not unique.
    fn address(&self, name: &str) -> u64 {
        let mut addresses = self.text.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (address, _, symbol) = (fields.next()?, fields.next()?, fields.next()?);
            (symbol == name).then(|| u64::from_str_radix(address, 16).ok())?
        });
        match (addresses.next(), addresses.next()) {
            (Some(address), None) => address,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_slot_for_each_block_unless_that_is_too_much() {
        let sectors = |mib: u64| mib * 2048;
        assert_eq!(slot_shift(sectors(1), 64 << 20), 16, "no fewer");
        assert_eq!(slot_shift(sectors(1024), 64 << 20), 18);
        assert_eq!(slot_shift(sectors(1025), 64 << 20), 19);
        assert_eq!(slot_shift(sectors(1 << 20), 64 << 20), 21, "no more than is allowed");
        assert_eq!(slot_shift(sectors(1 << 20), u64::MAX), 26, "nor than a map may have");
    }

    #[test]
    fn a_line_has_no_more_than_one_and_a_half_of_its_four_entries_in_use() {
        assert_eq!(page_lines(0), 64, "one run of pages");
        assert_eq!(page_lines(1000), 1024);
        for pages in [1 << 16, 1 << 18, 1_250_000, (3 << 19) + 1, 3 << 20] {
            let a_line = f64::from(pages) / f64::from(page_lines(pages));
            assert!((0.7..=1.5).contains(&a_line), "{pages} pages: {a_line}");
        }
        assert_eq!(page_lines(u32::MAX), 1 << 26, "4 GiB, and no more");
    }

    #[test]
    fn a_symbol_that_is_there_twice_has_no_address() {
        let text = "ffffffff81000000 t once\nffffffff81000010 t twice\nffffffff81000020 t twice [xfs]\n".to_owned();
        let symbols = Symbols { text };
        assert_eq!(symbols.address("once"), 0xffff_ffff_8100_0000);
        assert_eq!(symbols.address("twice"), 0);
        assert_eq!(symbols.address("never"), 0);
    }
}
