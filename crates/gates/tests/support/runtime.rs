//! Real OCI runtimes for tests: a bundle for one container, which is deleted however the test ends.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Which cgroups a runtime finds. It looks in a mount namespace of its own, in which all others are unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// It makes none.
    None,
    Version1,
    Version2,
}

/// A runtime, and the container that it is for.
pub struct Runtime {
    pub program: &'static str,
    pub cgroups: Cgroups,
    pub container: String,
    state: tempfile::TempDir,
    pub bundle: tempfile::TempDir,
}

impl Runtime {
    /// `None`, with the reason printed, where there is no such runtime or cgroup.
    pub fn new(program: &'static str, cgroups: Cgroups) -> Option<Runtime> {
        let problem = if !rustix::process::geteuid().is_root() {
            "needs root".to_owned()
        } else if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
            format!("{program} is not installed")
        } else if cgroups == Cgroups::Version1 && !Path::new("/sys/fs/cgroup/devices").exists() {
            "no cgroups of version 1".to_owned()
        } else {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let container = format!("plimsoll-{}-{number}-{program}", std::process::id());
            let [state, bundle] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            return Some(Runtime { program, cgroups, container, state, bundle });
        };
        println!("not run: {problem}");
        None
    }

    fn command(&self) -> Command {
        // crun does not run beside a hierarchy of both versions, nor without it in a namespace that it cannot look
        // into.
        let unmount = "if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi";
        let script = match self.cgroups {
            Cgroups::None | Cgroups::Version1 => unmount,
            Cgroups::Version2 => "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup",
        };
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{script}; exec \"$@\""), "sh", self.program]);
        if self.cgroups == Cgroups::None {
            command.arg("--cgroup-manager=disabled");
        }
        command.arg("--root").arg(self.state.path());
        command
    }

    /// Starts the container, and ends when that does.
    pub fn run(&self, pid_file: &Path) -> Command {
        let mut command = self.command();
        command.arg("run").arg("--pid-file").arg(pid_file).arg("--bundle").arg(self.bundle.path()).arg(&self.container);
        command
    }

    /// Starts something more in the container.
    pub fn execute(&self, arguments: &[&str]) -> Command {
        let mut command = self.command();
        command.arg("exec").arg(&self.container).args(arguments);
        command
    }

    /// Writes the bundle of a container that runs `arguments` behind `profile`, and sees `folders` as they are.
    pub fn describe(&self, arguments: &[String], folders: &[&Path], profile: &Value) {
        std::fs::create_dir_all(self.bundle.path().join("rootfs")).unwrap();
        let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }));
        let mut mounts = vec![
            json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
            json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }),
        ];
        mounts.extend(folders.iter().map(
            |folder| json!({ "destination": folder, "type": "bind", "source": folder, "options": ["rbind", "rw"] }),
        ));
        let configuration = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": { "uid": 0, "gid": 0 }, "args": arguments, "cwd": "/",
                "env": ["PATH=/bin:/usr/bin"], "noNewPrivileges": true,
            },
            "root": { "path": "rootfs" },
            "mounts": mounts,
            "linux": { "namespaces": namespaces, "seccomp": profile },
        });
        std::fs::write(self.bundle.path().join("config.json"), configuration.to_string()).unwrap();
    }
}

impl Runtime {
    /// The same for another container.
    pub fn again(&self) -> Option<Runtime> {
        Runtime::new(self.program, self.cgroups)
    }

    /// Ends and forgets the container.
    pub fn delete(&self) {
        let mut command = self.command();
        let _ = command.args(["delete", "--force", &self.container]).stderr(Stdio::null()).status();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.delete();
    }
}
