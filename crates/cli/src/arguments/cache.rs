//! Arguments of `plimsoll cache`.

use super::{DaemonArguments, DaemonOutputArguments};
use clap::{Args, Subcommand};
use plimsoll_core::ByteCount;
use std::path::PathBuf;

/// `plimsoll cache ...`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Show the content of each cache by class, its hits, its dirty data and its syncer
    #[command(after_help = "Example:
  $ plimsoll cache status
  volume  cache  policy  semantics       size      used    dirty  at most  ...  past it  state
  db      fast   credit  write-cache  100 GiB  98.4 GiB  1.2 GiB   10 GiB  ...    2 GiB  works

  volume  class          size     of it    reads   hits   writes   hits
  db      5 file <=64K   12 GiB   12.2 %  120034  96.1 %   80211  99.0 %

Counts are of blocks of 4 KiB since the daemon started. Reads still find blocks that count as free. --json prints everything.")]
    Status(DaemonOutputArguments),
    /// Make an empty cache on the device that the configuration names
    #[command(after_help = "Example:
  # plimsoll cache make plimsoll.toml fast
  cache fast: 99.6 GiB on /dev/nvme0n1p3 for volume db

The daemon does not make a cache by itself: an empty device could replace a lost one that had the only copy of some data. The
command refuses a device with a cache, a file system or other data, and a volume with a cache that was not detached. --replace
gives up the content of the device and the dirty data of the old cache.")]
    Make(CacheMakeArguments),
    /// Note that a cache belongs to its volume, if no note says so; no daemon may run
    #[command(after_help = "Example:
  # plimsoll cache adopt plimsoll.toml fast
  volume db: cache fast, policy credit, 99 GiB found in it, 1.2 GiB of that not yet on the slow device; a note now says that the volume has this cache

The daemon notes which cache a volume has (notes_directory). A cache with content and without a note may be old: a daemon with
another notes directory, or another machine, may have written to the volume without the cache. Then old blocks of the cache
would hide newer ones of the volume, and overwrite them. Only you can know that this did not happen.

With --moved a cache follows its slow file to another file system, or from a file to the loop device on it and back. The file must carry
the note of this cache (cp -a and mv keep it), as of the cache's last start. The file under its old name is refused from then on.")]
    Adopt(CacheAdoptArguments),
    /// Give up a volume's cache with its dirty data; no daemon may run
    #[command(after_help = "Example:
  # plimsoll cache forget plimsoll.toml db
  volume db: cache fast on /dev/nvme0n1p3 is given up, and its dirty data is lost

The daemon does not serve a volume without a cache that was not detached, since the newest data may be in the cache only. This
command is for a cache that is broken or gone. If the cache still works, put cache = \"fast\" into [volume.db] again and use
plimsoll cache detach: nothing is lost then.")]
    Forget(CacheForgetArguments),
    /// Copy a volume's dirty data from a cache that cannot be written to the slow device; no daemon may run
    #[command(after_help = "Example:
  # plimsoll cache rescue plimsoll.toml db
  volume db: 1.2 GiB copied from /dev/nvme0n1p3 to the slow device, nothing is missing (to do without the cache: ...)

It writes nothing to the fast device. It can be repeated after any interruption. It names the blocks that cannot be read, and
the exit code is 1. Afterwards give the cache up (plimsoll cache forget), and the daemon serves the volume again.")]
    Rescue(CacheForgetArguments),
    /// Write the cache's dirty data to the slow device; requests go on
    #[command(after_help = "Example:
  $ plimsoll cache flush db
  volume db: all dirty data is on the slow device

It waits until every block that was dirty at the start is copied or written again.")]
    Flush(CacheVolumeArguments),
    /// Attach a cache of the configuration to a volume without one
    #[command(after_help = "Example:
  $ plimsoll cache attach db fast --make
  volume db: cache fast, policy credit, 0 B found in it, 0 B of that not yet on the slow device

