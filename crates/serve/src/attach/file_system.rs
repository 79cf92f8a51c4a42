//! Making a file system in an empty volume, and mounting one.

use super::error::AttachError;
use plimsoll_engine::content::Content;
use rustix::mount::{FsOpenFlags, MountFlags, fsconfig_set_flag, fsconfig_set_string, fsopen};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where programs are looked for besides `PATH`: where Debian keeps those that only root needs.
const SYSTEM_PROGRAM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Bytes of a failed program's words that an error repeats.
const SAID_BYTES_MAX: usize = 500;

/// Options of mount(8) that are flags of mount(2). All others go to the file system as text.
const GENERIC_OPTIONS: [(&str, MountFlags); 12] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("lazytime", MountFlags::LAZYTIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
];
/// Options of mount(8) that say what is so anyway.
const DEFAULT_OPTIONS: [&str; 7] = ["", "rw", "suid", "dev", "exec", "async", "defaults"];

/// A file system that a volume can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystemKind {
    /// ext4.
    Ext4,
    /// XFS; the volume needs 300 MB at least (mkfs.xfs(8)).
    Xfs,
}

/// Whether a volume may be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// It must hold the file system already.
    Never,
    /// If it holds nothing at all.
    IfEmpty,
}

/// The file system that a volume is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemPlan {
    /// Which one.
    pub kind: FileSystemKind,
    /// Whether to make it.
    pub format: Format,
    /// The directory to mount it on; made if it is missing, and left there.
    pub target: PathBuf,
    /// Options as mount(8) takes them, such as `noatime,discard`.
    pub options: String,
    /// Bytes of ext4's journal, a multiple of 1 MiB; `None` for what mke2fs gives it. Without meaning for XFS.
    pub journal_bytes: Option<u64>,
}

impl FileSystemKind {
    /// The name that mount(2) knows.
    pub const fn name(self) -> &'static str {
        match self {
            FileSystemKind::Ext4 => "ext4",
            FileSystemKind::Xfs => "xfs",
        }
    }

    const fn program(self) -> (&'static str, &'static str) {
        match self {
            FileSystemKind::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            FileSystemKind::Xfs => ("mkfs.xfs", "xfsprogs"),
        }
    }

    /// What the program is told. Neither is forced, so both refuse on their own to write over what they recognise.
    ///
    /// A discard first would only tell the backend that the volume is empty, which it knows. Ext4 leaves its inode
    /// tables and journal to be zeroed after the mount. For a large volume that saves minutes on a disk.
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            FileSystemKind::Ext4 => &["-q", "-b", "4096", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"],
            FileSystemKind::Xfs => &["-q", "-K"],
        }
    }

    /// What every mount gets. XFS refuses a second mount of one UUID. After a daemon was killed, processes that still
    /// have files open keep the dead mount alive, and must not keep the tenant from coming back. The lock on the
    /// backing file makes sure that no other process serves it.
    const fn own_options(self) -> &'static str {
        match self {
            FileSystemKind::Ext4 => "",
            FileSystemKind::Xfs => "nouuid",
        }
    }

    fn is_in(self, content: Content) -> bool {
        match self {
            FileSystemKind::Ext4 => matches!(content, Content::Ext { .. }),
            FileSystemKind::Xfs => matches!(content, Content::Xfs { .. }),
        }
    }
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FileSystemPlan {
    /// Whether the volume has to be formatted, given what it holds.
    ///
    /// # Errors
    /// It holds something else, or nothing and it must not or cannot be formatted.
    pub fn needs_format(&self, volume: &str, content: Content, is_read_only: bool) -> Result<bool, AttachError> {
        if self.kind.is_in(content) {
            return Ok(false);
        }
        if content == Content::Empty && self.format == Format::IfEmpty && !is_read_only {
            return Ok(true);
        }
        let expected = match self.format {
            _ if is_read_only => format!("{} (it is read-only)", self.kind),
            Format::Never => format!("{} (it may not be formatted)", self.kind),
            Format::IfEmpty => format!("{} or nothing", self.kind),
        };
        Err(AttachError::Content { volume: volume.to_owned(), found: content.to_string(), expected })
    }

    /// Makes the file system on `device`, which holds nothing.
    ///
    /// # Errors
    /// The program is missing or fails; the error has what it said.
    pub fn make(&self, device: &Path) -> Result<(), AttachError> {
        let (program, package) = self.kind.program();
        let path = find_program(program).ok_or(AttachError::ProgramMissing { program, package })?;
        let journal = self.journal_bytes.filter(|_| self.kind == FileSystemKind::Ext4);
        let mut command = Command::new(path);
        command.args(self.kind.arguments()).args(journal.map(|bytes| format!("-Jsize={}", bytes >> 20)));
        let run = command.arg(device).stdin(Stdio::null()).output();
        let output = run.map_err(AttachError::file("run", program))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().chars().take(SAID_BYTES_MAX).collect();
        Err(AttachError::ProgramFailed { program, outcome: output.status.to_string(), said })
    }

    /// Why the kernel would refuse the options, if it says so without a device; `None` if it takes them or cannot say.
    ///
    /// It takes root.
    pub fn refused_options(&self) -> Option<String> {
        let (_, options) = split_options(&format!("{},{}", self.kind.own_options(), self.options));
        // A quoted comma parts nothing: the security module reads such options.
        if options.contains('"') {
            return None;
        }
        let context = fsopen(self.kind.name(), FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
        options.split(',').filter(|option| !option.is_empty()).find_map(|option| {
            let set = match option.split_once('=') {
                Some((key, value)) => fsconfig_set_string(&context, key, value),
                None => fsconfig_set_flag(&context, option),
            };
            set.err().map(|errno| format!("{option:?}, which {} refuses ({errno})", self.kind))
        })
    }

    /// Why nothing can be mounted on the target, if so: nothing is made.
    pub fn refused_target(&self) -> Option<String> {
        let path = self.target.display();
        let there = self.target.ancestors().find(|above| above.symlink_metadata().is_ok())?;
        match std::fs::metadata(there) {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(_) => Some(format!("{path}, and {} is no directory", there.display())),
            Err(error) => Some(format!("{path}, and {}: {error}", there.display())),
        }
    }

    /// Mounts `device` on the target, which exists.
    ///
    /// # Errors
    /// What mount(2) says; the reason that a file system gives stands in the kernel's log.
    pub fn mount(&self, device: &Path, is_read_only: bool) -> io::Result<()> {
        let (mut flags, options) = split_options(&format!("{},{}", self.kind.own_options(), self.options));
        flags.set(MountFlags::RDONLY, is_read_only || flags.contains(MountFlags::RDONLY));
        let options = CString::new(options)?;
        Ok(rustix::mount::mount(device, &self.target, self.kind.name(), flags, options.as_c_str())?)
    }
}

/// Splits options of mount(8) into the flags of mount(2) and the text for the file system.
fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut own = Vec::new();
    for option in options.split(',').map(str::trim) {
        match GENERIC_OPTIONS.iter().find(|(name, _)| *name == option) {
            Some((_, flag)) => flags |= *flag,
            None if DEFAULT_OPTIONS.contains(&option) => {}
            None => own.push(option),
        }
    }
    (flags, own.join(","))
}

