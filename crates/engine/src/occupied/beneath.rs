//! Layers beneath a block device: the file of a loop device, the disk of a partition, the members of a mapped device.
//!
//! ```text
//!   /dev/loop1p2  ->  /dev/loop1, from the partition's first byte
//!                 ->  /srv/a.img, from there and the loop device's offset
//! ```
//!
//! **The intuition.** Two paths may lead to the same bytes. So a program that asks for some bytes goes down to the last
//! file that has them. What holds for these bytes there (locks, notes, other users) holds for the block device.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most layers that are followed: the kernel takes no circle, but sysfs may change meanwhile.
const LAYERS_MAX: u32 = 16;
/// In which sysfs counts.
const SECTOR_BYTES: u64 = 512;

/// Bytes of a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteExtent {
    /// The first.
    pub(crate) begin: u64,
    /// The first behind them; `u64::MAX` where they go up to the end.
    pub(crate) end: u64,
}

impl ByteExtent {
    /// All bytes.
    pub(crate) const ALL: ByteExtent = ByteExtent { begin: 0, end: u64::MAX };

    /// Whether a byte is in both.
    pub(crate) fn meets(self, other: ByteExtent) -> bool {
        self.begin < other.end && other.begin < self.end
    }

    /// Restricts these bytes to `bytes` bytes from `begin`, 0 for all.
    fn within(self, begin: u64, bytes: u64) -> ByteExtent {
        let last = if bytes == 0 { u64::MAX } else { begin.saturating_add(bytes) };
        ByteExtent { begin: begin.saturating_add(self.begin), end: begin.saturating_add(self.end).min(last) }
    }
}

/// A layer beneath a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What of it the block device above has.
    pub(crate) extent: ByteExtent,
    /// Whether the block device above has exactly these bytes. Of a mapped device's members that is not known.
    pub(crate) is_exact: bool,
    /// The name of the block device right above, such as `loop0`.
    pub(crate) above: String,
}

/// All layers beneath what is at `path`, the uppermost first; none beneath a regular file.
pub(crate) fn layers(path: &Path) -> Vec<Layer> {
    let mut layers = Vec::new();
    go_down(Path::new("/sys/dev/block"), path, ByteExtent::ALL, true, 0, &mut layers);
    layers
}

fn go_down(sys: &Path, path: &Path, extent: ByteExtent, is_exact: bool, depth: u32, layers: &mut Vec<Layer>) {
    let Ok(metadata) = fs::metadata(path) else { return };
    if !metadata.file_type().is_block_device() || depth > LAYERS_MAX {
        return;
    }
    let number = metadata.rdev();
    let directory = sys.join(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let Ok(directory) = directory.canonicalize() else { return };
    let name = |of: &Path| of.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut below = |path: PathBuf, extent: ByteExtent, is_exact: bool| {
        let above = name(&directory);
        layers.push(Layer { path: path.clone(), extent, is_exact, above });
        go_down(sys, &path, extent, is_exact, depth + 1, layers);
    };
    let said = |what: &str| fs::read_to_string(directory.join(what)).ok();
    let number = |what: &str| said(what).and_then(|text| text.trim().parse::<u64>().ok());
    if number("partition").is_some() {
        let (Some(start), Some(sectors), Some(disk)) = (number("start"), number("size"), directory.parent()) else {
            return;
        };
        let extent = extent.within(start * SECTOR_BYTES, sectors * SECTOR_BYTES);
        below(Path::new("/dev").join(name(disk)), extent, is_exact);
    } else if let Some(backing) = said("loop/backing_file") {
        let (offset, limit) = (number("loop/offset").unwrap_or(0), number("loop/sizelimit").unwrap_or(0));
        below(backing.trim_end_matches('\n').into(), extent.within(offset, limit), is_exact);
    } else {
        for slave in fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten() {
            below(Path::new("/dev").join(slave.file_name()), ByteExtent::ALL, false);
        }
    }
}

/// The file at the bottom of the loop device at `path`, or of a part of one: its path and the range.
pub(crate) fn file_beneath(path: &Path) -> Option<(PathBuf, ByteExtent)> {
    let layer = layers(path).pop().filter(|layer| layer.is_exact)?;
    layer.path.is_file().then_some((layer.path, layer.extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: a limit counts from the file's beginning.
    #[test]
    fn bytes_of_a_part_are_bytes_of_the_whole() {
        let extent = |begin, end| ByteExtent { begin, end };
        assert_eq!(ByteExtent::ALL.within(0, 0), ByteExtent::ALL);
        assert_eq!(ByteExtent::ALL.within(4096, 0), extent(4096, u64::MAX));
        assert_eq!(ByteExtent::ALL.within(4096, 512), extent(4096, 4608));
        assert_eq!(extent(512, 1024).within(4096, 768), extent(4608, 4864));
        assert!(extent(0, 2).meets(extent(1, 3)) && !extent(0, 2).meets(extent(2, 3)));
        assert!(ByteExtent::ALL.meets(extent(7, 8)) && !extent(2, 3).meets(extent(0, 2)));
    }

    #[test]
    fn nothing_is_beneath_a_regular_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!((layers(file.path()), file_beneath(file.path())), (Vec::new(), None));
    }
}
