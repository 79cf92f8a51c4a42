//! What tags cost a writer: without them, with those that only tell causes, and as a station above a volume and one
//! above an observed disk load them, in turns.
//!
//! `overhead [ext4|xfs] [ROUNDS] [--programs]` (root). The file system is on a loop device on a file in memory, and the
//! writer is a tenant. A round measures all kinds of writes in all of these ways, each round beginning with another.
//! For a turn stands what a tenth of its batches are faster than, so that other work on the machine disturbs all alike.
//! `--programs` also says what each program takes, for which the kernel counts in an extra round.
//!
//! A sync goes from thread to thread, and each waits for the next one's processor to wake. In a virtual machine that
//! takes longer than all the rest; so every processor is kept awake, by a loop that gives way to everything else. Which
//! thread runs on which processor still gives a turn one of some values that are a quarter to three times apart, with
//! tags or without, and chance decides which. What tags add is an eighth at most, so two turns with the same placement
//! of threads are known by their similar rates. Of syncs each turn with tags is compared with each one without. Of the
//! pairs that are [`ALIKE`] the median is printed. How many pairs are not, and to which side, shows whether tags also
//! change the placement; what chance does to it shows the way that has a thread but no tags.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use plimsoll_agent::levels::pace::{FETCH_QUIET, Pace};
use plimsoll_agent::memory::dirty_bytes_max;
use plimsoll_agent::station::{Disk as Below, tag_options};
use plimsoll_core::{Span, Time};
use plimsoll_gates::Filter;
use plimsoll_tags::{Options, Tags, TagsError, program_costs};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAGE_BYTES: u64 = 4096;
const FILE_PAGES: u64 = 16384;
const DISK_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 12;
/// How tags are loaded, in the order of [`load`].
const WAYS: [&str; 6] = [
    "without",
    "without, beside a thread that wakes as a station's",
    "tags",
    "as a volume's station",
    "as a disk's station",
    "as a disk's station with notified calls",
];
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// What a write may cost more in the cache, microseconds (ext4, XFS), and with a sync, per cent.
const REWRITE_GOALS_US: [(&str, f64); 2] = [("ext4", 0.5), ("xfs", 0.75)];
const SYNC_GOAL_PERCENT: f64 = 10.0;
/// How many times a turn without tags one with them takes if both had their threads placed alike.
const ALIKE: RangeInclusive<f64> = 0.9..=1.2;
/// Fewer pairs than these, per cent, say nothing, unless all others are slower.
const PAIRS_PERCENT_MIN: f64 = 10.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn run(program: &str, arguments: &[&str]) -> Outcome<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{program} {arguments:?}: {said}").into()) }
}

/// A mounted file system that goes when it is dropped.
struct Disk {
    directory: PathBuf,
    device: String,
    mounted: PathBuf,
}

