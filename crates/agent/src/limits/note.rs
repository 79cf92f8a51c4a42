//! The former limits of cgroups, noted before they change, so that a successor can put them back.
//!
//! A line a cgroup: the number of its folder, its limits, its folder. The kernel's numbers start anew when it does, so
//! the first line says which start it was.

use super::group::{Group, Limit};
use plimsoll_linux::boot_id;
use plimsoll_linux::durable::{remove_file, replace_file};
use plimsoll_linux::files::read_regular;
use std::io;
use std::path::{Path, PathBuf};

const NONE: &str = "max";

/// The note of a device. Removed when nothing is left in it.
#[derive(Debug)]
pub(super) struct Note {
    path: PathBuf,
    device: String,
    entries: Vec<(Group, Limit)>,
}

impl Note {
    /// The note in `path` of limits on `device`. Limits in a predecessor's note are put back first. Answers with what
    /// was.
    pub(super) fn open(path: PathBuf, device: &str) -> io::Result<(Note, Vec<String>)> {
        let text = match read_regular(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            bytes => String::from_utf8(bytes?).map_err(io::Error::other)?,
        };
        let mut note = Note { path, device: device.to_owned(), entries: read(&text, device, &this_boot()) };
        let mut said = Vec::new();
        for (group, _) in note.entries.clone() {
            let folder = group.folder.display();
            match note.put_back(&group) {
                Ok(()) => said.push(format!("recovered from a predecessor: the limits of {folder}")),
                Err(error) => said.push(format!("left by a predecessor: the limits of {folder}: {error}")),
            }
        }
        note.write()?;
        Ok((note, said))
    }

    /// Notes a cgroup's limit before it is changed.
    pub(super) fn add(&mut self, group: &Group) -> io::Result<Limit> {
        let limit = group.limit(&self.device)?;
        self.entries.push((group.clone(), limit));
        // A limit that is not noted is not changed, so there is nothing to put back.
        self.write().map(|()| limit).inspect_err(|_| drop(self.entries.pop()))
    }

    /// Another program has limited a cgroup to `limit` since the note: the end restores `limit`.
    pub(super) fn change(&mut self, group: &Group, limit: Limit) -> io::Result<()> {
        let Some(entry) = self.entries.iter_mut().find(|(noted, _)| noted == group) else { return Ok(()) };
        entry.1 = limit;
        self.write()
    }

    /// Puts a cgroup's limits back, if it is still there, and forgets it.
    pub(super) fn put_back(&mut self, group: &Group) -> io::Result<()> {
        let Some(place) = self.entries.iter().position(|(noted, _)| noted == group) else { return Ok(()) };
        let (group, limit) = self.entries.remove(place);
        // The files are found by their path, where another one of the same name may be by now, with limits of its own.
        if !group.is_there() {
            return Ok(());
        }
        match group.set_limit(&self.device, limit) {
            // A program that removed it in this moment has removed its limits too.
            Err(_) if !group.is_there() => Ok(()),
            done => done,
        }
    }

    /// Writes down what is to be put back.
    pub(super) fn write(&self) -> io::Result<()> {
        if self.entries.is_empty() {
            return remove_file(&self.path);
        }
        let value = |limit: Option<u64>| limit.map_or(NONE.to_owned(), |limit| limit.to_string());
        let line = |(group, limit): &(Group, Limit)| {
            let folder = group.folder.display();
            format!("{} {} {} {folder}\n", group.inode, value(limit.read), value(limit.write))
        };
        let lines: String = self.entries.iter().map(line).collect();
        replace_file(&self.path, format!("{} {}\n{lines}", this_boot(), self.device).as_bytes())
    }
}

/// A kernel that does not tell its boot has no notes of an earlier start.
fn this_boot() -> String {
    boot_id().unwrap_or_default()
}

