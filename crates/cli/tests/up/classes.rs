//! Classes that applications say of their files, from the file to the contents of a volume's cache. Root and BPF only.

use crate::support::{Daemon, Site, text, why_no_mounts};
use crate::tenants::run;
use std::fs::File;
use std::io::Write;
use std::process::Output;

const FILE_BYTES: usize = 256 << 10;
/// Units of the cache that the file takes.
const FILE_UNITS: u64 = (FILE_BYTES / 4096) as u64;

/// A cached volume that is mounted with tenants.
pub fn site(size_mib: u32, cache_mib: u32) -> Option<Site> {
    if cfg!(not(feature = "bpf")) {
        println!("not run: built without BPF");
        return None;
    }
    if let Some(why) = why_no_mounts() {
        println!("not run: {why}");
        return None;
    }
    let site = Site::new(&format!(
        "[device.disk0]\n[pool.web]\ndevice = \"disk0\"\n\
         [cache.fast]\nfile = \"fast.img\"\nsize = \"{cache_mib}MiB\"\nclasses = \"postgresql-on-ext4\"\n\
         [volume.db]\npool = \"web\"\nsize = \"{size_mib}MiB\"\nfile = \"slow.img\"\ncache = \"fast\"\n\
         mount = {{ path = \"{{folder}}/mnt\", filesystem = \"ext4\", format = \"if-empty\", tenants = true }}\n",
    ));
    let path = site.path("plimsoll.toml");
    let configuration = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, configuration.replace("{folder}", site.folder.path().to_str().unwrap())).unwrap();
    File::create(site.path("slow.img")).unwrap().set_len(u64::from(size_mib) << 20).unwrap();
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    Some(site)
}

/// Units of a class that the only cache has.
pub fn units(site: &Site, name: &str) -> u64 {
    let status = site.json(&["cache", "status"]);
    let classes = status[0]["cache"]["classes"].as_array().unwrap().clone();
    let found = classes.into_iter().find(|class| class["name"] == name);
    found.map_or(0, |class| class["units"].as_u64().unwrap())
}

fn class(site: &Site, arguments: &[&str]) -> Output {
    site.command(&[&["class"], arguments].concat()).args(["--at", "state/classes.sock"]).output().unwrap()
}

fn said(site: &Site, daemon: &Daemon<'_>) {
    let socket = format!("classes of files at {}", site.path("state/classes.sock").display());
    assert!(daemon.served.contains(&socket), "{:?}", daemon.served);
    let mut file = File::create(site.path("mnt/orders.index")).unwrap();
    let refused = class(site, &["say", "indexes", "mnt/orders.index"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("class: got \"indexes\", allowed 0 to 31, or a name of"), "{refused:?}");
    let done = class(site, &["say", "database-index", "mnt/orders.index"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    file.write_all(&[7; FILE_BYTES]).unwrap();
    file.sync_all().unwrap();
    assert_eq!(units(site, "database-index"), FILE_UNITS);
    let asked = text(&class(site, &["ask", "mnt/orders.index"]).stdout);
    assert!(asked.contains("25") && asked.contains("database-index"), "{asked}");
    let refused = class(site, &["say", "database-index", "plimsoll.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("is on no volume that is mounted with tenants"), "{refused:?}");
}

/// Broken on purpose and seen red: the daemon tells the engine nothing of what was said.
/// Promise: classes-files.
#[test]
fn what_is_said_of_a_file_is_the_class_of_its_blocks_in_the_cache() {
    let Some(site) = site(256, 64) else { return };
    let daemon = site.up();
    said(&site, &daemon);
    // A launched command finds the socket.
    let output = run(&site, &[], &["sh", "-c", "echo $PLIMSOLL_CLASSES"]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), site.path("state/classes.sock").to_str().unwrap());
    daemon.stop();
    assert!(!site.path("state/classes.sock").exists());
}
