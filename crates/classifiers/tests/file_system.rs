//! The classifiers read from real file systems what these file systems' own tools say of them.

use plimsoll_classifiers::file_system::{Bytes, FileSystem, Layout};
use plimsoll_core::Class;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::NamedTempFile;

const MIB: u64 = 1 << 20;

/// What a program prints; `None`, with the reason printed, if it is not there.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    match Command::new(program).args(arguments).env("PATH", path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            println!("not run: {program} (Debian: e2fsprogs, xfsprogs): {error}");
            None
        }
    }
}

/// A new file system; mostly holes.
fn made(program: &str, options: &[&str], size_bytes: u64) -> Option<NamedTempFile> {
    let image = NamedTempFile::new().unwrap();
    image.as_file().set_len(size_bytes).unwrap();
    let path = image.path().to_str().unwrap();
    output(program, &[options, &[path]].concat()).map(|_| image)
}

fn layout(image: &Path) -> Layout {
    let mut file = File::open(image).unwrap();
    let size_bytes = file.metadata().unwrap().len();
    Layout::read(&mut file, size_bytes).unwrap().expect("a file system")
}

/// The class of each block that `dumpe2fs` and `debugfs` name.
fn told(image: &Path) -> (u64, BTreeMap<u64, u8>) {
    const KINDS: [(&str, u8); 7] = [
        ("rimary superblock at ", 1),
        ("ackup superblock at ", 1),
        ("roup descriptors at ", 2),
        ("roup descriptor at ", 2),
        ("eserved GDT blocks at ", 2),
        ("itmap at ", 3),
        ("node table at ", 4),
    ];
    let image = image.to_str().unwrap();
    let dumped = output("dumpe2fs", &[image]).unwrap();
    let mut blocks = BTreeMap::new();
    let numbers = |text: &str| {
        let text = text.split(|letter: char| !letter.is_ascii_digit() && letter != '-').next().unwrap();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        (first.parse::<u64>().unwrap(), last.parse::<u64>().unwrap())
    };
    for line in dumped.lines() {
        for (name, class) in KINDS {
            // A line may name two bitmaps.
            for rest in line.split(name).skip(1) {
                let (first, last) = numbers(rest);
                blocks.extend((first..=last).map(|block| (block, class)));
            }
        }
    }
    if dumped.contains("has_journal") {
        let journal = output("debugfs", &["-R", "blocks <8>", image]).unwrap();
        blocks.extend(journal.split_whitespace().map(|block| (block.parse::<u64>().unwrap(), 7)));
    }
    let size = dumped.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap();
    (size.trim().parse().unwrap(), blocks)
}

