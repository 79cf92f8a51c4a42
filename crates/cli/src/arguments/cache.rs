//! Arguments of `plimsoll cache`.

use super::{DaemonArguments, DaemonOutputArguments};
use clap::{Args, Subcommand};
use plimsoll_core::ByteCount;
use std::path::PathBuf;

/// `plimsoll cache ...`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// What each cache has of which class, how often it was of use, what is dirty, and its syncer
    #[command(after_help = "Example:
  $ plimsoll cache status
  volume  cache  policy  semantics       size      used    dirty  at most  ...  past it  state
  db      fast   credit  write-cache  100 GiB  98.4 GiB  1.2 GiB   10 GiB  ...    2 GiB  works

  volume  class          size     of it    reads   hits   writes   hits
  db      5 file <=64K   12 GiB   12.2 %  120034  96.1 %   80211  99.0 %

Counts are of blocks of 4 KiB since the daemon started; what is free is still readable. --json prints everything.")]
    Status(DaemonOutputArguments),
    /// Make an empty cache on the device that the configuration names
    #[command(after_help = "Example:
  # plimsoll cache make plimsoll.toml fast
  cache fast: 99.6 GiB on /dev/nvme0n1p3 for volume db

The daemon does not make one by itself: an empty device could be one that was lost, with data that only it had. Where there is a
cache already, a file system or other data, or where the volume has a cache that was not detached, it is refused; --replace gives up what is
there, and what only the old cache had.")]
    Make(CacheMakeArguments),
    /// Say that a cache is the one that its volume has, where no note says so, while no daemon runs
    #[command(after_help = "Example:
  # plimsoll cache adopt plimsoll.toml fast
  volume db: cache fast, policy credit, 99 GiB found in it, 1.2 GiB of that not yet on the slow device; from now on it is noted that
  the volume has it

The daemon notes which cache a volume has (notes_directory). A cache that holds something and is not noted may be old: the volume
may have been written without it, by a daemon with another notes directory or on another machine. Then what the cache has is read
instead of what is newer, and written over it. Only you can know that this was not so.

With --moved a cache follows its slow file to another file system, or from a file to the loop device on it and back. The file must carry
the note of this cache (cp -a and mv keep it), as of the cache's last start. The file under its old name is refused from then on.")]
    Adopt(CacheAdoptArguments),
    /// Give up a volume's cache while no daemon runs, with what only that cache has
    #[command(after_help = "Example:
  # plimsoll cache forget plimsoll.toml db
  volume db: cache fast on /dev/nvme0n1p3 is given up, and what only it had is lost

A volume whose cache was not detached is not served without it, since what is newest may be in the cache only. This is for a cache
that is broken or gone. Where it is there, put cache = \"fast\" into [volume.db] again and use plimsoll cache detach: nothing
is lost then.")]
    Forget(CacheForgetArguments),
    /// Copy to the slow device what only a volume's cache has, while no daemon runs, from a device that can be read and
    /// not written
    #[command(after_help = "Example:
  # plimsoll cache rescue plimsoll.toml db
  volume db: 1.2 GiB copied from /dev/nvme0n1p3 to the slow device, nothing is missing (to do without the cache: ...)

Nothing is written to the fast device, so a daemon does not need to be able to use it. It may be done again, whatever stopped it. What
cannot be read is named, and the exit code is 1. The volume is served again when the cache was given up: plimsoll cache forget.")]
    Rescue(CacheForgetArguments),
    /// Write to the slow device what only the cache has; requests go on
    #[command(after_help = "Example:
  $ plimsoll cache flush db
  volume db: what was dirty is on the slow device

It waits until everything was copied that was dirty when it began and was not written again meanwhile.")]
    Flush(CacheVolumeArguments),
    /// Put a cache of the configuration before a volume that has none
    #[command(after_help = "Example:
  $ plimsoll cache attach db fast --make
  volume db: cache fast, policy credit, 0 B found in it, 0 B of that not yet on the slow device

Without --make a cache that is there already is used; it must be one of this volume. The configuration file is not changed:
without cache = \"fast\" in [volume.db] the next start refuses to serve the volume.")]
    Attach(CacheAttachArguments),
    /// Take the cache away from a volume, when everything in it is on the slow device
    #[command(after_help = "Example:
  $ plimsoll cache detach db
  volume db: everything is on the slow device, the cache is given up

  $ plimsoll cache detach db --lost
  volume db: 8 KiB could not be read and are lost, all else is on the slow device, the cache is given up (...)

A cache of which something cannot be read is not detached without --lost; nor is one whose device can be read only. Requests go on while the cache is flushed, wait for the last of it, and go on without it. The configuration file is not changed:
with cache = \"fast\" in [volume.db] the next start would look for it.")]
    Detach(CacheDetachArguments),
    /// Give the cache of a volume another size; it starts empty
    #[command(after_help = "Example:
  $ plimsoll cache resize db 50GiB
  volume db: its cache has 50 GiB, and is empty

It is detached and made anew. Change size in the configuration file, too.")]
    Resize(CacheResizeArguments),
    /// Go on with another policy, scheme of classes or semantics, with all that is in the cache
    #[command(after_help = "Example:
  $ plimsoll cache policy db --policy selective --classes ext4
  volume db: its cache goes on, with all that is in it

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
    /// Give up what is there: a cache, with what only it has, a file system, other data
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
    /// The slow file was moved, or is reached through a loop device now or no more, and was not written since
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
    /// Give up what cannot be read of the cache, and say how much that is
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
    /// Make an empty one; a device that holds something other than a cache is refused
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
