//! Where a tenant is frozen: in a cgroup that is its own already, or in one that is made for it.
//!
//! A process that is alone with its descendants in a cgroup, as a container or a service is, keeps that one. Any other
//! process is moved into a new cgroup inside the one that it is in, so that limits of the outer one hold still. A made
//! cgroup is called `plimsoll.AGENT.PROCESS.NAME`, with the process numbers of the agent and of the first member. By
//! that a successor recognises those of agents that are gone.
//!
//! **Never frozen** are the root and a cgroup with the agent or init in it. Neither is one with a service in it that an
//! administrator needs to mend the machine ([`NEVER`]).

use super::cgroup::{FreezableCgroup, Hierarchy, members, move_into};
use crate::descent::holds_only;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Cgroups of these names are never frozen, nor what they are in.
pub const NEVER: &[&str] = &[
    "init.scope",
    "dbus.service",
    "dbus-broker.service",
    "ssh.service",
    "sshd.service",
    "systemd-journald.service",
    "systemd-logind.service",
    "systemd-udevd.service",
];
/// Cgroups inside one that are looked at for such names.
const LOOKS_MAX: usize = 10_000;
/// What names of made cgroups begin with.
const PREFIX: &str = "plimsoll.";
/// Characters of a tenant's name in the name of its cgroup.
const NAME_MAX: usize = 64;
/// How often a cgroup is emptied: a process may fork while it is moved.
const EMPTYINGS_MAX: usize = 16;
const INIT: u32 = 1;

/// A tenant's cgroup.
#[derive(Debug)]
pub struct FreezingPlace {
    /// What is frozen.
    pub cgroup: FreezableCgroup,
    /// Whether it was made for this.
    pub is_made: bool,
}

impl FreezingPlace {
    /// The place of a process that joins as `name`; it may have to be moved, which takes up to some ten milliseconds.
    ///
    /// # Errors
    /// Why it cannot be frozen, in one line.
    pub fn of_process(process: u32, name: &str) -> Result<FreezingPlace, String> {
        let hierarchies = Hierarchy::all();
        let own = |hierarchy: &Hierarchy| {
            let directory = hierarchy.directory_of(process)?;
            let is_own = directory != hierarchy.mount && !is_made(&directory) && holds_only(&directory, process);
            is_own.then_some((hierarchy.clone(), directory))
        };
        if let Some((hierarchy, directory)) = hierarchies.iter().find_map(own) {
            return found(&hierarchy, &directory);
        }
        let mut problem = no_hierarchy();
        for hierarchy in &hierarchies {
            match make(hierarchy, process, name) {
                Ok(cgroup) => return Ok(FreezingPlace { cgroup, is_made: true }),
                Err(why) => problem = why,
            }
        }
        Err(problem)
    }

    /// A cgroup that exists: a tenant that runs in it already.
    ///
    /// # Errors
    /// Why it cannot be frozen, in one line.
    pub fn of_cgroup(directory: &Path) -> Result<FreezingPlace, String> {
        let hierarchies = Hierarchy::all();
        let hierarchy = hierarchies.iter().find(|hierarchy| directory.starts_with(&hierarchy.mount));
        let Some(hierarchy) = hierarchy else {
            return Err(match hierarchies[..] {
                [] => no_hierarchy(),
                _ => format!("{} is in no tree of cgroups that can be frozen", directory.display()),
            });
        };
        found(hierarchy, directory)
    }
}

fn no_hierarchy() -> String {
    "neither cgroups version 2 nor the freezer of version 1 is mounted".to_owned()
}

fn found(hierarchy: &Hierarchy, directory: &Path) -> Result<FreezingPlace, String> {
    if let Some(why) = never(hierarchy, directory) {
        return Err(format!("{} is never frozen: {why}", directory.display()));
    }
    let cgroup = FreezableCgroup::open(directory).map_err(|why| format!("{} {why}", directory.display()))?;
    Ok(FreezingPlace { cgroup, is_made: false })
}

/// Why a cgroup is never frozen, if it is not.
pub fn never(hierarchy: &Hierarchy, directory: &Path) -> Option<String> {
    if directory == hierarchy.mount {
        return Some("it is the root".to_owned());
    }
    for (process, name) in [(std::process::id(), "the agent"), (INIT, "init")] {
        if hierarchy.directory_of(process).is_some_and(|its| its.starts_with(directory)) {
            return Some(format!("{name} is in it"));
        }
    }
    let mut looks = 0;
    find_named(directory, &mut looks).map(|name| match name == directory {
        true => "its name is in the list of what an administrator needs".to_owned(),
        false => format!("{} is in it, which an administrator needs", name.display()),
    })
}

