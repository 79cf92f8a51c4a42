//! A cgroup of our own, removed when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Below the cgroup or hierarchy at `parent`.
    pub fn new(parent: &Path) -> Cgroup {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("plimsoll-tags-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Cgroup { path }
    }

    /// So many, each below the one before, from `parent` on; they are to be dropped from the end on.
    pub fn nested(parent: &Path, count: usize) -> Vec<Cgroup> {
        let mut path = parent.to_owned();
        let below = std::iter::repeat_with(|| {
            path.push("n");
            fs::create_dir(&path).unwrap();
            Cgroup { path: path.clone() }
        });
        below.take(count).collect()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn add(&self, process: u32) {
        fs::write(self.path.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    /// A process that is still in the cgroup moves to its parent.
    fn drop(&mut self) {
        let processes = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for process in processes.split_whitespace() {
            let _ = fs::write(self.path.parent().unwrap().join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.path);
    }
}
