//! The kernel's figures and limits of a cgroup on a block device, in the files of both versions.
//!
//! | | version 1 (`blkio`) | version 2 (`io`) |
//! | --- | --- | --- |
//! | counted | `blkio.throttle.io_service_bytes`: `8:0 Read 4096` | `io.stat`: `8:0 rbytes=4096 wbytes=0 ...` |
//! | limited | `blkio.throttle.{read,write}_bps_device`: `8:0 1000`, 0 for none | `io.max`: `8:0 rbps=1000 wbps=max` |
//!
//! Limits of requests (`iops`) stay as they are: WDT's credits are bytes.

use plimsoll_linux::MountTable;
use plimsoll_schedulers::wdt::steward::{Caps, Used};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const COUNTED_1: &str = "blkio.throttle.io_service_bytes";
const LIMITED_1: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
const COUNTED_2: &str = "io.stat";
const LIMITED_2: &str = "io.max";
const CONTROLLERS: &str = "cgroup.controllers";

/// Bytes a second, `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Of reads.
    pub read: Option<u64>,
    /// Of writes.
    pub write: Option<u64>,
}

impl Limit {
    /// Another program's limits, if the files have `found` where `written` was written last. `self` is the former
    /// value.
    #[must_use]
    pub fn changed(self, written: Limit, found: Limit) -> Limit {
        let change = |own, written, found| if found == written { own } else { found };
        Limit {
            read: change(self.read, written.read, found.read),
            write: change(self.write, written.write, found.write),
        }
    }

    /// The lower one of each.
    #[must_use]
    pub fn and(self, caps: Option<Caps>) -> Limit {
        let Some(caps) = caps else { return self };
        let lower = |own: Option<u64>, cap: u64| Some(own.map_or(cap, |own| own.min(cap)));
        Limit {
            read: lower(self.read, caps.read_bytes_per_second),
            write: lower(self.write, caps.write_bytes_per_second),
        }
    }
}

/// A cgroup of either version, by its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its folder.
    pub folder: PathBuf,
    /// The folder's number: another one of the same name has another.
    pub inode: u64,
    is_version_2: bool,
}

/// Mount point of the controller of block I/O: version 1 if it is there, since a controller is in one version only.
pub fn controller() -> Option<PathBuf> {
    let mounts = crate::mounts::table().ok()?;
    controller_in(&mounts, |folder| fs::read_to_string(folder.join(CONTROLLERS)).unwrap_or_default())
}

fn controller_in(mounts: &MountTable, controllers: impl Fn(&Path) -> String) -> Option<PathBuf> {
    let mut first = mounts.iter().filter(|mount| mount.kind == "cgroup" && mount.has_option("blkio"));
    let has_io = |folder: &Path| controllers(folder).split_whitespace().any(|name| name == "io");
    let mut second = mounts.iter().filter(|mount| mount.kind == "cgroup2" && has_io(&mount.target));
    first.next().or_else(|| second.next()).map(|mount| mount.target.clone())
}

impl Group {
    /// The cgroup in `folder`.
    ///
    /// # Errors
    /// The fault, in one line: there is no cgroup, or the kernel limits no block I/O in it.
    pub fn open(folder: &Path) -> Result<Group, String> {
        let found = fs::metadata(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "there is no such cgroup".to_owned(),
            _ => error.to_string(),
        })?;
        let is_version_2 = folder.join(LIMITED_2).exists();
        if !is_version_2 && !folder.join(LIMITED_1[0]).exists() {
            let parent = folder.parent().unwrap_or(folder).display();
            return Err(match folder.join(CONTROLLERS).exists() {
                true => format!("the io controller is off in it: echo +io > {parent}/cgroup.subtree_control"),
                false => "is no cgroup in which the kernel can limit block I/O".to_owned(),
            });
        }
        Ok(Group { folder: folder.to_owned(), inode: found.ino(), is_version_2 })
    }

    /// Whether it is still there, and no other in its place.
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.folder).is_ok_and(|found| found.ino() == self.inode)
    }

    /// What it ever read and wrote on the device.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn counted(&self, device: &str) -> io::Result<Used> {
        let file = if self.is_version_2 { COUNTED_2 } else { COUNTED_1 };
        let text = fs::read_to_string(self.folder.join(file))?;
        Ok(if self.is_version_2 { counted_2(&text, device) } else { counted_1(&text, device) })
    }

    /// Its limit on the device.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn limit(&self, device: &str) -> io::Result<Limit> {
        let read = |file: &str| fs::read_to_string(self.folder.join(file));
        if self.is_version_2 {
            let text = read(LIMITED_2)?;
            let value = |key: &str| words_of(&text, device).find_map(|word| word.strip_prefix(key)?.parse().ok());
            return Ok(Limit { read: value("rbps="), write: value("wbps=") });
        }
        let value = |file: &str| -> io::Result<Option<u64>> {
            Ok(words_of(&read(file)?, device).find_map(|word| word.parse().ok()).filter(|&limit| limit > 0))
        };
        Ok(Limit { read: value(LIMITED_1[0])?, write: value(LIMITED_1[1])? })
    }

    /// Limits it on the device.
    ///
    /// # Errors
    /// The kernel refuses: the device has gone, or the cgroup has.
    pub fn set_limit(&self, device: &str, limit: Limit) -> io::Result<()> {
        let write = |file: &str, text: String| fs::write(self.folder.join(file), text);
        if self.is_version_2 {
            let value = |limit: Option<u64>| limit.map_or("max".to_owned(), |limit| limit.to_string());
            let (read, written) = (value(limit.read), value(limit.write));
            return write(LIMITED_2, format!("{device} rbps={read} wbps={written}\n"));
        }
        let value = |limit: Option<u64>| format!("{device} {}\n", limit.unwrap_or(0));
        write(LIMITED_1[0], value(limit.read)).and_then(|()| write(LIMITED_1[1], value(limit.write)))
    }
}

