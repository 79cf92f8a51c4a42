//! Block devices that are in use, that hold something, or that change their names. As root, with loop devices.
//!
//! Red with the program before it looked at who has a device and what that holds: all but the test of names that change.

use crate::cache::{connect, done};
use crate::support::{Site, text, why_no_mounts};
use crate::versions::BLOCK_BYTES;
use std::path::{Path, PathBuf};
use std::process::Command;

fn configuration(slow: &Path, fast: &Path) -> String {
    format!(
        r#"
[device.disk0]
[pool.web]
device = "disk0"
[cache.fast]
file = "{}"
[volume.db]
pool = "web"
size = "16MiB"
file = "{}"
cache = "fast"
nbd = {{}}
"#,
        fast.display(),
        slow.display()
    )
}

fn runs(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// A loop device above a file, until it is dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Loop {
        Loop(runs("losetup", &["--find", "--show", file.to_str().unwrap()]).into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A file system that is mounted until it is dropped.
struct Mounted<'p>(&'p Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn file(directory: &Path, name: &str, mib: u64) -> PathBuf {
    let path = directory.join(name);
    std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
    path
}

/// Says why this machine cannot run it.
fn cannot() -> bool {
    let why = why_no_mounts().or_else(|| {
        let programs = ["losetup", "mkfs.ext4"];
        let is_missing = programs.iter().any(|program| Command::new(program).arg("--version").output().is_err());
        is_missing.then_some("losetup or mkfs.ext4 is missing")
    });
    why.inspect(|why| eprintln!("not run: {why}")).is_some()
}

/// Outcome: neither a cache nor a volume takes a mounted device; a cache does not take one with a file system without a word; a volume takes it,
/// since it serves what is there.
#[test]
fn a_device_that_is_mounted_or_holds_something_is_not_taken() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let [slow_file, fast_file] = ["slow.img", "fast.img"].map(|name| file(images.path(), name, 16));
    let fast = Loop::over(&fast_file);
    let site = Site::new(&configuration(&slow_file, &fast.0));
    let make = |more: &[&str]| {
        let output = site.command(&[&["cache", "make", "plimsoll.toml", "fast"], more].concat()).output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    runs("mkfs.ext4", &["-q", fast.0.to_str().unwrap()]);
    let before = std::fs::read(&fast_file).unwrap();
    let target = images.path().join("mount");
    std::fs::create_dir(&target).unwrap();
    runs("mount", &[fast.0.to_str().unwrap(), target.to_str().unwrap()]);
    let mounted = Mounted(&target);
    std::fs::write(target.join("precious"), b"data").unwrap();
    for more in [&[][..], &["--replace"][..]] {
        let (is_made, said) = make(more);
        let why = format!("{} is in use: mounted on {}", fast.0.display(), target.display());
        assert!(!is_made && said.contains(&why), "{said}");
    }
    assert!(std::fs::read(target.join("precious")).unwrap() == b"data");
    drop(mounted);
    let (is_made, said) = make(&[]);
    let why = format!("{} holds an ext4 file system with blocks of ", fast.0.display());
    assert!(!is_made && said.contains(&why) && said.contains("--replace gives it up"), "{said}");
    // What a mount changes is at the ends of the file system, and no more.
    assert_eq!(before.len(), std::fs::read(&fast_file).unwrap().len());
    runs("mount", &[fast.0.to_str().unwrap(), target.to_str().unwrap()]);
    let mounted = Mounted(&target);
    assert!(std::fs::read(target.join("precious")).unwrap() == b"data");

    // As a volume.
    let plain = configuration(&fast.0, &slow_file).replace("cache = \"fast\"\n", "");
    let plain = Site::new(&plain);
    let log = text(&plain.up_fails().stderr);
    assert!(
        log.contains(&format!("volume db: {} is in use: mounted on {}", fast.0.display(), target.display())),
        "{log}"
    );
    drop(mounted);
    let daemon = plain.up();
    connect(&plain).read(0, &mut [0; BLOCK_BYTES]).unwrap();
    // Nobody mounts what a daemon writes.
    let refused = Command::new("mount").args([&fast.0, &target]).output().unwrap();
    assert!(!refused.status.success());
    daemon.stop();
    let (is_made, said) = make(&["--replace"]);
    assert!(is_made, "{said}");
}

/// Outcome: a file on which a loop device lies is nobody else's.
#[test]
fn a_file_below_a_loop_device_is_not_taken() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let [slow, fast] = ["slow.img", "fast.img"].map(|name| file(images.path(), name, 16));
    let site = Site::new(&configuration(&slow, &fast));
    let make = || text(&site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap().stderr);
    for taken in [&slow, &fast] {
        let device = Loop::over(taken);
        let said = make();
        assert!(
            said.contains(&format!("{} is in use: the loop device {}", taken.display(), device.0.display())),
            "{said}"
        );
    }
    assert_eq!(make(), "");
}

/// Two slow devices change their names. Outcome: the cache is not put before the other one.
#[test]
fn devices_that_change_their_names_do_not_change_their_caches() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let [one, other] = ["one.img", "other.img"].map(|name| file(images.path(), name, 16));
    let fast = file(images.path(), "fast.img", 4);
    let link = images.path().join("vda");
    let devices = [Loop::over(&one), Loop::over(&other)];
    let name_is_of = |device: &Loop| {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&device.0, &link).unwrap();
    };
    name_is_of(&devices[0]);
    let site = Site::new(&configuration(&link, &fast));
    done_offline(&site, &["cache", "make", "plimsoll.toml", "fast"]);
    let daemon = site.up();
    connect(&site).write(0, &[7; BLOCK_BYTES], true).unwrap();
    daemon.stop();
    name_is_of(&devices[1]);
    let log = text(&site.up_fails().stderr);
    assert!(log.contains("the cache belongs to another store"), "{log}");
    name_is_of(&devices[0]);
    let daemon = site.up();
    let mut read = [0; BLOCK_BYTES];
    connect(&site).read(0, &mut read).unwrap();
    assert!(read == [7; BLOCK_BYTES]);
    done(&site, &["cache", "detach", "db"]);
    daemon.stop();
    assert!(std::fs::read(&one).unwrap()[..BLOCK_BYTES] == [7; BLOCK_BYTES]);
}

fn done_offline(site: &Site, arguments: &[&str]) {
    let output = site.command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}
