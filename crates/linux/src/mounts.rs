//! The kernel's table of mounts, `/proc/self/mountinfo`: what is mounted where, and on which device?
//!
//! One line a mount (proc_pid_mountinfo(5)):
//!
//! ```text
//!   36 35 7:3 / /mnt/a rw,noatime shared:1 - ext4 /dev/loop3 rw,discard
//!   id    device root target                 kind source     options
//! ```
//!
//! **Complication.** Users may mount: names of theirs, in any bytes, and what they say is the source of a FUSE file
//! system. So nothing here has to be text, and a source is believed only of a file system that the kernel mounts from a
//! disk ([`Mount::source_disk`]).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where the kernel tells it.
pub const MOUNT_TABLE: &str = "/proc/self/mountinfo";
/// File systems with a superblock number that belongs to no disk. Their source is the path of a disk, which the kernel
/// has opened.
const NAME_THEIR_DISK: [&str; 2] = ["btrfs", "bcachefs"];

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number for it; used again after it is gone.
    pub id: u64,
    /// Major and minor number of the device, or of the file system where it has no device.
    pub device: (u32, u32),
    /// What of the file system is mounted: `/` for all of it.
    pub root: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// The file system's type.
    pub kind: String,
    /// What is mounted: a device, or what the file system calls itself.
    pub source: PathBuf,
    /// The file system's own options, as they stand there: parted by commas.
    pub options: OsString,
}

impl Mount {
    /// The path of its disk, where its number is not that of a disk and its source can be believed.
    pub fn source_disk(&self) -> Option<&Path> {
        NAME_THEIR_DISK.contains(&self.kind.as_str()).then_some(&*self.source)
    }

    /// The directory that an overlay writes to. If all its layers are of one file system, its files have a number of
    /// its own.
    pub fn upper_directory(&self) -> Option<PathBuf> {
        if self.kind != "overlay" {
            return None;
        }
        let mut options = self.options.as_encoded_bytes().split(|byte| *byte == b',');
        let directory = options.find_map(|option| option.strip_prefix(b"upperdir="))?;
        Some(path(directory))
    }

    /// Whether the file system's options have this one.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.as_encoded_bytes().split(|byte| *byte == b',').any(|option| option == name.as_bytes())
    }
}

/// Every mount that this process sees, lowest first.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// From the bytes of [`MOUNT_TABLE`]; a line that is not as documented is passed over.
    pub fn parse(text: &[u8]) -> MountTable {
        MountTable { mounts: text.split(|byte| *byte == b'\n').filter_map(parse_line).collect() }
    }

    /// The mount that `path` leads to: the last one there, which hides what was mounted before.
    pub fn on_top_at(&self, path: &Path) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.target == path)
    }

    /// Every mount, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?)?.parse().ok()?;
    let (_parent, device) = (fields.next()?, text(fields.next()?)?);
    let (root, target) = (path(fields.next()?), path(fields.next()?));
    let _options = fields.next()?;
    fields.by_ref().find(|field| *field == b"-")?;
    let kind = text(fields.next()?)?.to_owned();
    let (source, options) = (path(fields.next()?), OsString::from_vec(fields.next().unwrap_or_default().to_vec()));
    let (major, minor) = device.split_once(':')?;
    Some(Mount { id, device: (major.parse().ok()?, minor.parse().ok()?), root, target, kind, source, options })
}

fn path(field: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(field)).into()
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

/// Undoes the kernel's `\040` for space, `\011` for tab, `\012` for newline, `\134` for backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        rest = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if first == b'\\' => {
                plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                tail
            }
            _ => {
                plain.push(first);
                after
            }
        };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        40 27 0:41 / /run/plimsoll/my\\040disk rw,nosuid shared:7 master:1 - fuse plimsoll:a\\134b rw,user_id=0\n\
        41 27 7:3 / /mnt/a rw - ext4 /dev/loop3 rw\n\
        42 27 7:4 / /mnt/a rw - xfs /dev/loop4 rw\n\
        not a line\n43 27 7 / /x rw - ext4 /dev/loop5 rw\n44 27 7:5 / /y rw\n";

    #[test]
    fn lines_are_read_and_broken_ones_passed_over() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.iter().map(|mount| mount.id).collect::<Vec<_>>(), [27, 40, 41, 42]);
        let fuse = table.on_top_at(Path::new("/run/plimsoll/my disk")).unwrap();
        let expected = (40, (0, 41), "fuse", Path::new("plimsoll:a\\b"));
        assert_eq!((fuse.id, fuse.device, fuse.kind.as_str(), &*fuse.source), expected);
        assert_eq!((&*fuse.root, fuse.has_option("user_id=0"), fuse.has_option("user")), (Path::new("/"), true, false));
    }

    /// Any user may mount a FUSE file system on a directory of this name. Planted break: lines are read as text.
    #[test]
    fn a_name_that_is_no_text_hides_no_other_mount() {
        let table = MountTable::parse(
            b"40 27 0:41 / /mnt/\xff rw - fuse.x \xfe rw\n41 27 7:3 / /mnt/a rw - ext4 /dev/loop3 rw\n",
        );
        assert_eq!(table.iter().map(|mount| mount.id).collect::<Vec<_>>(), [40, 41]);
        let odd = PathBuf::from(OsString::from_vec(b"/mnt/\xff".to_vec()));
        assert_eq!(table.on_top_at(&odd).map(|mount| mount.id), Some(40));
    }

    /// Planted break: every source is believed.
    #[test]
    fn a_source_is_believed_where_the_kernel_has_opened_it() {
        let of = |line: &str| MountTable::parse(line.as_bytes()).mounts.remove(0);
        let btrfs = of("1 2 0:40 /sub /a rw - btrfs /dev/sdb1 rw,space_cache=v2,subvol=/sub");
        assert_eq!(btrfs.source_disk(), Some(Path::new("/dev/sdb1")));
        for line in ["1 2 0:41 / /a rw - fuse.ssh /dev/sdb1 rw", "1 2 0:42 / /a rw - nfs /dev/sdb1 rw"] {
            assert_eq!(of(line).source_disk(), None, "{line}");
        }
    }

    #[test]
    fn an_overlay_says_where_it_writes() {
        let of = |line: &str| MountTable::parse(line.as_bytes()).mounts.remove(0).upper_directory();
        let overlay =
            "1 2 0:43 / /merged rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/var/my\\040upper,workdir=/w";
        assert_eq!(of(overlay), Some("/var/my upper".into()));
        assert_eq!(of("1 2 0:43 / /merged ro - overlay overlay ro,lowerdir=/l1:/l2"), None);
        assert_eq!(of("1 2 0:43 / /merged rw - fuse.overlay x rw,upperdir=/var/upper"), None);
    }

    #[test]
    fn the_mount_on_top_is_the_last_one() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.on_top_at(Path::new("/mnt/a")).map(|mount| mount.id), Some(42));
        assert_eq!(table.on_top_at(Path::new("/mnt")), None);
    }

    #[test]
    fn the_kernel_and_we_agree_on_the_root() {
        let table = MountTable::parse(&std::fs::read(MOUNT_TABLE).unwrap());
        assert!(table.on_top_at(Path::new("/")).is_some());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            MountTable::parse(&text);
        }

        #[test]
        fn escaped_text_comes_back(plain in proptest::collection::vec(1u8..=255, 0..40)) {
            let escaped: Vec<u8> = plain.iter().flat_map(|byte| format!("\\{byte:03o}").into_bytes()).collect();
            prop_assert_eq!(unescape(&escaped), plain);
        }
    }
}
