//! A file system on a loop device on a file in memory. What a killed run left behind, the next one removes.

use plimsoll_core::AccountId;
use plimsoll_tags::{Options, Tags, TagsError};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

pub const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// Before the number of the process in the names of all that is made.
const MARK: &str = "plimsoll-tags-";
const IMAGE: &str = "image";
const SIZE_BYTES: u64 = 1 << 30;

/// One test at a time has a file system: they would only share two processors.
static TURN: Mutex<()> = Mutex::new(());
static CLEAN: Once = Once::new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether tags can be tried here; prints why not.
pub fn can_run(programs: &[&str]) -> bool {
    let problem = if !rustix::process::geteuid().is_root() {
        Some("needs root for mounts, loop devices and BPF programs".to_owned())
    } else {
        programs.iter().find(|program| !is_installed(program)).map(|program| format!("{program} is missing"))
    };
    let problem = problem.or_else(|| match Tags::load(Path::new("/dev/null"), &Options::default()) {
        Err(TagsError::NotRun(why)) => Some(why),
        _ => None,
    });
    if let Some(problem) = &problem {
        println!("not run: {problem}");
    }
    problem.is_none()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories.into_iter().any(|directory| directory.join(program).is_file())
}

fn directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Runs a program, and gives back what it printed and whether it went well.
pub fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn run_well(program: &str, arguments: &[&str]) -> String {
    let (is_well, text) = run(program, arguments);
    assert!(is_well, "{program} {arguments:?}: {text}");
    text
}

/// A loop device on the file, past the page cache where its file system can do that (tmpfs: from 6.6 on).
fn attach(image: &Path) -> String {
    let image = image.to_string_lossy();
    match run("losetup", &["-f", "--show", "--direct-io=on", &image]) {
        (true, device) => device.trim().to_owned(),
        (false, _) => run_well("losetup", &["-f", "--show", &image]).trim().to_owned(),
    }
}

/// Unmounts, detaches and deletes what is in `directory`, which is one of ours. Never panics.
fn clean(directory: &Path) {
    let mounted = directory.join("mounted");
    if mounted.exists() && run("mountpoint", &["-q", &mounted.to_string_lossy()]).0 {
        run("umount", &[&mounted.to_string_lossy()]);
    }
    let (_, devices) = run("losetup", &["-n", "-O", "NAME", "-j", &directory.join(IMAGE).to_string_lossy()]);
    for device in devices.split_whitespace() {
        run("losetup", &["-d", device]);
    }
    let _ = fs::remove_dir_all(directory);
}

fn clean_leftovers() {
    for entry in fs::read_dir(directory()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(MARK).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            println!("removing what a killed run left: {name}");
            clean(&entry.path());
        }
    }
}

/// A mounted file system with tags. Dropping it removes everything.
pub struct Rig {
    pub tags: Tags,
    pub mounted: PathBuf,
    pub device: PathBuf,
    cleaner: Cleaner,
}

struct Cleaner {
    directory: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        clean(&self.directory);
    }
}

impl Rig {
    /// `options` are mkfs's, after "ext4", "xfs" or "btrfs"; `mount` are those of mount.
    pub fn new(file_system: &str, mkfs: &[&str], mount: &str) -> Rig {
        Rig::with(file_system, mkfs, mount, &Options::default())
    }

    pub fn with(file_system: &str, mkfs: &[&str], mount: &str, options: &Options) -> Rig {
        CLEAN.call_once(clean_leftovers);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = directory().join(format!("{MARK}{}-{number}", std::process::id()));
        let cleaner = Cleaner { directory: directory.clone(), _turn: turn };
        let (image, mounted) = (directory.join(IMAGE), directory.join("mounted"));
        fs::create_dir_all(&mounted).unwrap();
        File::create(&image).unwrap().set_len(SIZE_BYTES).unwrap();
        let device = attach(&image);
        let arguments: &[&str] = match file_system {
            "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            "xfs" => &["-q", "-f", "-s", "size=4096"],
            "btrfs" => &["-q", "-f"],
            other => panic!("{other}"),
        };
        run_well(&format!("mkfs.{file_system}"), &[arguments, mkfs, &[&device]].concat());
        let device = PathBuf::from(device);
        let tags = Tags::load(&device, options).unwrap_or_else(|error| panic!("{error}"));
        let point = mounted.to_string_lossy();
        run_well("mount", &["-t", file_system, "-o", mount, &device.to_string_lossy(), &point]);
        Rig { tags, mounted, device, cleaner }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mounted.join(name)
    }

    /// Unmounts it and mounts it once more, with the tags as they are.
    pub fn mount_again(&self, file_system: &str) {
        let (device, point) = (self.device.to_string_lossy(), self.mounted.to_string_lossy());
        run_well("umount", &[&point]);
        run_well("mount", &["-t", file_system, &device, &point]);
    }

    pub fn account(&mut self, name: &str) -> AccountId {
        self.tags.accounts().open(name).unwrap()
    }

    /// Writes everything back, from this process, which caused none of it.
    pub fn sync(&self) {
        rustix::fs::syncfs(File::open(&self.mounted).unwrap()).unwrap();
    }

    /// 4 KiB blocks of the device.
    pub fn blocks(&self) -> u64 {
        SIZE_BYTES / plimsoll_tags::BLOCK_BYTES
    }
}

/// Stops a mounted file system so that everything is in its place on the device, and lets it go on when dropped.
/// `FIFREEZE`, `FITHAW`: `include/uapi/linux/fs.h`.
pub struct Frozen(File);

const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

impl Frozen {
    pub fn new(mounted: &Path) -> Frozen {
        let file = File::open(mounted).unwrap();
        // SAFETY: the call takes no argument of ours.
        let outcome = unsafe { libc::ioctl(file.as_raw_fd(), FIFREEZE, 0) };
        assert!(outcome == 0, "freeze {}: {}", mounted.display(), std::io::Error::last_os_error());
        Frozen(file)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // SAFETY: as above.
        let outcome = unsafe { libc::ioctl(self.0.as_raw_fd(), FITHAW, 0) };
        assert!(outcome == 0 || std::thread::panicking(), "thaw: {}", std::io::Error::last_os_error());
    }
}