/// The words behind the device's number, of all its lines. Linux 5.14 to 5.16 print devices without figures in
/// `io.stat` before the next line's number (`7:99 7:98 7:3 rbytes=...`). The figures belong to the last number.
fn words_of<'a>(text: &'a str, device: &'a str) -> impl Iterator<Item = &'a str> {
    let behind_numbers = move |line: &'a str| {
        let words = line.split_ascii_whitespace();
        let numbers = words.clone().take_while(|word| is_device(word));
        (numbers.last() == Some(device)).then(|| words.skip_while(|word| is_device(word)))
    };
    text.lines().filter_map(behind_numbers).flatten()
}

/// `8:0`, and no figure such as `rbytes=4096`.
fn is_device(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once(':').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

fn counted_1(text: &str, device: &str) -> Used {
    let words: Vec<&str> = words_of(text, device).collect();
    let of = |name: &str| words.windows(2).find(|pair| pair[0] == name).and_then(|pair| pair[1].parse().ok());
    Used { read_bytes: of("Read").unwrap_or(0), written_bytes: of("Write").unwrap_or(0) }
}

fn counted_2(text: &str, device: &str) -> Used {
    let of = |key: &str| words_of(text, device).find_map(|word| word.strip_prefix(key)?.parse().ok());
    Used { read_bytes: of("rbytes=").unwrap_or(0), written_bytes: of("wbytes=").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_counts_are_read() {
        let first = "7:1 Read 5046272\n7:1 Write 4096\n7:1 Sync 1\n17:1 Read 9\n7:1 Total 5\nTotal 5\n";
        assert_eq!(counted_1(first, "7:1"), Used { read_bytes: 5_046_272, written_bytes: 4096 });
        let second = "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 rbytes=90430464\n";
        assert_eq!(counted_2(second, "8:16"), Used { read_bytes: 1_459_200, written_bytes: 314_773_504 });
        assert_eq!(counted_2(second, "8:1"), Used::default());
        assert_eq!((counted_1("", "8:1"), counted_2("8:1", "8:1")), (Used::default(), Used::default()));
    }

    /// As Linux 5.15 prints it: devices without figures have no line of their own.
    /// Promise: tenants-steer-others.
    #[test]
    fn figures_belong_to_the_last_device_before_them() {
        let text = "7:99 7:98 7:3 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:2 7:1 8:0 rbytes=5 wbytes=6\n7:7 7:8 \n";
        assert_eq!(counted_2(text, "7:3"), Used { read_bytes: 4096, written_bytes: 8192 });
        assert_eq!(counted_2(text, "8:0"), Used { read_bytes: 5, written_bytes: 6 });
        for without in ["7:99", "7:98", "7:2", "7:1", "7:7", "7:8", "7:9"] {
            assert_eq!(counted_2(text, without), Used::default(), "{without}");
        }
    }

    #[test]
    fn both_versions_limits_are_set_read_and_taken_away() {
        let device = "8:16";
        for files in [&LIMITED_1[..], &[LIMITED_2][..]] {
            let folder = tempfile::tempdir().unwrap();
            files.iter().for_each(|file| fs::write(folder.path().join(file), "").unwrap());
            let group = Group::open(folder.path()).unwrap();
            assert_eq!(group.limit(device).unwrap(), Limit::default());
            let limit = Limit { read: Some(2_097_152), write: Some(1000) };
            group.set_limit(device, limit).unwrap();
            assert_eq!(group.limit(device).unwrap(), limit);
            assert_eq!(group.limit("8:1").unwrap(), Limit::default(), "of that device only");
            group.set_limit(device, Limit { read: None, write: Some(7) }).unwrap();
            assert_eq!(group.limit(device).unwrap(), Limit { read: None, write: Some(7) });
        }
        let kernels = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n";
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LIMITED_2), kernels).unwrap();
        let group = Group::open(folder.path()).unwrap();
        assert_eq!(group.limit(device).unwrap(), Limit { read: Some(2_097_152), write: None });
        group.set_limit(device, Limit { read: Some(5), write: None }).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(LIMITED_2)).unwrap(), "8:16 rbps=5 wbps=max\n");
    }

    #[test]
    fn what_is_no_cgroup_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Group::open(&folder.path().join("none")).unwrap_err(), "there is no such cgroup");
        assert!(Group::open(folder.path()).unwrap_err().starts_with("is no cgroup"));
        fs::write(folder.path().join(CONTROLLERS), "cpu\n").unwrap();
        assert!(Group::open(folder.path()).unwrap_err().contains("echo +io > "));
    }

    #[test]
    fn the_controller_is_found_among_the_mounts() {
        let first = "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 30 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n";
        let second = "34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
        let both = MountTable::parse(format!("{second}{first}").as_bytes());
        let second = MountTable::parse(second.as_bytes());
        assert_eq!(controller_in(&both, |_| String::new()), Some("/sys/fs/cgroup/blkio".into()));
        assert_eq!(controller_in(&second, |_| String::new()), None);
        assert_eq!(controller_in(&second, |_| "cpuset io\n".into()), Some("/sys/fs/cgroup/unified".into()));
    }

    #[test]
    fn the_administrators_limits_hold_too() {
        let caps = Some(Caps { read_bytes_per_second: 10, write_bytes_per_second: 20 });
        let own = Limit { read: Some(5), write: None };
        assert_eq!(own.and(caps), Limit { read: Some(5), write: Some(20) });
        assert_eq!(own.and(None), own);
    }
}
