//! Classes by place: a file system that is made over NBD, on a cached volume, as a normal user.

use crate::support::{Site, text};
use crate::tenants::wait_until;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use std::collections::BTreeMap;
use std::process::Command;

const MIB: usize = 1 << 20;
const VOLUME_MIB: usize = 64;

fn site() -> Site {
    let site = Site::of_normal_user(
        "[device.disk0]\n[pool.web]\ndevice = \"disk0\"\n[cache.fast]\nfile = \"fast.img\"\nsize = \"32MiB\"\n\
         [volume.db]\npool = \"web\"\nsize = \"64MiB\"\nfile = \"slow.img\"\ncache = \"fast\"\nnbd = {}\n\
         static_classes = true\n",
    );
    let slow = site.path("slow.img");
    assert!(Command::new("truncate").args(["-s", "64M"]).arg(&slow).status().unwrap().success());
    assert!(Command::new("chmod").arg("666").arg(&slow).status().unwrap().success());
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    site
}

/// Units that the cache has, by class.
fn units(site: &Site) -> BTreeMap<u64, u64> {
    let status = site.json(&["cache", "status"])[0]["cache"].clone();
    let classes = status["classes"].as_array().unwrap().iter();
    let counts = classes.map(|class| (class["number"].as_u64().unwrap(), class["units"].as_u64().unwrap()));
    counts.filter(|(_, units)| *units > 0).collect()
}

/// An ext4 without holes where it has something, as bytes.
fn image(site: &Site) -> Option<Vec<u8>> {
    let path = site.path("ext4.img");
    std::fs::write(&path, vec![0; VOLUME_MIB * MIB]).unwrap();
    let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let options = ["-q", "-F", "-b", "4096", "-J", "size=4"];
    match Command::new("mkfs.ext4").env("PATH", search).args(options).arg(&path).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("not run: mkfs.ext4 (Debian: e2fsprogs): {error}");
            return None;
        }
    }
    Some(std::fs::read(path).unwrap())
}

/// Red on a busy machine when the engine is told of the watch only after the first look: a superblock that is written
/// meanwhile was never read.
/// Promise: classes-layout.
#[test]
fn blocks_have_their_class_by_place_once_a_file_system_is_there() {
    let site = site();
    let Some(image) = image(&site) else { return };
    let daemon = site.up();
    let address = Address::Unix(site.path("state/nbd.sock"));
    let options = ClientOptions { export_name: "db".into(), ..ClientOptions::default() };
    let mut client = Client::connect(&address, &options).unwrap();
    // The first MiB has the superblock, descriptors, bitmaps and a part of the inode table.
    client.write(0, &image[..MIB], false).unwrap();
    // Until the layout is known, what is written again has the class that it had.
    wait_until("the classes", || {
        client.write(4096, &image[4096..MIB], false).unwrap();
        let units = units(&site);
        [2, 3, 4].into_iter().all(|class| units.contains_key(&class))
    });
    client.write(0, &image[..4096], false).unwrap();
    let found = units(&site);
    assert_eq!(found.get(&1), Some(&1), "{found:?}");
    assert_eq!(found.values().sum::<u64>(), (MIB / 4096) as u64, "{found:?}");
    // A volume that has none any more has no classes.
    client.write(0, &vec![0; 2 * MIB], false).unwrap();
    wait_until("that they are gone", || {
        client.write(0, &vec![0; 2 * MIB], false).unwrap();
        units(&site).keys().eq([&0])
    });
    daemon.stop();
}

/// An ext4 of one block a group: its descriptors are 2,048 reads.
fn many_groups() -> Vec<u8> {
    let mut image = vec![0; 4096];
    let mut put = |at: usize, number: u32| image[1024 + at..1024 + at + 4].copy_from_slice(&number.to_le_bytes());
    put(0x04, VOLUME_MIB as u32 * 1024);
    put(0x14, 1);
    put(0x20, 1);
    put(0x28, 1);
    put(0x38, 0xEF53);
    image
}

/// At its limit the volume takes minutes to be read.
///
/// Broken on purpose and seen red: the reading goes on to its end.
/// Promise: classes-hostile-layout.
#[test]
fn a_daemon_that_is_told_to_end_while_it_reads_a_layout_ends() {
    let site = Site::of_normal_user(
        "[device.disk0]\n[pool.web]\ndevice = \"disk0\"\n[volume.db]\npool = \"web\"\nsize = \"64MiB\"\n\
         file = \"slow.img\"\nlimit = \"16kB/s\"\nnbd = {}\nstatic_classes = true\n",
    );
    std::fs::write(site.path("slow.img"), many_groups()).unwrap();
    let prepare = ["-c", "truncate -s 64M slow.img && chmod 666 slow.img"];
    assert!(Command::new("sh").args(prepare).current_dir(site.folder.path()).status().unwrap().success());
    let mut daemon = site.up();
    wait_until("the descriptors", || {
        let accounts = site.json(&["status"])["devices"][0]["accounts"].clone();
        let layout = |account: &serde_json::Value| {
            account["path"] == "web/db/layout#1" && account["requests"].as_u64().is_some_and(|requests| requests > 2)
        };
        accounts.as_array().unwrap().iter().any(layout)
    });
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.ends_by_itself());
    let (status, log) = daemon.wait();
    assert!(status.success(), "{status}:\n{log}");
    assert!(!log.contains("has no effect"), "{log}");
}
