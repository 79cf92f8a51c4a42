//! Block devices that are in use, that hold something, or that change their names. As root, with loop devices.
//!
//! Red with a program that does not look at a device's holder and content: all but the test of names that change.

use crate::cache::{connect, done};
use crate::support::{Daemon, Site, text, why_no_mounts};
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

/// Outcome: neither a cache nor a volume takes a mounted device; a cache does not take one with a file system without a
/// word; a volume takes it, since it serves what is there. `up` and `check` refuse one that is mounted with the same
/// line and exit code.
///
/// Planted break of that: `up` says what the volume and the cache say when they are opened, with exit code 1.
/// Promise: notes-devices-in-use.
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
    let why = format!(
        ".file: got \"{}\", in use: mounted on {}, allowed a file or block device that nothing else uses",
        fast.0.display(),
        target.display()
    );
    // As a cache, too; `check` says the same.
    for site in [&plain, &site] {
        let (up, check) = (site.up_fails(), site.command(&["check", "plimsoll.toml"]).output().unwrap());
        let last = text(&up.stderr).lines().last().unwrap().to_owned();
        assert!(last.contains(&why), "{last}");
        assert_eq!(last, text(&check.stderr).trim());
        assert_eq!((up.status.code(), check.status.code()), (Some(2), Some(2)));
    }
    drop(mounted);
    let daemon = plain.up();
    connect(&plain).read(0, &mut [0; BLOCK_BYTES]).unwrap();
    // A device that a daemon writes cannot be mounted.
    let refused = Command::new("mount").args([&fast.0, &target]).output().unwrap();
    assert!(!refused.status.success());
    daemon.stop();
    let (is_made, said) = make(&["--replace"]);
    assert!(is_made, "{said}");
}

/// Outcome: no other volume takes a file on which a loop device lies.
/// Promise: notes-devices-in-use.
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
            said.contains(&*taken.to_string_lossy())
                && said.contains(&format!("in use: the loop device {}", device.0.display())),
            "{said}"
        );
    }
    assert_eq!(make(), "");
}

fn plain(file: &Path) -> Site {
    Site::new(&configuration(file, Path::new("fast.img")).replace("cache = \"fast\"\n", ""))
}

/// Outcome: a file that a daemon serves is served by no other one by way of a loop device, and no cache is made there;
/// nor is the file served beside a daemon that serves a loop device on it, nor a second loop device on it. Two loop
/// devices on two parts of it are.
///
/// Planted breaks, seen red: nothing beneath a block device is locked.
/// Promise: notes-devices-in-use.
#[test]
fn a_loop_device_is_no_second_way_to_a_file() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let [slow, other] = ["slow.img", "other.img"].map(|name| file(images.path(), name, 32));
    let site = plain(&slow);
    let daemon = site.up();
    let holder = |daemon: &Daemon| format!("served by the plimsoll daemon, process {}", daemon.process());
    let device = Loop::over(&slow);
    let beside = plain(&device.0);
    let log = text(&beside.up_fails().stderr);
    assert!(log.contains(&format!("volume db: {} is {}", device.0.display(), holder(&daemon))), "{log}");
    let caches = Site::new(&configuration(&other, &device.0));
    let made = caches.command(&["cache", "make", "plimsoll.toml", "fast", "--replace"]).output().unwrap();
    assert!(!made.status.success() && text(&made.stderr).contains(&holder(&daemon)), "{made:?}");
    daemon.stop();

    let daemon = beside.up();
    let log = text(&site.up_fails().stderr);
    assert!(log.contains(&format!("volume db: {} is {}", slow.display(), holder(&daemon))), "{log}");
    let second = Loop::over(&slow);
    let log = text(&plain(&second.0).up_fails().stderr);
    assert!(log.contains(&format!("volume db: {} is {}", second.0.display(), holder(&daemon))), "{log}");
    drop(second);
    daemon.stop();
    drop(device);

    let part = |offset: &str| {
        let said = runs(
            "losetup",
            &["--find", "--show", "--offset", offset, "--sizelimit", "16777216", slow.to_str().unwrap()],
        );
        Loop(said.into())
    };
    let parts = [part("0"), part("16777216")];
    let sites = [plain(&parts[0].0), plain(&parts[1].0)];
    let daemons = [sites[0].up(), sites[1].up()];
    for daemon in daemons {
        daemon.stop();
    }
}

/// Outcome: a loop device beneath which another one is mounted is not served for writing.
///
/// Planted break, seen red: what lies beneath a block device is not looked at.
#[test]
fn a_loop_device_on_a_file_that_is_mounted_by_another_one_is_not_served() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let slow = file(images.path(), "slow.img", 16);
    let devices = [Loop::over(&slow), Loop::over(&slow)];
    runs("mkfs.ext4", &["-q", devices[0].0.to_str().unwrap()]);
    let target = images.path().join("mount");
    std::fs::create_dir(&target).unwrap();
    runs("mount", &[devices[0].0.to_str().unwrap(), target.to_str().unwrap()]);
    let _mounted = Mounted(&target);
    let log = text(&plain(&devices[1].0).up_fails().stderr);
    let why = format!("{}, a device beneath it, is the loop device {}", slow.display(), devices[0].0.display());
    assert!(log.contains(&why), "{log}");
}

