//! Volumes through `nbd-client` with its defaults and the kernel behind it, which never ask how large blocks are. Where
//! the kernel has NBD: in `make guest-tests`.

use crate::support::{Site, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One volume of 512-byte blocks and one of 4 KiB.
const TWO_VOLUMES: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[device.disk0]
[pool.web]
device = "disk0"
[volume.small]
pool = "web"
size = "64MiB"
memory = true
nbd = {}
[volume.large]
pool = "web"
size = "64MiB"
memory = true
compression = "zstd:1"
nbd = {}
"#;

/// Why `nbd-client` cannot be tried here.
fn why_not() -> Option<&'static str> {
    let is_there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
    };
    if !rustix::process::geteuid().is_root() {
        return Some("nbd-client needs root");
    }
    if !is_there("nbd-client") || !is_there("mkfs.ext4") {
        return Some("nbd-client or mkfs.ext4 is not installed");
    }
    // Where it is built in, or loaded already, that does nothing.
    let _ = Command::new("modprobe").args(["nbd", "nbds_max=4"]).output();
    (!Path::new("/dev/nbd0").exists()).then_some("this kernel has no NBD client")
}

fn run(program: &str, arguments: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output().unwrap();
    let printed = text(&output.stdout) + text(&output.stderr).as_str();
    assert!(output.status.success(), "{program} {arguments:?}: {printed}");
    printed
}

/// A device of `nbd-client`, disconnected at the end, and what is mounted of it before that.
struct Connected {
    device: String,
    mount_point: PathBuf,
}

impl Connected {
    fn to(site: &Site, volume: &str) -> Connected {
        let free = (0..4).find(|number| !Path::new(&format!("/sys/block/nbd{number}/pid")).exists());
        let device = format!("/dev/nbd{}", free.expect("one of four is free"));
        let (socket, mount_point) = (site.path("state/nbd.sock"), site.path("mnt"));
        let connected = Connected { device, mount_point };
        run("nbd-client", &["-unix", socket.to_str().unwrap(), &connected.device, "-N", volume]);
        connected
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount_point).output();
        let _ = Command::new("/usr/sbin/nbd-client").args(["-d", &self.device]).output();
    }
}

/// Planted break that was seen red: a client that did not ask for block sizes keeps to them all the same.
/// Promise: nbd-stock-client.
#[test]
fn a_file_system_is_made_mounted_and_found_again_on_volumes_of_either_block_size() {
    if let Some(why) = why_not() {
        return println!("not run: {why}");
    }
    let site = Site::new(TWO_VOLUMES);
    let daemon = site.up();
    std::fs::create_dir(site.path("mnt")).unwrap();
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7 / 5) as u8).collect();
    for volume in ["small", "large"] {
        let connected = Connected::to(&site, volume);
        // With blocks of 1 KiB, of which the kernel reads and writes each by itself.
        run("mkfs.ext4", &["-q", "-b", "1024", &connected.device]);
        let mount_point = connected.mount_point.to_str().unwrap().to_owned();
        run("mount", &[&connected.device, &mount_point]);
        std::fs::write(connected.mount_point.join("file"), &content).unwrap();
        drop(connected);
        let again = Connected::to(&site, volume);
        run("e2fsck", &["-f", "-n", &again.device]);
        run("mount", &["-o", "ro", &again.device, &mount_point]);
        assert!(std::fs::read(again.mount_point.join("file")).unwrap() == content, "{volume}");
        run("dd", &[&format!("if={}", again.device), "of=/dev/null", "bs=1024", "skip=1", "count=1", "iflag=direct"]);
    }
    daemon.stop();
}