fn is_in_order(layout: &Layout, size_bytes: u64) -> bool {
    let ranges = layout.ranges();
    ranges.iter().all(|range| range.start < range.end && range.end <= size_bytes)
        && ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

/// Broken on purpose and seen red: backups in every group.
/// Promise: classes-layout.
#[test]
fn an_ext4_has_its_classes_where_its_own_tools_say() {
    let variants: [(&[&str], u64); 12] = [
        (&["-b", "4096"], 1024),
        (&["-b", "1024"], 64),
        (&["-b", "2048", "-g", "2048"], 128),
        (&["-t", "ext3", "-b", "1024", "-J", "size=16"], 128),
        (&["-t", "ext2", "-b", "4096"], 256),
        (&["-b", "4096", "-O", "^has_journal,^flex_bg"], 512),
        (&["-b", "4096", "-O", "^64bit,^resize_inode"], 512),
        (&["-b", "1024", "-O", "meta_bg,^resize_inode"], 512),
        (&["-b", "4096", "-O", "sparse_super2,^resize_inode"], 1024),
        (&["-b", "1024", "-O", "^sparse_super,^flex_bg,^resize_inode"], 64),
        (&["-b", "4096", "-O", "bigalloc", "-C", "65536"], 4096),
        (&["-b", "4096", "-J", "size=512", "-i", "65536"], 8192),
    ];
    for (options, size_mib) in variants {
        let options = [&["-q", "-F", "-E", "lazy_itable_init=1"], options].concat();
        let Some(image) = made("mkfs.ext4", &options, size_mib * MIB) else { return };
        let (block_bytes, told) = told(image.path());
        let layout = layout(image.path());
        assert_eq!(layout.file_system, FileSystem::Ext4);
        assert!(is_in_order(&layout, size_mib * MIB), "{options:?}");
        let found: BTreeMap<u64, u8> = layout
            .ranges()
            .iter()
            .flat_map(|range| (range.start / block_bytes..range.end / block_bytes).map(|at| (at, range.class.number())))
            .collect();
        let differs = |block: &u64| told.get(block) != found.get(block);
        let wrong: Vec<_> = told.keys().chain(found.keys()).filter(|block| differs(block)).take(5).collect();
        let shown = wrong.iter().map(|block| (**block, told.get(block), found.get(block))).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{options:?}: block, told, found: {shown:?}");
        if block_bytes == 4096 {
            let unclassified = (0..size_mib * MIB / 4096).find(|block| !told.contains_key(block)).unwrap();
            assert_eq!(layout.class(unclassified * 4096), Class::UNCLASSIFIED);
            assert!(told.iter().all(|(block, class)| layout.class(block * 4096).number() == *class));
        }
    }
}

/// Broken on purpose and seen red: the log's group is not taken off its number.
/// Promise: classes-layout.
#[test]
fn an_xfs_has_its_heads_and_its_log_where_its_own_tool_says() {
    let variants: [(&[&str], u64); 3] =
        [(&[], 512), (&["-b", "size=1024", "-s", "size=512"], 512), (&["-s", "size=4096", "-d", "agcount=7"], 1024)];
    for (options, size_mib) in variants {
        let options = [&["-q", "-f"], options].concat();
        let Some(image) = made("mkfs.xfs", &options, size_mib * MIB) else { return };
        let path = image.path().to_str().unwrap();
        let fields = ["blocksize", "agblocks", "agcount", "logstart", "logblocks", "sectsize"];
        let Some(printed) = output("xfs_db", &["-r", "-c", "sb 0", "-c", &format!("p {}", fields.join(" ")), path])
        else {
            return;
        };
        let field = |name: &str| -> u64 {
            let line = printed.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            line.unwrap_or_else(|| panic!("{name}: {printed}")).trim().parse().unwrap()
        };
        let [block_bytes, group_blocks, groups, log_start, log_blocks, sector_bytes] = fields.map(field);
        let place = output("xfs_db", &["-r", "-c", &format!("convert fsblock {log_start} daddr"), path]).unwrap();
        let sector: u64 = place.split(['(', ')']).nth(1).unwrap().parse().unwrap();
        let layout = layout(image.path());
        assert_eq!(layout.file_system, FileSystem::Xfs);
        assert!(is_in_order(&layout, size_mib * MIB), "{options:?}");
        let mut expected = BTreeMap::from([(sector * 512, (sector * 512 + log_blocks * block_bytes, 7))]);
        expected.insert(0, (block_bytes, 1));
        let head_bytes = (4 * sector_bytes).next_multiple_of(block_bytes);
        if head_bytes > block_bytes {
            expected.insert(block_bytes, (head_bytes, 2));
        }
        for group in 1..groups {
            let start = group * group_blocks * block_bytes;
            expected.insert(start, (start + head_bytes, 2));
        }
        let found = layout.ranges().iter().map(|range| (range.start, (range.end, range.class.number())));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{options:?}");
    }
}

#[test]
fn what_is_no_file_system_has_no_layout_and_what_cannot_be_is_told() {
    let volume = vec![0; MIB as usize];
    assert_eq!(Layout::read(&mut &volume[..], MIB).unwrap(), None);
    assert_eq!(Layout::read(&mut &volume[..100], 100).unwrap(), None);
    let Some(image) = small_image() else { return };
    for (at, byte, expected) in [
        (1024 + 0x18, 9, "the block size's logarithm is 9, allowed is 0..=6"),
        (1024 + 0x07, 9, "the number of blocks is 150"),
        (1024 + 0x58, 0xff, "the inode size is 511, allowed is a power of two in 128..=1024"),
        (2048 + 0x03, 0xff, "a block bitmap is 42"),
    ] {
        let mut bytes = image.clone();
        bytes[at] = byte;
        let error = Layout::read(&mut &bytes[..], bytes.len() as u64).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = Layout::read(&mut &image[..], image.len() as u64 / 2).unwrap_err().to_string();
    assert!(error.starts_with("the number of blocks is"), "a volume that is too small: {error}");
}

/// The superblock of an XFS, and nothing behind it, on a volume of any size.
struct XfsHead([u8; 512]);

impl XfsHead {
    /// With blocks of 4 KiB, sectors of 512 bytes and a log of 64 blocks at block 8 of the first group.
    fn new(blocks: u64, group_blocks: u32, groups: u32) -> XfsHead {
        let mut head = XfsHead([0; 512]);
        head.0[..4].copy_from_slice(b"XFSB");
        head.put(4, &4096u32.to_be_bytes()).put(8, &blocks.to_be_bytes()).put(102, &512u16.to_be_bytes());
        head.put(84, &group_blocks.to_be_bytes()).put(88, &groups.to_be_bytes());
        head.put(48, &8u64.to_be_bytes()).put(96, &64u32.to_be_bytes());
        head.put(124, &[group_blocks.next_power_of_two().trailing_zeros() as u8]);
        head
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut XfsHead {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn read(&self, blocks: u64) -> Result<Option<Layout>, String> {
        Layout::read(&mut XfsHead(self.0), blocks * 4096).map_err(|error| error.to_string())
    }
}

impl Bytes for XfsHead {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let there = self.0.get(offset as usize..).unwrap_or_default();
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        buffer[count..].fill(0);
        Ok(())
    }
}

/// Groups of one block made each block the head of a group, and were gone through however many there were.
///
/// Broken on purpose and seen red: groups of any size; any number of groups; any logarithm; a log across groups;
/// sectors larger than a block.
/// Promise: classes-hostile-layout.
#[test]
fn an_xfs_whose_groups_contradict_each_other_has_no_classes() {
    const BLOCKS: u64 = 1 << 20;
    let class = |layout: &Layout, block: u64| layout.class(block * 4096).number();
    let fine = XfsHead::new(BLOCKS, 1 << 18, 4).read(BLOCKS).unwrap().unwrap();
    assert_eq!([0, 8, 71, 72, 1 << 18].map(|block| class(&fine, block)), [1, 7, 7, 0, 2]);
    let odd = XfsHead::new(BLOCKS, 300_000, 4).read(BLOCKS).unwrap().unwrap();
    assert_eq!([299_999, 300_000, 900_000].map(|block| class(&odd, block)), [0, 2, 2]);

    let refusal = |head: &XfsHead| head.read(BLOCKS).unwrap_err();
    assert_eq!(refusal(&XfsHead::new(BLOCKS, 1, BLOCKS as u32)), "blocks of a group is 1, allowed is 64..=1048576");
    for groups in [0, 1, 3, 5, u32::MAX] {
        let expected = format!("the number of groups is {groups}, allowed is 4..=4");
        assert_eq!(refusal(&XfsHead::new(BLOCKS, 1 << 18, groups)), expected);
    }
    assert_eq!(
        refusal(XfsHead::new(BLOCKS, 1 << 18, 4).put(124, &[17])),
        "the logarithm of a group's blocks is 17, allowed is 18..=18"
    );
    assert_eq!(
        refusal(XfsHead::new(BLOCKS, 1 << 18, 4).put(102, &8192u16.to_be_bytes())),
        "the sector size is 8192, allowed is a power of two in 512..=4096"
    );
    let of_log = |start: u64, blocks: u32| {
        let mut head = XfsHead::new(BLOCKS, 300_000, 4);
        refusal(head.put(48, &start.to_be_bytes()).put(96, &blocks.to_be_bytes()))
    };
    assert_eq!(of_log(8, 299_993), "blocks of the log is 299993, allowed is 1..=299992");
    assert_eq!(of_log(4 << 19, 64), "the log's group is 4, allowed is 0..4");
    assert_eq!(of_log(300_000, 64), "the log's block is 300000, allowed is 1..300000");
    // The last group is shorter than the others.
    assert_eq!(of_log(3 << 19 | 148_576, 64), "the log's block is 148576, allowed is 1..148576");
    // More groups than are remembered.
    let many = XfsHead::new(1 << 30, 64, 1 << 24).read(1 << 30).unwrap_err();
    assert_eq!(many, "ranges of a layout: more than 655360 are not looked at");
}

/// An ext4 of 4 MiB with blocks of 1 KiB. Its superblock, descriptors and inodes are in its first 64 KiB.
fn small_image() -> Option<Vec<u8>> {
    static IMAGE: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let make = || {
        let options = ["-q", "-F", "-b", "1024", "-N", "16", "-O", "^resize_inode", "-J", "size=1"];
        made("mkfs.ext4", &options, 4 * MIB).map(|image| std::fs::read(image.path()).unwrap())
    };
    IMAGE.get_or_init(make).clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Whatever stands in the fields of a real image, nothing is read or classified that is not the volume's.
    /// Promise: classes-hostile-layout.
    #[test]
    fn no_spoiled_image_is_too_much(
        changes in prop::collection::vec((prop_oneof![1024usize..2048, 2048usize..3072, 0usize..65536], any::<u8>()), 1..6),
    ) {
        let Some(mut image) = small_image() else { return Ok(()) };
        for (at, byte) in changes {
            image[at] = byte;
        }
        let size_bytes = image.len() as u64;
        if let Ok(Some(layout)) = Layout::read(&mut &image[..], size_bytes) {
            prop_assert!(is_in_order(&layout, size_bytes));
        }
    }
}
