//! Defaults that depend on the user that runs the program.

use std::path::PathBuf;

/// The control socket in the state directory, if the configuration names none.
pub(super) const CONTROL_SOCKET_NAME: &str = "control.sock";

/// Defaults that depend on the user that runs the program.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Where sockets and records are kept.
    pub state_directory: PathBuf,
    /// Where is kept what outlives a reboot; `None` for the state directory.
    pub notes_directory: Option<PathBuf>,
}

impl Defaults {
    /// For this process. State: `/run/plimsoll` as root; otherwise `plimsoll` in `$XDG_RUNTIME_DIR`, or `plimsoll-UID`
    /// in the directory for temporary files. Notes: `/var/lib/plimsoll` as root; otherwise `plimsoll` in
    /// `$XDG_STATE_HOME` or in `~/.local/state`.
    pub fn of_this_user() -> Defaults {
        let user = rustix::process::geteuid();
        let runtime_directory =
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let state_directory = match runtime_directory {
            _ if user.is_root() => PathBuf::from("/run/plimsoll"),
            Some(directory) => directory.join("plimsoll"),
            None => std::env::temp_dir().join(format!("plimsoll-{}", user.as_raw())),
        };
        let of_user = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let notes_directory = match user.is_root() {
            true => Some(PathBuf::from("/var/lib/plimsoll")),
            false => of_user("XDG_STATE_HOME")
                .or_else(|| Some(of_user("HOME")?.join(".local/state")))
                .map(|directory| directory.join("plimsoll")),
        };
        Defaults { state_directory, notes_directory }
    }

    /// The defaults for a state directory that is not chosen for this user.
    pub fn in_directory(state_directory: PathBuf) -> Defaults {
        Defaults { state_directory, notes_directory: None }
    }

    /// Where is noted what outlives a reboot, if the configuration does not say.
    pub fn notes_directory(&self) -> PathBuf {
        self.notes_directory.clone().unwrap_or_else(|| self.state_directory.clone())
    }

    /// Where the daemon's control socket is, if the configuration does not say.
    pub fn control_socket(&self) -> PathBuf {
        self.state_directory.join(CONTROL_SOCKET_NAME)
    }
}
