//! Content of a volume, by the magic numbers of its superblocks: ext, XFS, btrfs, nothing, or something else. Only a
//! volume that holds nothing is ever formatted.
//!
//! "Nothing" is not the absence of a magic that we know but zeroes. The first and the last MiB are looked at here.
//! Every file system, partition table, volume manager, RAID or swap header keeps its own there (ZFS: 512 KiB at both
//! ends; GPT: the last sectors). Before a volume is formatted, all that is in between is looked at, too (`data` of
//! `plimsoll_serve::attach`).

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at either end of the volume in which every known format has its mark.
const END_BYTES: u64 = 1 << 20;

/// ext2, ext3, ext4: the superblock stands at 1024, its magic at 0x38 (`struct ext4_super_block`, `s_magic`).
const EXT_SUPERBLOCK: usize = 1024;
const EXT_MAGIC: [u8; 2] = 0xEF53u16.to_le_bytes();
/// log2 of the block size over 1024 (`s_log_block_size`).
const EXT_BLOCK_SHIFT_AT: usize = EXT_SUPERBLOCK + 0x18;
/// Largest shift that ext4 knows: 64 KiB (`EXT4_MAX_BLOCK_LOG_SIZE` less 10).
const EXT_BLOCK_SHIFT_MAX: u8 = 6;
/// XFS: the magic is the first word; the sector size is a big-endian half word at 102 (`struct xfs_dsb`).
const XFS_MAGIC: &[u8] = b"XFSB";
const XFS_SECTOR_AT: usize = 102;
/// btrfs: the superblock stands at 64 KiB, its magic at 0x40 (`struct btrfs_super_block`).
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";
const BTRFS_MAGIC_AT: usize = (64 << 10) + 0x40;

