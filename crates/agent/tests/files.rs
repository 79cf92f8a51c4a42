//! Files are found by their inode on real ext4, XFS and btrfs.

use plimsoll_agent::files::{FILES_MAX, Files, KEPT_FOR};
use plimsoll_agent::mounts::{MountedDisk, device_numbers};
use plimsoll_core::{FileId, Span, Time};
use rustix::thread::UnshareFlags;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A deleted file may be held by others for so many pauses.
const PATIENCE_ATTEMPTS: u32 = 1000;
const PAUSE: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A file system on a loop device, gone with this; in a mount namespace of this thread alone, so that a test that is
/// killed leaves none either.
struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    fn mount_point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mount_point()).status();
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}

fn mounted(mkfs: &str) -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: files by inode need root");
        return None;
    }
    // SAFETY: the thread shares its mounts and working directory with no other thread from now on, and no code relies
    // on sharing.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    run("mount", &["--make-rprivate", "/"]).unwrap();
    mounted_here(mkfs)
}

fn mounted_here(mkfs: &str) -> Option<Mounted> {
    let directory = tempfile::Builder::new().prefix("plimsoll-agent-files-").tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    let mounted = Mounted { directory };
    std::fs::create_dir(mounted.mount_point()).unwrap();
    let (image, mount_point) = (image.to_str().unwrap().to_owned(), mounted.mount_point());
    // The loop device goes with the mount.
    let made =
        run(mkfs, &["-q", &image]).and_then(|()| run("mount", &["-o", "loop", &image, mount_point.to_str().unwrap()]));
    match made {
        Ok(()) => Some(mounted),
        Err(error) => {
            eprintln!("not run: {error}");
            None
        }
    }
}

fn id(path: &Path) -> FileId {
    FileId(std::fs::metadata(path).unwrap().ino())
}

fn content(files: &mut Files, file: FileId) -> Option<String> {
    let mut text = String::new();
    let found = files.find(Time::ZERO, file)?;
    (&*found).read_to_string(&mut text).unwrap();
    Some(text)
}

