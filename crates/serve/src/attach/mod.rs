//! From a volume to a mounted file system, and back.
//!
//! ```text
//!   attach:  FUSE file --> loop device --> look into it --> format if empty --> mount
//!   detach:  FUSE file <-- loop device <----------------------------------- unmount
//! ```
//!
//! Each step is noted in the state directory before it is done ([`state`]). The daemon or its successor undoes it from
//! the notes ([`teardown`]).
//!
//! From the FUSE mount on, every step does I/O that the engine has to answer. So all of this is called on a control
//! thread and never on the engine's, and [`Attachment::detach`] comes before the engine stops. The steps themselves run
//! [`isolated`], or a daemon that is killed in the middle of one would never be gone.
//!
//! It takes root: mount(2), the loop driver.

mod data;
mod error;
pub mod file_system;
mod foreign;
mod isolation;
mod loop_device;
pub mod state;
mod teardown;
pub mod thread_setup;

pub use data::DataPlaces;
pub use error::AttachError;
pub use file_system::{FileSystemKind, FileSystemPlan, Format};
pub use foreign::foreign_mount;
pub use isolation::isolated;
pub use state::StateDirectory;
pub use teardown::TeardownStep;

use plimsoll_core::Span;
use plimsoll_engine::content::Content;
use plimsoll_linux::{MOUNT_TABLE, MountTable};
use plimsoll_protocols::fuse::limits::PAYLOAD_BYTES_MAX;
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use state::MountNote;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teardown::Server;

/// Block size of a loop device without a demand for smaller blocks, in bytes: every I/O is then aligned for any disk.
const LOOP_BLOCK_BYTES: u32 = 4096;
const FUSE_DEVICE: &str = "/dev/fuse";

/// A volume that is to become a block device, and perhaps a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPlan {
    /// The volume's name: letters, digits, `-`, `_`, `.`.
    pub volume: String,
    /// Bytes; a multiple of 4096.
    pub size_bytes: u64,
    /// Smallest I/O that the volume takes, in bytes: 512 to 4096.
    pub block_bytes: u32,
    /// The block device refuses writes, and the file system is mounted read-only. One that was not unmounted cleanly
    /// cannot replay its journal then, and its mount fails unless its options say otherwise (XFS: `norecovery`).
    pub is_read_only: bool,
    /// The file system that it has or gets; `None` leaves it at the block device.
    pub file_system: Option<FileSystemPlan>,
}

/// Opens the state directory for this daemon and detaches what a predecessor left attached, as after a kill -9. A
/// volume of which something could not be undone stays noted and cannot be attached.
///
/// # Errors
/// A living daemon owns the directory, it cannot be written, or its state file is invalid.
pub fn recover(state_directory: &Path) -> Result<(Arc<StateDirectory>, Vec<TeardownStep>), AttachError> {
    let (state, left_over) = StateDirectory::open(state_directory)?;
    let mut steps = Vec::new();
    for (volume, notes) in &left_over {
        let first = steps.len();
        teardown::tear_down(volume, notes, &state.disk_path(volume), Server::Dead, &mut steps);
        if steps[first..].iter().all(|step| !step.is_left_over) {
            state.forget(volume)?;
        }
    }
    Ok((Arc::new(state), steps))
}

/// A volume with its FUSE file mounted, and what was built on it since. Dropping it detaches it.
#[derive(Debug)]
pub struct Attachment {
    state: Arc<StateDirectory>,
    plan: AttachPlan,
    loop_number: Option<u32>,
    is_attached: bool,
    data_places: DataPlaces,
    /// Whether the program was told to end, so that a long look ends.
    is_told_to_end: fn() -> bool,
}