/// The cgroups of a note that are still there.
fn read(text: &str, device: &str, boot_id: &str) -> Vec<(Group, Limit)> {
    let mut lines = text.lines();
    if lines.next() != Some(&format!("{boot_id} {device}")) {
        return Vec::new();
    }
    let entry = |line: &str| -> Option<(Group, Limit)> {
        let mut words = line.splitn(4, ' ');
        let inode: u64 = words.next()?.parse().ok()?;
        let mut value = || match words.next()? {
            NONE => Some(None),
            number => number.parse().ok().map(Some),
        };
        let limit = Limit { read: value()?, write: value()? };
        let group = Group::open(Path::new(words.next()?)).ok()?;
        (group.inode == inode).then_some((group, limit))
    };
    lines.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Promise: tenants-steer.
    #[test]
    fn a_successor_puts_back_what_is_noted_and_only_that() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        let make = |name: &str, limits: &str| {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("io.max"), limits).unwrap();
            Group::open(&folder.path().join(name)).unwrap()
        };
        let groups = [make("a b", ""), make("limited", "8:0 rbps=5 wbps=max\n"), make("gone", "")];
        let (mut note, said) = Note::open(path.clone(), "8:0").unwrap();
        assert_eq!(said, [""; 0]);
        assert!(!path.exists(), "nothing is noted");
        let changed = Limit { read: Some(77), write: Some(88) };
        for group in &groups {
            note.add(group).unwrap();
            group.set_limit("8:0", changed).unwrap();
        }
        // Killed here. One cgroup goes, and another comes in its place.
        drop(note);
        fs::rename(folder.path().join("gone"), folder.path().join("elsewhere")).unwrap();
        let other = make("gone", "8:0 rbps=77 wbps=88\n");
        let (_, said) = Note::open(path.clone(), "8:0").unwrap();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("recovered from a predecessor: the limits of ") && said[0].ends_with("/a b"));
        assert_eq!(groups[0].limit("8:0").unwrap(), Limit::default());
        assert_eq!(groups[1].limit("8:0").unwrap(), Limit { read: Some(5), write: None });
        assert_eq!(other.limit("8:0").unwrap(), changed, "is another one");
        assert!(!path.exists(), "nothing is left to be put back");
    }

    #[test]
    fn a_cgroup_that_was_made_anew_under_the_same_name_keeps_its_own_limits() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("a");
        let make = |limits: &str| {
            fs::create_dir(&at).unwrap();
            fs::write(at.join("io.max"), limits).unwrap();
            Group::open(&at).unwrap()
        };
        let before = make("8:0 rbps=5 wbps=max\n");
        let (mut note, _) = Note::open(folder.path().join("note"), "8:0").unwrap();
        note.add(&before).unwrap();
        before.set_limit("8:0", Limit { read: Some(77), write: Some(88) }).unwrap();
        fs::rename(&at, folder.path().join("elsewhere")).unwrap();
        let anew = make("8:0 rbps=7 wbps=8\n");
        note.put_back(&before).unwrap();
        assert_eq!(anew.limit("8:0").unwrap(), Limit { read: Some(7), write: Some(8) });
        note.write().unwrap();
        assert!(!folder.path().join("note").exists(), "the one before is forgotten");
    }

    /// Planted break: it stays among what is to be put back.
    #[test]
    fn what_could_not_be_noted_is_not_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let (group, place) = (folder.path().join("group"), folder.path().join("full"));
        fs::create_dir(&group).unwrap();
        fs::write(group.join("io.max"), "8:0 rbps=5 wbps=max\n").unwrap();
        let group = Group::open(&group).unwrap();
        let (mut note, _) = Note::open(place.join("note"), "8:0").unwrap();
        assert!(note.add(&group).is_err() && note.add(&group).is_err());
        fs::create_dir(&place).unwrap();
        note.add(&group).unwrap();
        note.put_back(&group).unwrap();
        note.write().unwrap();
        assert!(!place.join("note").exists(), "one was noted, and is put back");
    }

    #[test]
    fn a_note_of_another_start_or_device_or_none_is_forgotten() {
        let line = "1 max 5 /\n";
        for text in ["", "x", "boot 8:0", &format!("other 8:0\n{line}"), &format!("boot 8:1\n{line}")] {
            assert_eq!(read(text, "8:0", "boot"), [], "{text:?}");
        }
        for line in ["", "1", "x max max /", "1 max y /", "1 max max"] {
            assert_eq!(read(&format!("boot 8:0\n{line}\n"), "8:0", "boot"), [], "{line:?}");
        }
    }
}