fn finds_files(mounted: &Mounted) {
    let mount_point = mounted.mount_point();
    let mut files = Files::of(&mount_point).unwrap();
    for n in 0..50 {
        let path = mount_point.join(format!("file-{n}"));
        std::fs::write(&path, format!("content {n}")).unwrap();
        assert_eq!(content(&mut files, id(&path)), Some(format!("content {n}")));
    }
    let directory = mount_point.join("directory");
    std::fs::create_dir(&directory).unwrap();
    assert_eq!(content(&mut files, id(&directory)), None, "a directory");
    assert_eq!(content(&mut files, FileId::DEVICE), None);
    assert_eq!(content(&mut files, FileId(u64::MAX)), None);
    assert_eq!(content(&mut files, FileId(1 << 33 | 131)), None);
    // The file is deleted and its number used again: `find` returns the new file, once the old one is closed.
    let path = mount_point.join("file-7");
    let old = id(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(files.find(Time::ZERO + Span::from_millis(1), old).is_some(), "it is kept");
    // Another process's sync may hold on to the deleted file for a moment.
    let is_gone = (0..PATIENCE_ATTEMPTS).any(|_| {
        files.close_old(Time::ZERO + KEPT_FOR + Span::from_millis(1));
        let is_gone = content(&mut files, old).is_none();
        let _ = rustix::thread::nanosleep(&PAUSE);
        is_gone
    });
    assert!(is_gone, "it is there though it was deleted");
    std::fs::write(&path, "again").unwrap();
    assert_eq!(content(&mut files, id(&path)).as_deref(), Some("again"));
    for n in 0..2 * FILES_MAX {
        let path = mount_point.join(format!("many-{n}"));
        std::fs::write(&path, "x").unwrap();
        files.find(Time::ZERO, id(&path)).unwrap();
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.unwrap().path().read_link().ok());
    let open = open.filter(|path| path.starts_with(&mount_point)).count();
    assert!((1..=FILES_MAX + 1).contains(&open), "{open} are open");
}

#[test]
fn on_ext4() {
    if let Some(mounted) = mounted("mkfs.ext4") {
        finds_files(&mounted);
    }
}

#[test]
fn on_xfs() {
    if let Some(mounted) = mounted("mkfs.xfs") {
        finds_files(&mounted);
    }
}

#[test]
fn on_btrfs() {
    if let Some(mounted) = mounted("mkfs.btrfs") {
        finds_files(&mounted);
    }
}

/// The number of the device that a file has.
fn number(path: &Path) -> (u32, u32) {
    let device = std::fs::metadata(path).unwrap().dev();
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn mount(arguments: &[&std::ffi::OsStr]) {
    let output = Command::new("mount").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether this process has a table of mounts of its own; if not, the test with this name is run in one that has.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "PLIMSOLL_TEST_ALONE";
    let is_alone = std::env::var_os(ALONE).is_some();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: mounting needs root");
    } else if !is_alone {
        let mut alone = Command::new("unshare");
        alone.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
        assert!(alone.args(["--exact", test]).env(ALONE, "1").status().unwrap().success());
    }
    is_alone
}

/// Lines beside the disk's in the table of mounts: a mount point with a name that is no text, a mount that falsely
/// names the disk, and an overlay that writes to it. Planted breaks: the table is read as text; every source is
/// believed; overlays are not asked.
/// Promise: tenants-mounts.
#[test]
fn a_disk_is_found_whatever_others_have_mounted_and_overlays_on_it_are_its_own() {
    if !is_alone("a_disk_is_found_whatever_others_have_mounted_and_overlays_on_it_are_its_own") {
        return;
    }
    use std::os::unix::ffi::OsStrExt;
    let Some(mounted) = mounted_here("mkfs.ext4") else { return };
    let mount_point = mounted.mount_point();
    let disk = MountedDisk::of(&mount_point).unwrap();
    let beside = |name: &[u8]| {
        let path = mounted.directory.path().join(std::ffi::OsStr::from_bytes(name));
        std::fs::create_dir(&path).unwrap();
        path
    };
    let tmpfs = |source: &std::ffi::OsStr, target: &Path| {
        mount(&["-t".as_ref(), "tmpfs".as_ref(), source, target.as_os_str()]);
    };
    let (odd, claimed, merged) = (beside(b"odd\xff"), beside(b"claimed"), beside(b"merged"));
    tmpfs("none".as_ref(), &odd);
    tmpfs(disk.device.as_os_str(), &claimed);
    for layer in ["lower", "upper", "work"] {
        std::fs::create_dir(mount_point.join(layer)).unwrap();
    }
    let layers = mount_point.display();
    let options = format!("lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work");
    mount(&["-t", "overlay", "-o", &options, "overlay", merged.to_str().unwrap()].map(std::ffi::OsStr::new));
    let looked = (MountedDisk::of(&disk.device), MountedDisk::of(&claimed), device_numbers(&disk.device).unwrap());
    let written = merged.join("file");
    std::fs::write(&written, "content").unwrap();
    let (of_overlay, of_claimed) = (number(&written), number(&claimed));
    for target in [&merged, &claimed, &odd] {
        let _ = Command::new("umount").arg(target).status();
    }
    assert_eq!(looked.0.unwrap(), disk);
    assert!(looked.1.is_err(), "a tmpfs has no disk, whatever its source");
    assert!(looked.2.contains(&of_overlay) && !looked.2.contains(&of_claimed), "{:?}: {of_overlay:?}", looked.2);
}

/// The number that the table has of a btrfs is no disk's, and its source is the path by which it was mounted:
/// everything in /dev/mapper is a link. Broken on purpose and seen red: the source is taken as it stands there.
#[test]
fn a_btrfs_that_was_mounted_by_a_link_is_its_disks() {
    if !is_alone("a_btrfs_that_was_mounted_by_a_link_is_its_disks") {
        return;
    }
    let Some(mounted) = mounted_here("mkfs.btrfs") else { return };
    let mount_point = mounted.mount_point();
    let disk = MountedDisk::of(&mount_point).unwrap();
    let link = mounted.directory.path().join("link");
    std::os::unix::fs::symlink(&disk.device, &link).unwrap();
    // The loop device outlives its mount while it is open. mount(8) would follow the link.
    let _open = std::fs::File::open(&disk.device).unwrap();
    run("umount", &[mount_point.to_str().unwrap()]).unwrap();
    rustix::mount::mount(&link, &mount_point, "btrfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.contains(&format!(" btrfs {} ", link.display())), "the kernel keeps the link: {table}");
    assert_eq!(MountedDisk::of(&disk.device).unwrap(), disk);
    assert_eq!(MountedDisk::of(&mount_point).unwrap(), disk);
    assert_eq!(MountedDisk::all().unwrap().iter().filter(|it| it.device == disk.device).count(), 1);
    let written = mount_point.join("file");
    std::fs::write(&written, "content").unwrap();
    assert!(device_numbers(&disk.device).unwrap().contains(&number(&written)));
}