/// Magic numbers of other formats: offset, bytes, and the format's name. Where several are found, the first counts.
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", "a LUKS container"),
    (0, b"PLIMCACH", "a cache of Plimsoll"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"hsqs", "a squashfs file system"),
    (0, &MD_MAGIC, "a member of a RAID (md)"),
    (4096, &MD_MAGIC, "a member of a RAID (md)"),
    (4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a device of bcache"),
    (512, b"LABELONE", "a physical volume of LVM"),
    (0, b"LABELONE", "a physical volume of LVM"),
    (1024, b"LABELONE", "a physical volume of LVM"),
    (1536, b"LABELONE", "a physical volume of LVM"),
    (4086, b"SWAPSPACE2", "swap space"),
    (65_526, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (1024, &0xF2F5_2010u32.to_le_bytes(), "an F2FS file system"),
    (1024, &0xE0F5_E1E2u32.to_le_bytes(), "an EROFS file system"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (510, b"\x55\xaa", "a partition table (MBR)"),
];
/// `struct mdp_superblock_1`, versions 1.1 and 1.2.
const MD_MAGIC: [u8; 4] = 0xa92b_4efcu32.to_le_bytes();

/// What a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeroes at both ends.
    Empty,
    /// ext2, ext3 or ext4.
    Ext {
        /// Bytes of its blocks, which the block device's must not exceed.
        block_bytes: u32,
    },
    /// XFS.
    Xfs {
        /// Bytes of its sectors, which the block device's must not exceed.
        sector_bytes: u32,
    },
    /// btrfs.
    Btrfs,
    /// Something else that says what it is.
    Marked {
        /// What it is called, with its article.
        name: &'static str,
    },
    /// Something else.
    Unknown {
        /// Where the first byte that is not zero stands.
        first_byte_at: u64,
    },
}

impl Content {
    /// Looks into `volume`, which has `size_bytes` bytes. Reads at most 2 MiB.
    ///
    /// # Errors
    /// What reading says.
    pub fn of(volume: &File, size_bytes: u64) -> io::Result<Content> {
        Content::read(size_bytes, |offset, bytes| volume.read_exact_at(bytes, offset))
    }

    /// Content of a device that `read` reads. `read` gets an offset, which is 0 or a MiB before `size_bytes`.
    ///
    /// # Errors
    /// What reading says.
    pub fn read(size_bytes: u64, mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> io::Result<Content> {
        let mut bytes = vec![0; END_BYTES.min(size_bytes) as usize];
        read(0, &mut bytes)?;
        if let Some(content) = by_magic(&bytes) {
            return Ok(content);
        }
        if let Some(at) = first_byte(&bytes) {
            return Ok(Content::Unknown { first_byte_at: at });
        }
        let tail_at = size_bytes.saturating_sub(END_BYTES);
        read(tail_at, &mut bytes)?;
        Ok(first_byte(&bytes).map_or(Content::Empty, |at| Content::Unknown { first_byte_at: tail_at + at }))
    }

    /// The largest block of a block device on which this content is usable; `None` for any size.
    pub fn block_bytes_max(self) -> Option<u32> {
        match self {
            Content::Ext { block_bytes } => Some(block_bytes),
            Content::Xfs { sector_bytes } => Some(sector_bytes),
            Content::Empty | Content::Btrfs | Content::Marked { .. } | Content::Unknown { .. } => None,
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Empty => out.write_str("nothing"),
            Content::Ext { block_bytes } => write!(out, "an ext4 file system with blocks of {block_bytes} bytes"),
            Content::Xfs { sector_bytes } => write!(out, "an XFS file system with sectors of {sector_bytes} bytes"),
            Content::Btrfs => out.write_str("a btrfs file system"),
            Content::Marked { name } => out.write_str(name),
            Content::Unknown { first_byte_at } => write!(out, "data of an unknown kind (at byte {first_byte_at})"),
        }
    }
}

fn first_byte(bytes: &[u8]) -> Option<u64> {
    bytes.iter().position(|byte| *byte != 0).map(|at| at as u64)
}

/// The file system with a superblock in the volume's first bytes. A superblock that contradicts itself is none.
fn by_magic(bytes: &[u8]) -> Option<Content> {
    let is_at = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if is_at(0, XFS_MAGIC) {
        let sector_bytes = u32::from(u16::from_be_bytes(*bytes.get(XFS_SECTOR_AT..)?.first_chunk()?));
        return (sector_bytes.is_power_of_two() && sector_bytes >= 512).then_some(Content::Xfs { sector_bytes });
    }
    if is_at(BTRFS_MAGIC_AT, BTRFS_MAGIC) {
        return Some(Content::Btrfs);
    }
    if is_at(EXT_SUPERBLOCK + 0x38, &EXT_MAGIC) {
        let shift = *bytes.get(EXT_BLOCK_SHIFT_AT)?;
        return (shift <= EXT_BLOCK_SHIFT_MAX).then(|| Content::Ext { block_bytes: 1024 << shift });
    }
    MARKS.iter().find(|(at, mark, _)| is_at(*at, mark)).map(|&(_, _, name)| Content::Marked { name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content_with(size_bytes: u64, marks: &[(u64, &[u8])]) -> Content {
        let volume = tempfile::tempfile().unwrap();
        volume.set_len(size_bytes).unwrap();
        for (at, mark) in marks {
            volume.write_all_at(mark, *at).unwrap();
        }
        Content::of(&volume, size_bytes).unwrap()
    }

    #[test]
    fn magics_are_told_apart() {
        let size = 8 << 20;
        assert_eq!(content_with(size, &[]), Content::Empty);
        assert_eq!(content_with(size, &[(1080, &[0x53, 0xEF]), (1048, &[2])]), Content::Ext { block_bytes: 4096 });
        assert_eq!(content_with(size, &[(0, b"XFSB"), (102, &[0x02, 0])]), Content::Xfs { sector_bytes: 512 });
        assert_eq!(content_with(size, &[(65_600, b"_BHRfS_M")]), Content::Btrfs);
    }

    /// Each mark of the table, and a file system that has a boot sector, too.
    /// Promise: notes-devices-in-use.
    #[test]
    fn what_says_what_it_is_is_called_by_its_name() {
        for &(at, mark, name) in MARKS {
            assert_eq!(content_with(8 << 20, &[(at as u64, mark)]), Content::Marked { name }, "at {at}");
        }
        let fat = content_with(8 << 20, &[(82, b"FAT32   "), (510, b"\x55\xaa")]);
        assert_eq!(fat.to_string(), "a FAT file system");
    }

    #[test]
    fn whatever_is_at_either_end_is_not_nothing() {
        let size = 8 << 20;
        for at in [0, 4086, (1 << 20) - 1, size - (1 << 20), size - 4096, size - 1] {
            assert_eq!(content_with(size, &[(at, &[1])]), Content::Unknown { first_byte_at: at });
        }
        assert_eq!(content_with(512, &[(511, &[1])]), Content::Unknown { first_byte_at: 511 });
        assert_eq!(content_with(0, &[]), Content::Empty);
    }

    #[test]
    fn a_superblock_that_contradicts_itself_is_data() {
        let size = 8 << 20;
        let broken_xfs = content_with(size, &[(0, b"XFSB"), (102, &[0x02, 1])]);
        assert_eq!(broken_xfs, Content::Unknown { first_byte_at: 0 });
        let broken_ext = content_with(size, &[(1080, &[0x53, 0xEF]), (1048, &[7])]);
        assert_eq!(broken_ext, Content::Unknown { first_byte_at: 1048 });
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            by_magic(&bytes);
        }
    }
}