/// Outcome: a volume on a file with a cache is not served without it by way of a loop device, and the other way round.
///
/// Planted break, seen red: notes of others with the same bytes do not count.
#[test]
fn a_cache_of_a_file_is_that_of_its_loop_device_too() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let [slow, fast] = ["slow.img", "fast.img"].map(|name| file(images.path(), name, 16));
    for by_loop_first in [false, true] {
        let device = by_loop_first.then(|| Loop::over(&slow));
        let site = Site::new(&configuration(device.as_ref().map_or(&slow, |device| &device.0), &fast));
        done_offline(&site, &["cache", "make", "plimsoll.toml", "fast", "--replace"]);
        site.up().stop();
        drop(device);
        let device = (!by_loop_first).then(|| Loop::over(&slow));
        let way = device.as_ref().map_or(&slow, |device| &device.0);
        for notes in [None, Some(site.path("notes"))] {
            let without = plain(way);
            if let Some(notes) = notes {
                std::os::unix::fs::symlink(notes, without.path("notes")).unwrap();
            }
            let log = text(&without.up_fails().stderr);
            assert!(log.contains("volume.db: cache: got none, allowed \"fast\" on"), "{by_loop_first}: {log}");
        }
        let without = plain(way);
        done_offline(&without, &["cache", "forget", "plimsoll.toml", "db"]);
        without.up().stop();
    }
}

/// A slow file gets a cache; then it is reached through a loop device, and as a file again. Outcome: each time the
/// daemon is refused until the administrator says so, and then serves what only the cache has. A loop device on a part
/// of the file is not joined.
///
/// Planted break that was seen red: a note of another part of the file is evidence.
#[test]
fn a_cache_follows_its_slow_file_to_a_loop_device_and_back() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let [slow, fast] = ["slow.img", "fast.img"].map(|name| file(images.path(), name, 16));
    let notes = images.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    let site_by = |way: &Path| {
        let site = Site::new(&configuration(way, &fast));
        std::os::unix::fs::symlink(&notes, site.path("notes")).unwrap();
        site
    };
    let part = |offset: &str, size: &str| {
        let options = ["--find", "--show", "--offset", offset, "--sizelimit", size, slow.to_str().unwrap()];
        Loop(runs("losetup", &options).into())
    };
    let adopt = |site: &Site| {
        let output = site.command(&["cache", "adopt", "plimsoll.toml", "fast", "--moved"]).output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    done_offline(&site_by(&slow), &["cache", "make", "plimsoll.toml", "fast", "--replace"]);
    for (byte, is_by_loop) in [(1, false), (2, true), (3, false)] {
        let device = is_by_loop.then(|| part("0", "0"));
        let site = site_by(device.as_ref().map_or(&slow, |device| &device.0));
        if byte > 1 {
            let log = text(&site.up_fails().stderr);
            assert!(log.contains("the cache belongs to another store") && log.contains("--moved"), "{log}");
            let (is_adopted, said) = adopt(&site);
            assert!(is_adopted, "{said}");
        }
        let daemon = site.up();
        let mut client = connect(&site);
        let mut read = [9; BLOCK_BYTES];
        client.read(0, &mut read).unwrap();
        assert!(read == [byte - 1; BLOCK_BYTES], "{byte}: {}", read[0]);
        client.write(0, &[byte; BLOCK_BYTES], true).unwrap();
        daemon.stop();
        assert!(std::fs::read(&slow).unwrap()[..BLOCK_BYTES] == [0; BLOCK_BYTES], "only the cache has it");
        if byte == 1 {
            let half = part("8388608", "8388608");
            let wrong = Site::new(&configuration(&half.0, &fast).replace("16MiB", "8MiB"));
            let (is_adopted, said) = adopt(&wrong);
            let why = "no note that is attached to the slow file names this cache";
            assert!(!is_adopted && said.contains(why), "{said}");
        }
    }
}

/// Outcome: a block device that takes no writes is refused in one line, and served where the volume takes none.
///
/// Planted break, seen red: a block device's flag is not looked at.
#[test]
fn a_read_only_device_is_served_to_readers_only() {
    if cannot() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let slow = file(images.path(), "slow.img", 16);
    let device = Loop(runs("losetup", &["--find", "--show", "--read-only", slow.to_str().unwrap()]).into());
    let site = plain(&device.0);
    let log = text(&site.up_fails().stderr);
    let why = format!(
        "volume db: {} is a read-only block device, allowed one that takes writes, or read_only = true",
        device.0.display()
    );
    assert!(log.contains(&why), "{log}");
    let path = site.path("plimsoll.toml");
    let changed = std::fs::read_to_string(&path).unwrap().replace("nbd = {}", "read_only = true\nnbd = {}");
    std::fs::write(&path, changed).unwrap();
    site.up().stop();
}

/// Two slow devices change their names. Outcome: the cache is not put before the other one.
/// Promise: notes-device-names.
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
