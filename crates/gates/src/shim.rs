//! The preload shim as a file that tenants can load (`shim/gate.c`).

use crate::error::GateError;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plimsoll-gate.so"));
const FILE_NAME: &str = "plimsoll-gate.so";
/// Everybody may load it, nobody may write it.
const MODE: u32 = 0o555;

/// The shim, written to a run directory.
pub struct Shim {
    path: PathBuf,
}

impl Shim {
    /// Writes the shim to `directory`, which only the agent may write to: it becomes part of every tenant. One that is
    /// there is replaced; who has it loaded keeps what he has.
    ///
    /// # Errors
    /// The directory's name cannot stand in a list of libraries, or the file cannot be written.
    pub fn install(directory: &Path) -> Result<Shim, GateError> {
        let path = directory.join(FILE_NAME);
        if path.to_str().is_none_or(|text| text.contains([' ', ':'])) {
            return Err(GateError::Unloadable { directory: directory.to_owned() });
        }
        let draft = directory.join(format!("{FILE_NAME}.{}", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&draft)?;
            file.write_all(LIBRARY)?;
            file.set_permissions(PermissionsExt::from_mode(MODE))?;
            std::fs::rename(&draft, &path)
        };
        write().map_err(GateError::file("write", &draft))?;
        Ok(Shim { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