impl Attachment {
    /// Mounts the volume's FUSE file. The descriptor is for the engine, which must serve it before
    /// [`build`](Self::build) is called; it is non-blocking.
    ///
    /// # Errors
    /// FUSE is missing, the kernel refuses (not root), or the volume is attached already.
    pub fn mount_disk(state: &Arc<StateDirectory>, plan: AttachPlan) -> Result<(Attachment, OwnedFd), AttachError> {
        state.begin(&plan.volume)?;
        // From here on a drop undoes whatever was done.
        let data_places = DataPlaces::default();
        let attachment = Attachment {
            state: Arc::clone(state),
            plan,
            loop_number: None,
            is_attached: true,
            data_places,
            is_told_to_end: || false,
        };
        let volume = &attachment.plan.volume;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = rustix::fs::open(FUSE_DEVICE, flags, Mode::empty());
        let connection = open.map_err(io::Error::from).map_err(AttachError::file("open", FUSE_DEVICE))?;
        let disk = attachment.disk_path();
        let make_file = OpenOptions::new().create(true).truncate(false).write(true).open(&disk);
        make_file.map_err(AttachError::file("make", &disk))?;

        let source = state.marked_name(volume);
        let note = MountNote { kind: "fuse".to_owned(), source: source.clone(), target: disk.clone(), id: None };
        state.note(volume, |notes| notes.fuse = Some(note))?;
        let options = format!(
            "fd={},rootmode=100600,user_id={},group_id={},max_read={PAYLOAD_BYTES_MAX}",
            connection.as_raw_fd(),
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw()
        );
        let options = CString::new(options).map_err(io::Error::from).map_err(AttachError::step(volume, "mount"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount(source.as_str(), &disk, "fuse", flags, options.as_c_str())
            .map_err(AttachError::step(volume, format!("mount FUSE on {}", disk.display())))?;
        let id = mount_id(&disk);
        state.note(volume, |notes| notes.fuse.iter_mut().for_each(|note| note.id = id))?;
        Ok((attachment, connection))
    }

    /// Sets the places where the volume may have data. A search for data before formatting reads no more than that. The
    /// look ends with an error when the program was told to end, which is asked after each MiB.
    pub fn has_data_in(&mut self, places: DataPlaces, is_told_to_end: fn() -> bool) {
        (self.data_places, self.is_told_to_end) = (places, is_told_to_end);
    }

    /// Makes a block device of the FUSE file and mounts the plan's file system, if any. Blocks until the engine
    /// answers.
    ///
    /// # Errors
    /// See [`AttachError`]; what was built stays until [`detach`](Self::detach) or the drop.
    pub fn build(&mut self) -> Result<(), AttachError> {
        self.make_device()?;
        self.mount()
    }

    /// The first half of [`build`](Self::build): the block device with a file system, not mounted. Between the two
    /// halves is the time for a watcher that must see a file system from its first block on.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn make_device(&mut self) -> Result<(), AttachError> {
        isolated(|| self.make_device_here())?
    }

    /// The second half: mounts the file system, if the plan has one.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// # Panics
    /// If [`make_device`](Self::make_device) was not called, or failed.
    pub fn mount(&mut self) -> Result<(), AttachError> {
        let device = self.device_path().expect("a device is made before it is mounted");
        isolated(|| self.mount_here(&device))?
    }

    fn make_device_here(&mut self) -> Result<(), AttachError> {
        let disk = self.disk_path();
        // The loop driver takes "read-only" from how its file was opened.
        let open = OpenOptions::new().read(true).write(!self.plan.is_read_only).open(&disk);
        let file = open.map_err(AttachError::file("open", &disk))?;
        let got = file.metadata().map_err(AttachError::file("ask", &disk))?.len();
        let AttachPlan { volume, size_bytes: expected, .. } = &self.plan;
        if got != *expected {
            return Err(AttachError::Size { volume: volume.clone(), got, expected: *expected });
        }
        let content = Content::of(&file, got).map_err(AttachError::file("read", &disk))?;
        let needs_format = match &self.plan.file_system {
            Some(file_system) => {
                let is_read_only = self.plan.is_read_only;
                // What its ends lack may be in between.
                if file_system.needs_format(volume, content, is_read_only)? {
                    let first = self.data_places.first_byte(volume, &file, got, self.is_told_to_end);
                    let first = first.map_err(AttachError::file("read", &disk))?;
                    let content = first.map_or(content, |first_byte_at| Content::Unknown { first_byte_at });
                    file_system.needs_format(volume, content, is_read_only)?
                } else {
                    false
                }
            }
            None => false,
        };
        let number = self.attach_loop_device(&file, content)?;
        self.loop_number = Some(number);
        match &self.plan.file_system {
            Some(file_system) if needs_format => file_system.make(&loop_device::device_path(number)),
            _ => Ok(()),
        }
    }

    fn attach_loop_device(&self, file: &File, content: Content) -> Result<u32, AttachError> {
        let AttachPlan { volume, block_bytes, .. } = &self.plan;
        let loop_block_bytes = LOOP_BLOCK_BYTES.min(content.block_bytes_max().unwrap_or(LOOP_BLOCK_BYTES));
        if loop_block_bytes < *block_bytes {
            let (volume, found) = (volume.clone(), content.to_string());
            return Err(AttachError::Blocks { volume, found, block_bytes: *block_bytes });
        }
        let name = self.state.marked_name(volume);
        loop_device::attach(volume, &self.disk_path(), file, loop_block_bytes, &name, |note| {
            self.state.note(volume, |notes| notes.loop_device = Some(note))
        })
    }

    fn mount_here(&mut self, device: &Path) -> Result<(), AttachError> {
        let volume = &self.plan.volume;
        let Some(file_system) = &mut self.plan.file_system else { return Ok(()) };
        let target = &mut file_system.target;
        std::fs::create_dir_all(&target).map_err(AttachError::file("make", target.as_path()))?;
        // The kernel's table of mounts has the path without links.
        *target = target.canonicalize().map_err(AttachError::file("find", target.as_path()))?;
        let kind = file_system.kind.name();
        let source = device.display().to_string();
        let note = MountNote { kind: kind.to_owned(), source, target: file_system.target.clone(), id: None };
        self.state.note(volume, |notes| notes.file_system = Some(note))?;
        let step = || format!("mount {kind} on {} (the kernel's log may say why)", file_system.target.display());
        file_system.mount(device, self.plan.is_read_only).map_err(|error| AttachError::step(volume, step())(error))?;
        let id = mount_id(&file_system.target);
        self.state.note(volume, |notes| notes.file_system.iter_mut().for_each(|note| note.id = id))
    }

    /// Unmounts the file system, if it is mounted. The block device stays, and [`mount`](Self::mount) mounts it again.
    ///
    /// # Errors
    /// A process uses it for longer than a second, or what the kernel says; it is mounted then.
    pub fn unmount(&mut self) -> Result<(), AttachError> {
        isolated(|| self.unmount_here())?
    }

    fn unmount_here(&self) -> Result<(), AttachError> {
        let volume = &self.plan.volume;
        let Some(note) = self.state.notes(volume).file_system else { return Ok(()) };
        let step = || format!("unmount {} from {}", note.kind, note.target.display());
        teardown::unmount_patiently(&note.target).map_err(|errno| AttachError::step(volume, step())(errno))?;
        self.state.note(volume, |notes| notes.file_system = None)
    }

    /// Where the volume's FUSE file is mounted.
    pub fn disk_path(&self) -> PathBuf {
        self.state.disk_path(&self.plan.volume)
    }

    /// The block device, once [`build`](Self::build) has made it.
    pub fn device_path(&self) -> Option<PathBuf> {
        self.loop_number.map(loop_device::device_path)
    }

    /// Undoes everything, in the right order, and says what was done. The engine must still serve the volume: the file
    /// system's last writes go through it. Doing it again does nothing.
    pub fn detach(&mut self) -> Vec<TeardownStep> {
        self.detach_from(Server::Alive)
    }

    /// The same after the engine has failed: calls that wait for the engine fail first.
    pub fn detach_from_failed_engine(&mut self) -> Vec<TeardownStep> {
        self.detach_from(Server::Dead)
    }

    /// The volume's name.
    pub fn volume(&self) -> &str {
        &self.plan.volume
    }

    fn detach_from(&mut self, server: Server) -> Vec<TeardownStep> {
        let mut steps = Vec::new();
        if !std::mem::take(&mut self.is_attached) {
            return steps;
        }
        let volume = &self.plan.volume;
        let (notes, disk) = (self.state.notes(volume), self.disk_path());
        if let Err(error) = isolated(|| teardown::tear_down(volume, &notes, &disk, server, &mut steps)) {
            steps.push(TeardownStep { volume: volume.clone(), what: error.to_string(), is_left_over: true });
        }
        self.loop_number = None;
        // What is left over stays noted, so that a successor tries again.
        let forgotten = if steps.iter().any(|step| step.is_left_over) { Ok(()) } else { self.state.forget(volume) };
        if let Err(error) = forgotten {
            tracing::warn!("{error}");
        }
        steps
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        for step in self.detach() {
            tracing::info!("{step}");
        }
    }
}

/// Every mount that this process sees; `None` where `/proc` is not mounted.
fn mounts() -> Option<MountTable> {
    std::fs::read(MOUNT_TABLE).ok().map(|text| MountTable::parse(&text))
}

/// The kernel's number for the mount at `path`.
fn mount_id(path: &Path) -> Option<u64> {
    mounts()?.on_top_at(path).map(|mount| mount.id)
}

/// Waits; only for what the kernel gives no event for.
fn pause(span: Span) {
    let nanoseconds = span.as_nanos();
    let mut left =
        Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 };
    while let NanosleepRelativeResult::Interrupted(remaining) = nanosleep(&left) {
        left = remaining;
    }
}
