//! What runs in other processes, as files: the preload shim (`shim/gate.c`), the keeper (`shim/keeper.c`) and the
//! thawer (`shim/thawer.c`).

use crate::error::GateError;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const SHIM: (&str, &[u8]) = ("plimsoll-gate.so", include_bytes!(concat!(env!("OUT_DIR"), "/plimsoll-gate.so")));
const KEEPER: (&str, &[u8]) = ("plimsoll-keeper", include_bytes!(concat!(env!("OUT_DIR"), "/plimsoll-keeper")));
const THAWER: (&str, &[u8]) = ("plimsoll-thawer", include_bytes!(concat!(env!("OUT_DIR"), "/plimsoll-thawer")));
/// How often a busy program is tried, and the pause between tries. A program file that was just written is still open
/// for writing in a process that another thread has forked, until that executes.
const BUSY_TRIES: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Every user may load and run them, none may write them.
const MODE: u32 = 0o555;

/// Shim, keeper and thawer, written to a directory.
#[derive(Clone, Debug)]
pub struct Programs {
    shim: PathBuf,
    keeper: PathBuf,
    thawer: PathBuf,
}

impl Programs {
    /// Writes the programs to `directory`, which every user may enter and only the agent may write to: the shim becomes
    /// part of every tenant. Debian mounts /run `noexec`, so it is not the directory of the words. Files that are there
    /// are replaced; a process that runs them keeps what it has.
    ///
    /// # Errors
    /// The directory's name cannot stand in a list of libraries, it is mounted `noexec`, or a file cannot be written.
    pub fn install(directory: &Path) -> Result<Programs, GateError> {
        // ld.so(8): LD_PRELOAD is split at the first two and `$ORIGIN`, `$LIB`, `$PLATFORM` are replaced. Tenants
        // change directory.
        if !directory.is_absolute() || directory.to_str().is_none_or(|text| text.contains([' ', ':', '$'])) {
            return Err(GateError::Unloadable { directory: directory.to_owned() });
        }
        let system = statvfs(directory).map_err(|errno| GateError::file("look at", directory)(errno.into()))?;
        if system.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(GateError::NotExecutable { directory: directory.to_owned() });
        }
        let [shim, keeper, thawer] = [SHIM, KEEPER, THAWER].map(|program| write(directory, program));
        Ok(Programs { shim: shim?, keeper: keeper?, thawer: thawer? })
    }

    /// The shim, for `LD_PRELOAD`.
    pub fn shim(&self) -> &Path {
        &self.shim
    }

    pub(crate) fn keeper(&self) -> &Path {
        &self.keeper
    }

    pub(crate) fn thawer(&self) -> &Path {
        &self.thawer
    }
}

/// Runs one of the programs, which goes into the background by itself, with our line on its descriptor 0.
pub(crate) fn run(program: &Path, arguments: &[&Path], line: OwnedFd) -> Result<ExitStatus, GateError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(line)).stdout(Stdio::null()).stderr(Stdio::null());
    // The environment may be a tenant's by mistake; a gated keeper would wait for itself.
    command.env_clear();
    let mut tries = 0..BUSY_TRIES;
    loop {
        match command.status() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries.next().is_some() => {
                std::thread::park_timeout(BUSY_PAUSE);
            }
            status => return status.map_err(GateError::file("run", program)),
        }
    }
}

fn write(directory: &Path, (name, content): (&str, &[u8])) -> Result<PathBuf, GateError> {
    let (path, draft) = (directory.join(name), directory.join(format!("{name}.{}", std::process::id())));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(content)?;
        file.set_permissions(PermissionsExt::from_mode(MODE))?;
        std::fs::rename(&draft, &path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&draft))).map_err(GateError::file("write", &draft))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: gates-loader.
    #[test]
    fn directories_that_cannot_serve_are_refused() {
        let refusal = |directory: &str| Programs::install(Path::new(directory)).unwrap_err().to_string();
        for bad in ["/tmp/a b", "/tmp/a:b", "/tmp/$ORIGIN/x", "/tmp/${LIB}", "/tmp/a$", "tmp/a"] {
            let allowed = "allowed is an absolute path without spaces, colons and dollar signs";
            assert_eq!(refusal(bad), format!("{bad} cannot be the shim's directory: {allowed}"));
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        // The kernel does not answer for a mount with a dead server.
        let is_there = |fields: &[&str]| std::fs::metadata(fields[1]).is_ok();
        match fields.find(|fields| fields[3].split(',').any(|option| option == "noexec") && is_there(fields)) {
            Some(fields) => assert!(refusal(fields[1]).contains(" is mounted noexec; "), "{}", refusal(fields[1])),
            None => println!("not run: nothing is mounted noexec"),
        }
        assert!(refusal("/nowhere").starts_with("cannot look at /nowhere: "));
    }
}