Without --make it uses the cache on the device, which must belong to this volume. The configuration file is not changed:
without cache = \"fast\" in [volume.db] the next start refuses to serve the volume.")]
    Attach(CacheAttachArguments),
    /// Flush the cache of a volume and detach it
    #[command(after_help = "Example:
  $ plimsoll cache detach db
  volume db: everything is on the slow device, the cache is given up

  $ plimsoll cache detach db --lost
  volume db: 8 KiB of dirty data could not be read and are lost, all other data is on the slow device, ...

Without --lost it refuses a cache with unreadable dirty blocks or on a device that cannot be written. Requests go on during
the flush, wait for its last blocks, and go on without the cache. The configuration file is not changed: with
cache = \"fast\" in [volume.db] the next start would look for the cache.")]
    Detach(CacheDetachArguments),
    /// Give the cache of a volume another size; it starts empty
    #[command(after_help = "Example:
  $ plimsoll cache resize db 50GiB
  volume db: its cache has 50 GiB, and is empty

The daemon detaches the cache and makes it anew. Change size in the configuration file, too.")]
    Resize(CacheResizeArguments),
    /// Change the policy, the scheme of classes or the semantics of a cache; its content stays
    #[command(after_help = "Example:
  $ plimsoll cache policy db --policy selective --classes ext4
  volume db: its cache is changed, and keeps its content

Policies: lru, s3_fifo, selective, credit (docs/cache.md). The configuration file is not changed.")]
    Policy(CachePolicyArguments),
}

/// Arguments of `plimsoll cache make`.
#[derive(Debug, Args)]
pub struct CacheMakeArguments {
    /// The configuration, in TOML
    pub file: PathBuf,
    /// The cache's name in it
    pub cache: String,
    /// Give up the content of the device: a cache with its dirty data, a file system, other data
    #[arg(long)]
    pub replace: bool,
}

/// Arguments of `plimsoll cache adopt`.
#[derive(Debug, Args)]
pub struct CacheAdoptArguments {
    /// The configuration, in TOML
    pub file: PathBuf,
    /// The cache's name in it
    pub cache: String,
    /// The slow file was moved, or its loop device came or went, and was not written since
    #[arg(long)]
    pub moved: bool,
}

/// Arguments of `plimsoll cache forget` and `plimsoll cache rescue`.
#[derive(Debug, Args)]
pub struct CacheForgetArguments {
    /// The configuration, in TOML
    pub file: PathBuf,
    /// The volume
    pub volume: String,
}

/// Arguments of what is done with a volume's cache.
#[derive(Debug, Args)]
pub struct CacheVolumeArguments {
    /// The volume
    pub volume: String,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll cache detach`.
#[derive(Debug, Args)]
pub struct CacheDetachArguments {
    /// The volume
    pub volume: String,
    /// Give up dirty blocks that cannot be read from the cache, and say how many bytes they have
    #[arg(long)]
    pub lost: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll cache attach`.
#[derive(Debug, Args)]
pub struct CacheAttachArguments {
    /// The volume
    pub volume: String,
    /// The cache's name in the configuration
    pub cache: String,
    /// Make an empty cache; the content of its device is lost
    #[arg(long)]
    pub make: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll cache resize`.
#[derive(Debug, Args)]
pub struct CacheResizeArguments {
    /// The volume
    pub volume: String,
    /// The new size, such as 50GiB
    pub size: ByteCount,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll cache policy`.
#[derive(Debug, Args)]
pub struct CachePolicyArguments {
    /// The volume
    pub volume: String,
    /// lru, s3_fifo, selective or credit
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// A scheme's name, or the path of a .toml file
    #[arg(long, value_name = "SCHEME")]
    pub classes: Option<String>,
    /// When a write is acknowledged: strict (when it is durable), write-cache (when a device has it) or write-through
    /// (when the slow device has it: nothing is dirty)
    #[arg(long, value_name = "SEMANTICS", value_parser = ["strict", "write-cache", "write-through"])]
    pub semantics: Option<String>,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}
