//! `plimsoll up` with file systems: root only.

use crate::support::{Site, mounts_below, text, why_no_mounts};
use crate::tenants::wait_until;
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

fn with_mounts(volumes: &str) -> Site {
    let site = Site::new(&format!(
        "[device.disk0]\nworst_case = \"1000 runs/s\"\n[pool.web]\ndevice = \"disk0\"\nreserve = \"30%\"\n{volumes}"
    ));
    let path = site.path("plimsoll.toml");
    let text = std::fs::read_to_string(&path).unwrap().replace("{folder}", site.folder.path().to_str().unwrap());
    std::fs::write(path, text).unwrap();
    File::create(site.path("db.img")).unwrap().set_len(64 << 20).unwrap();
    site
}

const EXT4: &str = r#"
[volume.db]
pool = "web"
size = "64MiB"
file = "db.img"
mount = { path = "{folder}/mnt", filesystem = "ext4", format = "if-empty", options = "noatime" }
"#;

#[test]
fn a_file_system_is_made_once_kept_and_detached_in_order() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let site = with_mounts(EXT4);
    let daemon = site.up();
    let line = daemon.served.iter().find(|line| line.starts_with("volume db: ext4 on ")).expect("a line for the mount");
    let device = line.split(['(', ')']).nth(1).unwrap().to_owned();
    assert!(device.starts_with("/dev/loop"), "{line}");
    std::fs::write(site.path("mnt/a"), "kept").unwrap();
    let mounts = mounts_below(site.folder.path());
    assert!(mounts.iter().any(|mount| mount.starts_with(&device) && mount.contains("noatime")), "{mounts:?}");
    let volumes = site.json(&["volume", "list"]);
    assert_eq!((&volumes[0]["block_device"], &volumes[0]["front_ends"]), (&device.as_str().into(), &1.into()));
    let accounts = &site.json(&["status"])["devices"][0]["accounts"];
    assert_eq!(accounts[3]["path"], "web/db/mount#1");
    let log = daemon.stop();
    assert!(log.contains(&format!("volume db: detached {device}")), "{log}");
    assert_eq!(mounts_below(site.folder.path()), [""; 0]);

    let daemon = site.up();
    assert_eq!(std::fs::read_to_string(site.path("mnt/a")).unwrap(), "kept");
    daemon.stop();
}

/// Promise: encrypted-mount.
#[test]
fn an_encrypted_volume_that_is_empty_is_formatted_and_its_files_are_nowhere_to_be_read() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let file = "file = \"db.img\"\n";
    let site = with_mounts(&EXT4.replace(file, &format!("{file}encryption = {{ key_file = \"db.key\" }}\n")));
    let key: [u8; 64] = std::array::from_fn(|at| at as u8);
    std::fs::write(site.path("db.key"), key).unwrap();
    std::fs::set_permissions(site.path("db.key"), PermissionsExt::from_mode(0o600)).unwrap();
    let line = "nobody else is to know what is written here\n";
    let daemon = site.up();
    std::fs::write(site.path("mnt/a"), line.repeat(4096)).unwrap();
    daemon.stop();
    let stored = std::fs::read(site.path("db.img")).unwrap();
    assert!(stored.iter().any(|&byte| byte != 0), "something is there");
    assert!(!stored.windows(16).any(|part| part == &line.as_bytes()[..16]), "and nothing of what was written");
    let daemon = site.up();
    assert_eq!(std::fs::read_to_string(site.path("mnt/a")).unwrap(), line.repeat(4096));
    daemon.stop();
}

#[test]
fn a_read_only_volume_is_mounted_read_only() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let site = with_mounts(EXT4);
    let daemon = site.up();
    std::fs::write(site.path("mnt/a"), "kept").unwrap();
    daemon.stop();
    let path = site.path("plimsoll.toml");
    let configuration = std::fs::read_to_string(&path).unwrap();
    let configuration = configuration.replace("mount =", "read_only = true\nmount =").replace("if-empty", "never");
    std::fs::write(path, configuration).unwrap();
    let before = std::fs::read(site.path("db.img")).unwrap();
    let daemon = site.up();
    assert_eq!(std::fs::read_to_string(site.path("mnt/a")).unwrap(), "kept");
    let refused = std::fs::write(site.path("mnt/b"), "no").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    daemon.stop();
    assert!(std::fs::read(site.path("db.img")).unwrap() == before, "not a byte of the volume changed");
}