impl Disk {
    fn new(file_system: &str) -> Outcome<Disk> {
        let directory = PathBuf::from(format!("/dev/shm/plimsoll-tags-{}-overhead", std::process::id()));
        let (image, mounted) = (directory.join("image"), directory.join("mounted"));
        fs::create_dir_all(&mounted)?;
        let mut disk = Disk { directory, device: String::new(), mounted };
        File::create(&image)?.set_len(DISK_BYTES)?;
        disk.device = run("losetup", &["-f", "--show", "--direct-io=on", &image.to_string_lossy()])?.trim().to_owned();
        match file_system {
            "ext4" => run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &disk.device])?,
            "xfs" => run("mkfs.xfs", &["-q", "-f", &disk.device])?,
            other => return Err(format!("{other}: allowed are ext4 and xfs").into()),
        };
        run("mount", &[&disk.device, &disk.mounted.to_string_lossy()])?;
        Ok(disk)
    }

    fn file(&self, name: &str) -> Outcome<File> {
        let path = self.mounted.join(name);
        Ok(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &[&self.mounted.to_string_lossy()]);
        if !self.device.is_empty() {
            let _ = run("losetup", &["-d", &self.device]);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Keeps a processor awake as long as its parent is there, and looks for it now and then.
const SPIN: &str = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";

/// Processes that keep all processors awake and give way to every other one.
struct Awake(Vec<Child>);

impl Awake {
    fn new() -> Outcome<Awake> {
        let mut awake = Awake(Vec::new());
        for _ in 0..std::thread::available_parallelism()?.get() {
            let spinner = Command::new("chrt").args(["--idle", "0", "sh", "-c", SPIN]).spawn();
            awake.0.push(spinner.map_err(|error| format!("chrt (Debian: util-linux): {error}"))?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// A thread that looks now and then until it is dropped.
struct Looking {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Looking {
    /// `look` also says how long until the next one.
    fn new(mut look: impl FnMut() -> Duration + Send + 'static) -> Looking {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !is_over_seen.load(Ordering::Relaxed) {
                std::thread::park_timeout(look());
            }
        });
        Looking { is_over, thread: Some(thread) }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// An observed disk.
fn observed() -> Below {
    Below::Observed { pool: String::new(), is_by_submitter: false }
}

/// Tags with this process as a tenant, and a thread that takes their events as a station does, if there are any.
fn load(device: &str, way: usize) -> Outcome<Option<Looking>> {
    let options = match way {
        0 => return Ok(None),
        1 => return Ok(Some(Looking::new(|| Duration::from_nanos(FETCH_QUIET.as_nanos())))),
        2 => Options::default(),
        3 => tag_options(Filter::default(), dirty_bytes_max(), &Below::Volume(String::new())),
        _ => tag_options(Filter::default(), dirty_bytes_max(), &observed()),
    };
    let mut tags = Tags::load(Path::new(device), &options)?;
    tags.tell_returns(way == WAYS.len() - 1)?;
    let account = tags.accounts().open("writer")?;
    tags.accounts().register_process(account, std::process::id())?;
    let has_events = options.event_bytes.is_some();
    let (start, mut pace) = (Instant::now(), Pace::default());
    Ok(Some(Looking::new(move || {
        tags.events(usize::MAX, |event| pace.found(&event));
        let now = Time::ZERO + Span::from(start.elapsed());
        // No tenant waits, and what is measured never stops for as long as a pause.
        let pause = pace.next(now, false).since(now);
        if has_events { Duration::from_nanos(pause.as_nanos()) } else { Duration::MAX }
    })))
}

/// What is done with the two files.
struct Writer {
    rewritten: File,
    appended: File,
    seed: u64,
}

impl Writer {
    fn new(disk: &Disk) -> Outcome<Writer> {
        let (rewritten, appended) = (disk.file("rewritten")?, disk.file("appended")?);
        for page in 0..FILE_PAGES {
            rewritten.write_all_at(&[1; PAGE_BYTES as usize], page * PAGE_BYTES)?;
        }
        rewritten.sync_all()?;
        Ok(Writer { rewritten, appended, seed: 1 })
    }

    fn rewrite(&mut self) -> Outcome<()> {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (self.seed >> 33) % FILE_PAGES;
        Ok(self.rewritten.write_all_at(&[7; PAGE_BYTES as usize], page * PAGE_BYTES)?)
    }

    /// The writes of one kind, `number` of a batch.
    fn write(&mut self, kind: &Kind, number: u64) -> Outcome<()> {
        match kind.what {
            What::Rewrite => self.rewrite(),
            What::RewriteAndSync => {
                self.rewrite()?;
                Ok(self.rewritten.sync_data()?)
            }
            What::AppendAndSync => {
                self.appended.write_all_at(&[7; PAGE_BYTES as usize], number * PAGE_BYTES)?;
                Ok(self.appended.sync_all()?)
            }
        }
    }

    /// Nanoseconds a write, as a tenth of the batches are faster.
    fn measure(&mut self, kind: &Kind) -> Outcome<f64> {
        self.rewritten.sync_all()?;
        let mut each = Vec::new();
        for _ in 0..kind.batches {
            self.appended.set_len(0)?;
            self.appended.sync_all()?;
            let start = Instant::now();
            for number in 0..kind.writes {
                self.write(kind, number)?;
            }
            each.push(start.elapsed().as_nanos() as f64 / kind.writes as f64);
        }
        Ok(part(each, 0.1))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Rewrite,
    RewriteAndSync,
    AppendAndSync,
}

struct Kind {
    name: &'static str,
    what: What,
    batches: u64,
    writes: u64,
}

const KINDS: [Kind; 3] = [
    Kind { name: "4 KiB rewritten in the cache", what: What::Rewrite, batches: 60, writes: 1000 },
    Kind { name: "4 KiB rewritten, fdatasync", what: What::RewriteAndSync, batches: 40, writes: 25 },
    Kind { name: "4 KiB appended, fsync", what: What::AppendAndSync, batches: 40, writes: 25 },
];

/// What this part of the values are below.
fn part(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() as f64 * part) as usize]
}

fn median(values: Vec<f64>) -> f64 {
    part(values, 0.5)
}

/// Rewrites in one way beside those without tags: of each round the turn of both, nanoseconds.
fn print_rewrites(file_system: &str, without: &[f64], with: &[f64]) {
    let goal_us = REWRITE_GOALS_US.iter().find(|(name, _)| *name == file_system).map_or(0.0, |(_, goal)| *goal);
    let more_us = median(without.iter().zip(with).map(|(without, with)| with - without).collect()) / 1e3;
    let [without_us, with_us] = [without, with].map(|turns| median(turns.to_vec()) / 1e3);
    let verdict = if more_us <= goal_us { "met" } else { "missed" };
    println!("{without_us:.2} -> {with_us:.2} us ({more_us:+.2} us); goal +{goal_us} us: {verdict}");
}

/// Syncs in one way beside those without tags: the turns of both, nanoseconds.
fn print_syncs(without: &[f64], with: &[f64]) {
    let ratios: Vec<f64> = with.iter().flat_map(|with| without.iter().map(move |without| with / without)).collect();
    let percent = |is_one: &dyn Fn(f64) -> bool| {
        ratios.iter().filter(|ratio| is_one(**ratio)).count() as f64 / ratios.len() as f64 * 100.0
    };
    let alike_percent = percent(&|ratio| ALIKE.contains(&ratio));
    let (faster, slower) = (percent(&|ratio| ratio < *ALIKE.start()), percent(&|ratio| ratio > *ALIKE.end()));
    let alike: Vec<f64> = ratios.iter().copied().filter(|ratio| ALIKE.contains(ratio)).collect();
    let placed = format!("pairs placed alike {alike_percent:.0} %, faster {faster:.0} %, slower {slower:.0} %");
    if alike_percent < PAIRS_PERCENT_MIN {
        let verdict = if slower > 100.0 - PAIRS_PERCENT_MIN { "missed" } else { "not decided" };
        println!("{placed}; goal +{SYNC_GOAL_PERCENT} %: {verdict}");
        return;
    }
    let more_percent = (median(alike) - 1.0) * 100.0;
    let verdict = if more_percent <= SYNC_GOAL_PERCENT { "met" } else { "missed" };
    println!("{more_percent:+.1} %, {placed}; goal +{SYNC_GOAL_PERCENT} %: {verdict}");
}

/// What each program takes in one turn of each kind, with the tags of a station.
fn print_programs(device: &str, writer: &mut Writer) -> Outcome<()> {
    for kind in &KINDS {
        let tags = load(device, WAYS.len() - 1)?;
        fs::write(STATISTICS, "1")?;
        let measured = writer.measure(kind);
        fs::write(STATISTICS, "0")?;
        measured?;
        println!("  {}, {} times:", kind.name, kind.batches * kind.writes);
        for cost in program_costs().into_iter().filter(|cost| cost.runs > 0) {
            let each = cost.nanoseconds as f64 / cost.runs as f64;
            println!("    {:<16} {:>9} runs {each:>7.0} ns each", cost.name, cost.runs);
        }
        drop(tags);
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let file_system = words.first().map_or("ext4", String::as_str);
    let rounds = words.get(1).map_or(Ok(ROUNDS), |text| text.parse())?;
    if let Err(TagsError::NotRun(why)) = Tags::load(Path::new("/dev/null"), &Options::default()) {
        println!("not run: {why}");
        return Ok(());
    }
    let disk = Disk::new(file_system)?;
    let mut writer = Writer::new(&disk)?;
    let _awake = Awake::new()?;
    // By kind and way, of each round what stands for the turn.
    let mut results: [[Vec<f64>; WAYS.len()]; KINDS.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let tags = load(&disk.device, way)?;
            for (kind, results) in KINDS.iter().zip(&mut results) {
                results[way].push(writer.measure(kind)?);
            }
            drop(tags);
        }
    }
    for (kind, ways) in KINDS.iter().zip(&results) {
        for (name, turns) in WAYS.iter().zip(ways).skip(1) {
            print!("{file_system}, {}, {name}: ", kind.name);
            match kind.what {
                What::Rewrite => print_rewrites(file_system, &ways[0], turns),
                _ => print_syncs(&ways[0], turns),
            }
        }
    }
    if flags.iter().any(|flag| flag == "--programs") {
        print_programs(&disk.device, &mut writer)?;
    }
    Ok(())
}