/// The first executable called `program` in `PATH` and the system's own directories.
fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(SYSTEM_PROGRAM_DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: FileSystemKind, format: Format) -> FileSystemPlan {
        FileSystemPlan { kind, format, target: PathBuf::from("/nowhere"), options: String::new(), journal_bytes: None }
    }

    #[test]
    fn only_nothing_is_formatted() {
        let ext4 = plan(FileSystemKind::Ext4, Format::IfEmpty);
        assert!(ext4.needs_format("a", Content::Empty, false).unwrap());
        assert!(!ext4.needs_format("a", Content::Ext { block_bytes: 4096 }, false).unwrap());
        for other in [Content::Xfs { sector_bytes: 512 }, Content::Btrfs, Content::Unknown { first_byte_at: 0 }] {
            assert!(matches!(ext4.needs_format("a", other, false), Err(AttachError::Content { .. })), "{other}");
        }
        let error = ext4.needs_format("a", Content::Btrfs, false).unwrap_err();
        let expected = "volume a holds a btrfs file system, expected ext4 or nothing; nothing was changed";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn never_means_never() {
        let xfs = plan(FileSystemKind::Xfs, Format::Never);
        assert!(!xfs.needs_format("a", Content::Xfs { sector_bytes: 4096 }, false).unwrap());
        assert!(xfs.needs_format("a", Content::Empty, false).is_err());
        let read_only = plan(FileSystemKind::Xfs, Format::IfEmpty).needs_format("a", Content::Empty, true);
        let expected = "volume a holds nothing, expected xfs (it is read-only); nothing was changed";
        assert_eq!(read_only.unwrap_err().to_string(), expected);
    }

    #[test]
    fn options_go_where_they_belong() {
        assert_eq!(split_options(",defaults"), (MountFlags::empty(), String::new()));
        let (flags, own) = split_options("nouuid,noatime, ro,logbsize=256k,rw");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(own, "nouuid,logbsize=256k");
    }

    /// Red without the argument: mke2fs gives 1 GiB a journal of 32 MiB.
    #[test]
    fn a_journal_has_the_size_that_was_asked_for() {
        let (Some(_), Some(dump)) = (find_program("mkfs.ext4"), find_program("dumpe2fs")) else {
            return println!("not run: e2fsprogs is missing");
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        let plan = FileSystemPlan { journal_bytes: Some(8 << 20), ..plan(FileSystemKind::Ext4, Format::IfEmpty) };
        plan.make(file.path()).unwrap();
        let said = Command::new(dump).arg("-h").arg(file.path()).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let size = said.lines().find_map(|line| line.strip_prefix("Total journal size:")).map(str::trim);
        assert_eq!(size, Some("8M"), "{said}");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        assert!(find_program("mkfs.no-such-file-system").is_none());
        let (program, package) = FileSystemKind::Xfs.program();
        let error = AttachError::ProgramMissing { program, package };
        assert_eq!(error.to_string(), "mkfs.xfs was not found; on Debian it is in the package xfsprogs");
    }
}