/// Promise: mount-kill.
#[test]
fn after_a_kill_the_next_one_recovers_and_what_was_synced_is_there() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let site = with_mounts(EXT4);
    let daemon = site.up();
    let mut file = File::create(site.path("mnt/a")).unwrap();
    file.write_all(&vec![b'x'; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(!mounts_below(site.folder.path()).is_empty(), "a kill leaves mounts behind");
    let daemon = site.up();
    assert_eq!(std::fs::read(site.path("mnt/a")).unwrap(), vec![b'x'; 1 << 20]);
    let log = daemon.stop();
    assert!(log.contains("recovered from a predecessor: volume db: unmounted ext4"), "{log}");
    assert_eq!(mounts_below(site.folder.path()), [""; 0]);
}

/// A daemon is killed, and another one with another state directory has the same mount point. Outcome: it is refused
/// before anything is made, and the line names the directory that undoes the mount; with that directory the daemon
/// serves.
///
/// Planted break that was seen red: the table of mounts is not looked at.
#[test]
fn a_mount_point_of_a_killed_daemon_with_another_state_directory_is_refused() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let site = with_mounts(EXT4);
    let daemon = site.up();
    std::fs::write(site.path("mnt/a"), "kept").unwrap();
    daemon.signal(Signal::KILL);
    daemon.wait();
    let before = mounts_below(site.folder.path());
    let path = site.path("plimsoll.toml");
    let configuration = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, configuration.replace("state_directory = \"state\"", "state_directory = \"other\"")).unwrap();
    let output = site.up_fails();
    let said = text(&output.stderr);
    let state = site.path("state").canonicalize().unwrap();
    let why = format!(
        "volume.db.mount.path: got {}, on which volume db of a daemon with the state directory {} is mounted, which has ended: plimsoll up \
         with that directory undoes it, or umount, allowed a directory on which no other daemon has mounted a volume",
        site.path("mnt").display(),
        state.display()
    );
    assert!(output.status.code() == Some(2) && said.contains(&why), "{said}");
    assert_eq!(mounts_below(site.folder.path()), before);
    std::fs::write(&path, configuration).unwrap();
    let daemon = site.up();
    daemon.stop();
    assert_eq!(mounts_below(site.folder.path()), [""; 0]);
}

/// Promise: mount-half-way.
#[test]
fn a_failure_half_way_undoes_what_was_done() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let second = EXT4.replace("volume.db", "volume.other").replace("db.img", "other.img").replace("/mnt", "/mnt2");
    let site = with_mounts(&format!("{EXT4}{second}"));
    std::fs::write(site.path("other.img"), vec![b'?'; 64 << 20]).unwrap();
    let output = site.up_fails();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    let expected = "plimsoll.toml:19: volume.other.mount: volume other holds data of an unknown kind (at byte 0)";
    assert!(errors.contains(expected), "{errors}");
    assert!(errors.contains("volume db: unmounted ext4"), "the first one was undone: {errors}");
    assert_eq!(mounts_below(site.folder.path()), [""; 0]);
    assert!(!site.path("state/control.sock").exists());
    assert!(std::fs::read(site.path("other.img")).unwrap().iter().all(|byte| *byte == b'?'), "nothing was written");
}

/// Outcome: data in the middle of a file, far from both ends, keeps the volume from being formatted.
///
/// Planted break, seen red: what the file has in between is not read.
/// Promise: notes-devices-in-use.
#[test]
fn data_in_the_middle_is_not_formatted_over() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let site = with_mounts(EXT4);
    let at = (32 << 20) + 5;
    let file = std::fs::OpenOptions::new().write(true).open(site.path("db.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"precious", at).unwrap();
    drop(file);
    let before = std::fs::read(site.path("db.img")).unwrap();
    let log = text(&site.up_fails().stderr);
    let why = format!(
        "volume db holds data of an unknown kind (at byte {at}), expected ext4 or nothing; nothing was changed"
    );
    assert!(log.contains(&why), "{log}");
    assert!(std::fs::read(site.path("db.img")).unwrap() == before, "not a byte changed");
}

/// Outcome: options that the file system refuses, and a mount point that is none, are refused with their lines before
/// anything is done.
///
/// Planted break, seen red: options and mount points are not looked at before.
#[test]
fn a_mount_that_would_be_refused_is_refused_before_a_volume_is_formatted() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let second =
        EXT4.replace("volume.db", "volume.other").replace("db.img", "other.img").replace("/mnt", "/plimsoll.toml/x");
    let site = with_mounts(&format!("{}{second}", EXT4.replace("noatime", "noatime,no-such-option")));
    File::create(site.path("other.img")).unwrap().set_len(64 << 20).unwrap();
    let output = site.up_fails();
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("volume.db.mount.options: got \"no-such-option\", which ext4 refuses ("), "{log}");
    assert!(log.contains("volume.other.mount.path: got ") && log.contains("plimsoll.toml is no directory"), "{log}");
    for name in ["db.img", "other.img"] {
        assert!(std::fs::read(site.path(name)).unwrap().iter().all(|byte| *byte == 0), "{name} holds nothing");
    }
    assert!(!site.path("mnt").exists());
}