fn find_named(directory: &Path, looks: &mut usize) -> Option<PathBuf> {
    *looks += 1;
    if directory.file_name().is_some_and(|name| NEVER.iter().any(|never| name == *never)) || *looks > LOOKS_MAX {
        return Some(directory.to_owned());
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inside.find_map(|entry| find_named(&entry.path(), looks))
}

fn make(hierarchy: &Hierarchy, process: u32, name: &str) -> Result<FreezableCgroup, String> {
    let outer = hierarchy.directory_of(process).ok_or("its cgroup is not to be seen from here")?;
    let name: String = name.chars().take(NAME_MAX).map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
    let directory = outer.join(format!("{PREFIX}{}.{process}.{name}", std::process::id()));
    let at = |action: &str, error: io::Error| format!("cannot {action} {}: {error}", directory.display());
    match fs::create_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(|error| at("make", error))?,
    }
    let moved = move_into(&directory, process).map_err(|error| at("move it into", error));
    let opened =
        moved.and_then(|()| FreezableCgroup::open(&directory).map_err(|why| format!("{} {why}", directory.display())));
    opened.inspect_err(|_| drop(remove(&directory)))
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-".contains(letter)
}

/// Whether an agent made the cgroup.
fn is_made(directory: &Path) -> bool {
    maker(directory).is_some()
}

/// The process number of the agent that made a cgroup.
fn maker(directory: &Path) -> Option<u32> {
    directory.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}

/// Removes a made cgroup, which is thawed: its processes go back to where they came from.
///
/// # Errors
/// The kernel refuses, or processes fork faster than they are moved.
pub fn remove(directory: &Path) -> io::Result<()> {
    let outer = directory.parent().unwrap_or(directory);
    let mut removed = Ok(());
    for _ in 0..EMPTYINGS_MAX {
        removed = match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        if removed.is_ok() {
            break;
        }
        // One that has ended meanwhile needs not be moved.
        members(directory).into_iter().for_each(|process| drop(move_into(outer, process)));
    }
    removed
}

/// Thaws and removes what agents left that are gone: cgroups of their names directly inside the roots. Answers with
/// what was.
pub fn recover_by_name() -> Vec<PathBuf> {
    let mut recovered = Vec::new();
    for Hierarchy { mount, .. } in Hierarchy::all() {
        let entries = fs::read_dir(mount).into_iter().flatten().flatten();
        let is_left =
            |directory: &PathBuf| maker(directory).is_some_and(|agent| !Path::new(&format!("/proc/{agent}")).exists());
        recovered.extend(entries.map(|entry| entry.path()).filter(is_left));
    }
    recovered.retain(|directory| recover(directory, true));
    recovered
}

/// Thaws a cgroup that an agent that is gone had frozen, and removes it if it was made. Says whether that worked.
pub fn recover(directory: &Path, is_made: bool) -> bool {
    if let Ok(cgroup) = FreezableCgroup::open(directory) {
        let _ = cgroup.set_frozen(false);
    }
    !is_made || remove(directory).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_cgroup_says_which_agent_made_it() {
        for (name, agent) in
            [("plimsoll.17.18.a.b", Some(17)), ("plimsoll.x.18", None), ("plimsoll-17.18", None), ("docker", None)]
        {
            assert_eq!(maker(&Path::new("/sys/fs/cgroup").join(name)), agent, "{name}");
        }
    }

    /// Planted breaks: the name of the cgroup itself is not looked at; those inside are not.
    /// Promise: freezer-never.
    #[test]
    fn the_root_and_what_holds_the_agent_or_what_an_administrator_needs_is_never_frozen() {
        let Some(hierarchy) = Hierarchy::all().into_iter().next() else {
            println!("not run: no tree of cgroups that can be frozen is mounted");
            return;
        };
        let refused = |directory: &Path| never(&hierarchy, directory);
        assert_eq!(refused(&hierarchy.mount).as_deref(), Some("it is the root"));
        let own = hierarchy.directory_of(std::process::id()).unwrap();
        if own != hierarchy.mount {
            assert_eq!(refused(&own).as_deref(), Some("the agent is in it"));
        }
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("system.slice/sshd.service");
        fs::create_dir_all(&inside).unwrap();
        assert!(refused(&inside).unwrap().starts_with("its name is in the list"));
        assert!(refused(folder.path()).unwrap().contains("system.slice/sshd.service is in it"));
        fs::rename(&inside, inside.with_file_name("mysqld.service")).unwrap();
        assert_eq!(refused(folder.path()), None);
    }
}
