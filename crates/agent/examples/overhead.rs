//! What tags cost the writer: a 4 KiB rewrite of a cached page, and a write with fsync, with and without them, in turns.
//!
//! `overhead [ext4|xfs] [TURNS]` (root). The file system is on a loop device on a file in memory. Each turn measures
//! batches; the median of the fastest tenth of all batches of a kind stands for it, so that other work on the machine
//! disturbs both kinds alike. `--programs` also says what each program takes (`kernel.bpf_stats_enabled`).
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use plimsoll_tags::{Options, Tags};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const PAGE_BYTES: usize = 4096;
const FILE_PAGES: u64 = 16384;
const DISK_BYTES: u64 = 1 << 30;
/// Batches in a turn, and operations in a batch.
const REWRITES: (usize, usize) = (60, 1000);
const SYNCS: (usize, usize) = (20, 50);

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

/// Nanoseconds an operation, of each batch.
fn measure(file: &File, (batches, operations): (usize, usize), syncs: bool, seed: &mut u64) -> Outcome<Vec<f64>> {
    let page = [7u8; PAGE_BYTES];
    let mut each = Vec::new();
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..operations {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            file.write_all_at(&page, (*seed >> 33) % FILE_PAGES * PAGE_BYTES as u64)?;
            if syncs {
                file.sync_data()?;
            }
        }
        each.push(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    Ok(each)
}

/// The median of the fastest tenth, and of all.
fn summary(mut batches: Vec<f64>) -> (f64, f64) {
    batches.sort_by(f64::total_cmp);
    (batches[batches.len() / 20], batches[batches.len() / 2])
}

fn programs() -> Outcome<()> {
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1")?;
    Ok(())
}

fn print_programs() -> Outcome<()> {
    for program in libbpf_rs::query::ProgInfoIter::default().filter(|program| program.run_cnt > 0) {
        let (name, count) = (program.name.to_string_lossy().into_owned(), program.run_cnt);
        println!("    {name:<16} {count:>9} runs {:>7.0} ns each", program.run_time_ns as f64 / count as f64);
    }
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "0")?;
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file_system = arguments.first().map_or("ext4", String::as_str);
    let turns = arguments.get(1).map_or(Ok(10), |text| text.parse())?;
    let disk = Disk::new(file_system)?;
    let path = disk.mounted.join("file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    for page in 0..FILE_PAGES {
        file.write_all_at(&[1; PAGE_BYTES], page * PAGE_BYTES as u64)?;
    }
    file.sync_all()?;
    let options = Options::default();
    let mut seed = 1;
    let mut results: [[Vec<f64>; 2]; 2] = Default::default();
    for turn in 0..2 * turns {
        let has_tags = turn % 2;
        let tags = (has_tags == 1).then(|| Tags::load(Path::new(&disk.device), &options)).transpose()?;
        let is_last = turn + 1 == 2 * turns && arguments.iter().any(|word| word == "--programs");
        if is_last {
            programs()?;
        }
        if let (1, Some(tags)) = (turn, &tags) {
            println!("{file_system}: the maps take {:.1} MB", tags.memory_bytes() as f64 / 1e6);
        }
        measure(&file, (5, 1000), false, &mut seed)?;
        results[has_tags][0].extend(measure(&file, REWRITES, false, &mut seed)?);
        file.sync_all()?;
        results[has_tags][1].extend(measure(&file, SYNCS, true, &mut seed)?);
        if is_last {
            print_programs()?;
        }
        drop(tags);
    }
    for (number, name) in ["4 KiB rewritten in the cache", "4 KiB written with fdatasync"].iter().enumerate() {
        let (without, without_all) = summary(std::mem::take(&mut results[0][number]));
        let (with, with_all) = summary(std::mem::take(&mut results[1][number]));
        println!(
            "{file_system}, {name}: {:.2} -> {:.2} us (+{:.2} us, {:+.1} %); median of all {:.2} -> {:.2} us",
            without / 1e3,
            with / 1e3,
            (with - without) / 1e3,
            (with / without - 1.0) * 100.0,
            without_all / 1e3,
            with_all / 1e3,
        );
    }
    Ok(())
}