/// A program that leaves a part of a file system and hangs.
const HANGING_MKFS: &str = r#"#!/bin/sh
for device; do :; done
printf remnant | dd of="$device" bs=1M seek=20 conv=notrunc,fsync 2>/dev/null
echo $$ > {folder}/hangs
exec sleep 600
"#;

/// Kills a daemon while its volume is being formatted.
fn kill_in_the_middle_of_a_format(site: &Site) {
    let bin = site.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let program = bin.join("mkfs.ext4");
    let script = HANGING_MKFS.replace("{folder}", site.folder.path().to_str().unwrap());
    // Another process writes it: a file that is open for writing here could not be run.
    let copied = "cat > \"$0\" && chmod 755 \"$0\"";
    let mut writer = std::process::Command::new("sh");
    let mut writer = writer.args(["-c", copied]).arg(&program).stdin(std::process::Stdio::piped()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut daemon = site.command(&["up", "plimsoll.toml"]);
    let mut daemon = daemon.env("PATH", path).stderr(std::process::Stdio::null()).spawn().unwrap();
    let hangs = site.path("hangs");
    let process = || std::fs::read_to_string(&hangs).ok()?.trim().parse::<i32>().ok();
    wait_until("the program hangs", || process().is_some());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let program = rustix::process::Pid::from_raw(process().unwrap()).unwrap();
    rustix::process::kill_process(program, Signal::KILL).unwrap();
    std::fs::remove_file(hangs).unwrap();
    let bytes = std::fs::read(site.path("db.img")).unwrap();
    assert!(bytes[20 << 20..].starts_with(b"remnant"));
}

/// A daemon is killed while the program makes the file system. Outcome: the next start begins the format again. Where
/// the file has changed since, nothing is changed, and the refusal says what happened and what to do.
///
/// Planted break that was seen red: the time of the file's last change is not looked at.
/// Promise: mount-format-killed.
#[test]
fn a_format_that_was_interrupted_is_begun_again_and_nothing_else_is_formatted_over() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let site = with_mounts(EXT4);
    let note = site.path("notes/format-of-db.json");
    kill_in_the_middle_of_a_format(&site);
    assert!(note.exists());
    let daemon = site.up();
    std::fs::write(site.path("mnt/a"), "kept").unwrap();
    assert!(!note.exists());
    let log = daemon.stop();
    assert!(log.contains("a format of it was interrupted: it is begun again"), "{log}");
    let daemon = site.up();
    assert_eq!(std::fs::read_to_string(site.path("mnt/a")).unwrap(), "kept");
    daemon.stop();

    let file = || File::create(site.path("db.img")).unwrap().set_len(64 << 20).unwrap();
    file();
    kill_in_the_middle_of_a_format(&site);
    let before = std::fs::read(site.path("db.img")).unwrap();
    // As if the file had been written to a while after the kill.
    assert!(std::process::Command::new("touch").args(["-d", "1 minute ago"]).arg(&note).status().unwrap().success());
    let log = text(&site.up_fails().stderr);
    let why = "holds data of an unknown kind (at byte 20971520), expected ext4 or nothing; nothing was changed; a format of it was \
               interrupted, and is not begun again, since its file has changed since: if nothing in it is needed, empty it";
    assert!(log.contains(why), "{log}");
    assert!(std::fs::read(site.path("db.img")).unwrap() == before, "not a byte changed");
    file();
    site.up().stop();
    assert!(!note.exists());
}
