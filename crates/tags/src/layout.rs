//! Where ext4 keeps what, from the mouths of its own tools: `dumpe2fs` and `debugfs`.
//!
//! Superblocks, descriptors, bitmaps, inode tables and the journal stay where mke2fs put them. A file system that grows
//! afterwards has more of them; those count as other metadata until the tags are loaded again.

use crate::device::SECTOR_BYTES;
use crate::shared::Layout;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `dumpe2fs` says before the blocks of each kind, and their class.
const KINDS: [(&str, u32); 6] = [
    ("rimary superblock at ", 1),
    ("ackup superblock at ", 1),
    ("roup descriptors at ", 2),
    ("lock bitmap at ", 3),
    ("node bitmap at ", 3),
    ("node table at ", 4),
];
const CLASS_JOURNAL: u32 = 7;

/// Where ext4 keeps its inodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inodes {
    /// The byte of the device at which each group's begin; 0: not told.
    pub(crate) tables: Vec<u64>,
    /// Inodes of a group; 0: not known.
    pub(crate) per_group: u32,
    /// Of one inode.
    pub(crate) bytes: u32,
}

/// The static layout of an ext4 file system.
#[derive(Debug, Default)]
pub(crate) struct StaticLayout {
    /// Sorted, without overlaps.
    pub(crate) ranges: Vec<Layout>,
    pub(crate) inodes: Inodes,
    /// Sectors of a block.
    pub(crate) block_sectors: u32,
}

impl StaticLayout {
    /// Asks the tools; the error says why they do not answer.
    pub(crate) fn of(device: &Path) -> Result<StaticLayout, String> {
        let blocks = output(Command::new("dumpe2fs").arg(device))?;
        let journal = output(Command::new("debugfs").args(["-R", "blocks <8>"]).arg(device))?;
        parse(&blocks, &journal).ok_or_else(|| "dumpe2fs says nothing of a block size".to_owned())
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program} (Debian: e2fsprogs): {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(dumped: &str, journal: &str) -> Option<StaticLayout> {
    let block_sectors = u32::try_from(number(dumped, "Block size:")? / SECTOR_BYTES).ok()?;
    let inodes = inodes(dumped, u64::from(block_sectors) * SECTOR_BYTES).unwrap_or_default();
    let mut blocks: Vec<(u64, u64, u32)> = Vec::new();
    for line in dumped.lines() {
        for (name, class) in KINDS {
            let Some((_, rest)) = line.split_once(name) else { continue };
            let numbers = rest.split(|letter: char| !letter.is_ascii_digit() && letter != '-').next()?;
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
                blocks.push((first, last, class));
            }
        }
    }
    blocks.extend(
        journal.split_whitespace().filter_map(|word| word.parse().ok()).map(|block| (block, block, CLASS_JOURNAL)),
    );
    blocks.sort_unstable();
    let mut ranges: Vec<Layout> = Vec::new();
    let sectors_of = u64::from(block_sectors);
    for (first, last, block_class) in blocks {
        let (sector, sectors) = (first * sectors_of, u32::try_from((last + 1 - first) * sectors_of).ok()?);
        match ranges.last_mut() {
            Some(range) if range.block_class == block_class && range.sector + u64::from(range.sectors) == sector => {
                range.sectors += sectors;
            }
            Some(range) if range.sector + u64::from(range.sectors) > sector => {}
            _ => ranges.push(Layout { sector, sectors, block_class }),
        }
    }
    Some(StaticLayout { ranges, inodes, block_sectors })
}

/// The number that stands first behind `name` at the beginning of a line.
fn number(dumped: &str, name: &str) -> Option<u64> {
    dumped.lines().find_map(|line| digits(line.strip_prefix(name)?))
}

fn digits(text: &str) -> Option<u64> {
    text.trim_start().split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn inodes(dumped: &str, block_bytes: u64) -> Option<Inodes> {
    let per_group = u32::try_from(number(dumped, "Inodes per group:")?).ok()?;
    let bytes = u32::try_from(number(dumped, "Inode size:")?).ok()?;
    let mut tables = Vec::new();
    for line in dumped.lines() {
        if let Some(group) = line.strip_prefix("Group ").and_then(digits) {
            // They are told in order; one that is not is a line of something else.
            tables.extend((group == tables.len() as u64).then_some(0));
        } else if let Some((_, rest)) = line.split_once("node table at ")
            && let (Some(table), Some(block)) = (tables.last_mut(), digits(rest))
        {
            *table = block * block_bytes;
        }
    }
    Some(Inodes { tables, per_group, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMPED: &str = "Block size:               4096
Inodes per group:         8192
Inode size:	          256
Group 0: (Blocks 0-32767) csum 0x1
  Primary superblock at 0, Group descriptors at 1-1
  Reserved GDT blocks at 2-257
  Block bitmap at 258 (+258), csum 0x1
  Inode bitmap at 274 (+274), csum 0x2
  Inode table at 290-801 (+290)
Group 1: (Blocks 32768-65535)
  Backup superblock at 32768, Group descriptors at 32769-32769
  Block bitmap at 259 (bg #0 + 259)
  Inode table at 802-1313 (bg #0 + 802)
";

    #[test]
    fn what_dumpe2fs_says_becomes_ranges() {
        let layout = parse(DUMPED, "8225 8226 8227\n").unwrap();
        let ranges = layout.ranges.iter().map(|range| (range.sector / 8, range.sectors / 8, range.block_class));
        let expected = [
            (0, 1, 1),
            (1, 1, 2),
            (258, 2, 3),
            (274, 1, 3),
            (290, 1024, 4),
            (8225, 3, 7),
            (32768, 1, 1),
            (32769, 1, 2),
        ];
        assert_eq!(ranges.collect::<Vec<_>>(), expected);
        assert_eq!(layout.block_sectors, 8);
        let tables = vec![290 * 4096, 802 * 4096];
        assert_eq!(layout.inodes, Inodes { tables, per_group: 8192, bytes: 256 });
        assert!(parse("nothing", "").is_none());
    }
}
