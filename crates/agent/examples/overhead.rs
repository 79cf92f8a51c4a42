//! What tags cost who writes: without them, with those that only tell causes, and as a station above a volume and one above a disk that is
//! not ours load them, in turns.
//!
//! `overhead [ext4|xfs] [ROUNDS] [--programs]` (root). The file system is on a loop device on a file in memory, and who writes
//! is a tenant. A round measures all kinds of writes in all of these ways, each round beginning with another. For a turn stands
//! what a tenth of its batches are faster than, so that other work on the machine disturbs all alike; printed are the medians
//! of the rounds, of their differences and of their ratios, with what was the goal. `--programs` also says what each program takes, for which the kernel counts in an extra round.
//!
//! A sync goes from thread to thread, and each waits for the next one's processor to wake. In a virtual machine that takes longer than
//! all the rest, and now this long and now that; so every processor is kept awake, by a loop that gives way to everything else. Which thread
//! runs on which processor still gives whole turns one of some values, up to three times the least. Of syncs, the medians of the rounds and the
//! fastest batches of all turns are therefore compared: a goal is met if both say so, and missed if both do. Else threads were placed otherwise
//! in one way than in the other, and nothing is said.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use plimsoll_agent::levels::pace::Pace;
use plimsoll_agent::memory::dirty_bytes_max;
use plimsoll_agent::station::{Disk as Below, tag_options};
use plimsoll_core::{Span, Time};
use plimsoll_gates::Filter;
use plimsoll_tags::{Options, Tags, TagsError, program_costs};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
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
/// How tags are loaded, in the order of [`Loaded::new`].
const WAYS: [&str; 5] =
    ["without", "tags", "as a volume's station", "as a disk's station", "as a disk's station with notified calls"];
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// What a write may cost more in the cache, microseconds (ext4, XFS), and with a sync, per cent.
const REWRITE_GOALS_US: [(&str, f64); 2] = [("ext4", 0.5), ("xfs", 0.75)];
const SYNC_GOAL_PERCENT: f64 = 10.0;

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

/// Tags with this process as a tenant, and somebody who takes their events as a station does, if there are any.
struct Loaded {
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// A disk that is not ours.
fn observed() -> Below {
    Below::Observed { pool: String::new(), is_by_submitter: false }
}

impl Loaded {
    fn new(device: &str, way: usize) -> Outcome<Option<Loaded>> {
        let options = match way {
            0 => return Ok(None),
            1 => Options::default(),
            2 => tag_options(Filter::default(), dirty_bytes_max(), &Below::Volume(String::new())),
            _ => tag_options(Filter::default(), dirty_bytes_max(), &observed()),
        };
        let mut tags = Tags::load(Path::new(device), &options)?;
        tags.tell_returns(way == WAYS.len() - 1)?;
        let account = tags.accounts().open("writer")?;
        tags.accounts().register_process(account, std::process::id())?;
        let has_events = options.event_bytes.is_some();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_seen = Arc::clone(&is_over);
        let reader = std::thread::spawn(move || {
            let (start, mut pace) = (Instant::now(), Pace::default());
            while !is_over_seen.load(Ordering::Relaxed) {
                tags.events(usize::MAX, |event| pace.found(&event));
                let now = Time::ZERO + Span::from(start.elapsed());
                // Nobody waits, and what is measured never stops for as long as a pause.
                let pause = pace.next(now, false).since(now);
                let pause = if has_events { Duration::from_nanos(pause.as_nanos()) } else { Duration::MAX };
                std::thread::park_timeout(pause);
            }
        });
        Ok(Some(Loaded { is_over, reader: Some(reader) }))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            reader.thread().unpark();
            let _ = reader.join();
        }
    }
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

    /// Nanoseconds a write, of each batch.
    fn measure(&mut self, kind: &Kind) -> Outcome<Vec<f64>> {
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
        Ok(each)
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

/// One kind in one way beside the first way: of each round both, nanoseconds, and the fastest batches of all.
fn print(file_system: &str, kind: &Kind, way: &str, rounds: &[(f64, f64)], fastest: (f64, f64)) {
    let of = |figure: fn(&(f64, f64)) -> f64| median(rounds.iter().map(figure).collect());
    let (without, with) = (of(|round| round.0) / 1e3, of(|round| round.1) / 1e3);
    let more_us = of(|round| round.1 - round.0) / 1e3;
    let more_percent = (of(|round| round.1 / round.0) - 1.0) * 100.0;
    let (fast_without, fast_with) = (fastest.0 / 1e3, fastest.1 / 1e3);
    let fast_percent = (fast_with / fast_without - 1.0) * 100.0;
    let (are_met, goal) = if kind.what == What::Rewrite {
        let goal = REWRITE_GOALS_US.iter().find(|(name, _)| *name == file_system).map_or(0.0, |(_, goal)| *goal);
        ([more_us <= goal; 2], format!("+{goal} us"))
    } else {
        ([more_percent, fast_percent].map(|percent| percent <= SYNC_GOAL_PERCENT), format!("+{SYNC_GOAL_PERCENT} %"))
    };
    let verdict = match are_met {
        [true, true] => "met",
        [false, false] => "missed",
        _ => "not decided, as threads were placed",
    };
    let name = kind.name;
    println!(
        "{file_system}, {name}, {way}: {without:.2} -> {with:.2} us ({more_us:+.2} us, {more_percent:+.1} %), \
         fastest {fast_without:.2} -> {fast_with:.2} us ({fast_percent:+.1} %); goal {goal}: {verdict}"
    );
}

/// What each program takes in one turn of each kind, with the tags of a station.
fn print_programs(device: &str, writer: &mut Writer) -> Outcome<()> {
    for kind in &KINDS {
        let tags = Loaded::new(device, WAYS.len() - 1)?;
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
    // By kind and way, of each round all batches.
    let mut results: [[Vec<Vec<f64>>; WAYS.len()]; KINDS.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let tags = Loaded::new(&disk.device, way)?;
            for (kind, results) in KINDS.iter().zip(&mut results) {
                results[way].push(writer.measure(kind)?);
            }
            drop(tags);
        }
    }
    let of_turn = |batches: &Vec<f64>| part(batches.clone(), 0.1);
    let fastest = |turns: &Vec<Vec<f64>>| turns.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    for (kind, ways) in KINDS.iter().zip(&results) {
        for (way, name) in WAYS.iter().enumerate().skip(1) {
            let pairs: Vec<_> = ways[0].iter().map(of_turn).zip(ways[way].iter().map(of_turn)).collect();
            print(file_system, kind, name, &pairs, (fastest(&ways[0]), fastest(&ways[way])));
        }
    }
    if flags.iter().any(|flag| flag == "--programs") {
        print_programs(&disk.device, &mut writer)?;
    }
    Ok(())
}
