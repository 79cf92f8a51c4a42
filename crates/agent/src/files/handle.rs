//! File handles as file systems make them for NFS: a file by its inode number.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

/// A handle of a file: inode and generation, both 32 bits (`FILEID_INO32_GEN`).
const HANDLE_NARROW: i32 = 1;
/// XFS: the inode has 64 bits (`XFS_FILEID_TYPE_64FLAG`).
const HANDLE_WIDE_OF_XFS: i32 = 0x81;
/// btrfs: inode and subvolume of 64 bits each, and generation (`FILEID_BTRFS_WITHOUT_PARENT`).
const HANDLE_OF_BTRFS: i32 = 0x4d;
const HANDLE_BYTES_OF_BTRFS: u32 = 20;
/// ext4 takes this generation for any; of btrfs only Linux 6.2 and later do.
const GENERATION_ANY: u32 = 0;
/// `XFS_IOC_BULKSTAT`, since Linux 5.3: `_IOR('X', 127, 64 bytes)`.
const XFS_BULKSTAT: u64 = 2 << 30 | 64 << 16 | 0x58 << 8 | 127;
/// `BTRFS_IOC_TREE_SEARCH`: `_IOWR(0x94, 17, 4096 bytes)`.
const BTRFS_TREE_SEARCH: u64 = 3 << 30 | 4096 << 16 | 0x94 << 8 | 17;
/// The kind of what a btrfs tree has of an inode itself (`BTRFS_INODE_ITEM_KEY`).
const INODE_ITEM: u32 = 1;

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    content: [u32; 5],
}

#[repr(C)]
struct BulkStatRequest {
    inode: u64,
    flags: u32,
    count_max: u32,
    count: u32,
    group: u32,
    reserved: [u64; 5],
    /// Inode of the first item found. Eight words of 64 bits come before its generation in an entry of 192 bytes.
    inode_found: u64,
    times_and_sizes: [u64; 7],
    generation: u32,
    rest: [u32; 31],
}

/// A search in the tree of the descriptor's subvolume, and the first item found.
#[repr(C)]
struct TreeSearch {
    tree: u64,
    inode_range: [u64; 2],
    offset_range: [u64; 2],
    transaction_range: [u64; 2],
    kind_range: [u32; 2],
    items: u32,
    spare: u32,
    reserved: [u64; 4],
    transaction_found: u64,
    inode_found: u64,
    offset_found: u64,
    kind_found: u32,
    bytes_found: u32,
    /// An inode's item begins with its generation.
    generation: u64,
    rest: [u64; 494],
}

const _: () = assert!(size_of::<TreeSearch>() == 4096, "what the number of the call says");

fn error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn open(mount: &File, mut handle: Handle, flags: OFlags) -> Result<File, Errno> {
    let flags = (flags | OFlags::CLOEXEC).bits() as i32;
    // SAFETY: the handle is laid out as the kernel's, `bytes` measures its variable part, and it lives for the call.
    let descriptor = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if descriptor < 0 {
        return Err(error());
    }
    // SAFETY: the call succeeded, so the descriptor is new and only ours.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// The file with this inode on ext4.
pub fn open_on_ext4(mount: &File, inode: u64, flags: OFlags) -> Result<File, Errno> {
    let narrow = u32::try_from(inode).map_err(|_| Errno::STALE)?;
    open(mount, Handle { bytes: 8, kind: HANDLE_NARROW, content: [narrow, GENERATION_ANY, 0, 0, 0] }, flags)
}

/// The file with this inode on XFS.
pub fn open_on_xfs(mount: &File, inode: u64, flags: OFlags) -> Result<File, Errno> {
    let generation = generation_on_xfs(mount, inode)?;
    let content = [inode as u32, (inode >> 32) as u32, generation, 0, 0];
    open(mount, Handle { bytes: 12, kind: HANDLE_WIDE_OF_XFS, content }, flags)
}

/// The file with this inode in the subvolume that is mounted, on btrfs.
pub fn open_on_btrfs(mount: &File, inode: u64, flags: OFlags) -> Result<File, Errno> {
    let [_, _, subvolume_low, subvolume_high, _] = handle_on_btrfs(mount)?.content;
    let generation = generation_on_btrfs(mount, inode)?;
    let content = [inode as u32, (inode >> 32) as u32, subvolume_low, subvolume_high, generation];
    open(mount, Handle { bytes: HANDLE_BYTES_OF_BTRFS, kind: HANDLE_OF_BTRFS, content }, flags)
}

/// The handle of the mount's own root.
fn handle_on_btrfs(mount: &File) -> Result<Handle, Errno> {
    let mut handle = Handle { bytes: HANDLE_BYTES_OF_BTRFS, kind: 0, content: [0; 5] };
    let (mut mount_id, flags) = (0, libc::AT_EMPTY_PATH);
    // SAFETY: the handle is laid out as the kernel's, `bytes` measures its variable part, and all addresses live for
    // the call.
    let result = unsafe {
        libc::name_to_handle_at(mount.as_raw_fd(), c"".as_ptr(), (&raw mut handle).cast(), &raw mut mount_id, flags)
    };
    match result {
        0 if handle.kind == HANDLE_OF_BTRFS && handle.bytes == HANDLE_BYTES_OF_BTRFS => Ok(handle),
        0 => Err(Errno::OPNOTSUPP),
        _ => Err(error()),
    }
}

fn generation_on_btrfs(mount: &File, inode: u64) -> Result<u32, Errno> {
    let mut search = TreeSearch {
        tree: 0,
        inode_range: [inode; 2],
        offset_range: [0; 2],
        transaction_range: [0, u64::MAX],
        kind_range: [INODE_ITEM; 2],
        items: 1,
        spare: 0,
        reserved: [0; 4],
        transaction_found: 0,
        inode_found: 0,
        offset_found: 0,
        kind_found: 0,
        bytes_found: 0,
        generation: 0,
        rest: [0; 494],
    };
    // SAFETY: the search is laid out as the kernel's, which is 4096 bytes long, as the number of the call says, and
    // lives for the call.
    let result = unsafe { libc::ioctl(mount.as_raw_fd(), BTRFS_TREE_SEARCH as libc::Ioctl, &raw mut search) };
    match result {
        0 if search.items == 1 && (search.inode_found, search.kind_found) == (inode, INODE_ITEM) => {
            // A handle has the lower half of it.
            Ok(search.generation as u32)
        }
        0 => Err(Errno::STALE),
        _ => Err(error()),
    }
}

fn generation_on_xfs(mount: &File, inode: u64) -> Result<u32, Errno> {
    let mut request = BulkStatRequest {
        inode,
        flags: 0,
        count_max: 1,
        count: 0,
        group: 0,
        reserved: [0; 5],
        inode_found: 0,
        times_and_sizes: [0; 7],
        generation: 0,
        rest: [0; 31],
    };
    // SAFETY: the request is laid out as the kernel's, with room for the one entry that it asks for.
    let result = unsafe { libc::ioctl(mount.as_raw_fd(), XFS_BULKSTAT as libc::Ioctl, &raw mut request) };
    match result {
        0 if request.count == 1 && request.inode_found == inode => Ok(request.generation),
        0 => Err(Errno::STALE),
        _ => Err(error()),
    }
}
