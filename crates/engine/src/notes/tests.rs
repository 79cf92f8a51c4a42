//! Notes, in their directory and beside their files.

use super::attributes::ATTRIBUTE_BYTES_MAX;
use super::*;
use crate::cache::CacheNote;
use plimsoll_cache::store::{Layout, Superblock};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

fn volume(path: PathBuf) -> VolumeConfig {
    VolumeConfig {
        name: "v".into(),
        pool: "p".into(),
        backing: Backing::File { path, size_bytes: None, creates: false, encryption: None },
        start_bytes: 0,
        is_read_only: false,
    }
}

fn note() -> CacheNote {
    let layout = Layout::of_device(1024).unwrap();
    let superblock = Superblock {
        uuid: [7; 16],
        store: [1; 16],
        store_blocks: 1,
        layout,
        starts: 3,
        generation: 5,
        journal_sequence: 1,
        journal_previous: 0,
        map_digest: 0,
        is_ready: true,
    };
    CacheNote::new("v", "fast", Path::new("/dev/fast"), &superblock)
}

/// Promise: notes-note.
#[test]
fn a_note_goes_with_its_file_to_another_directory_and_not_with_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| Notes::new(directory.path().join(name)));
    let [one, copy] = ["one", "copy"].map(|name| directory.path().join(name));
    std::fs::write(&one, [1; 4096]).unwrap();
    let volume_of = volume;
    let volume = volume_of(one.clone());
    if rustix::fs::setxattr(&one, "user.try", b"", XattrFlags::empty()) == Err(Errno::NOTSUP) {
        return eprintln!("not run: no extended attributes on this file system");
    }
    here.put(&volume, &note()).unwrap();
    assert_eq!(there.get(&volume).unwrap(), Some(note()));
    let copied = std::process::Command::new("cp").args(["--preserve=xattr"]).args([&one, &copy]).status().unwrap();
    assert!(copied.success());
    assert_eq!(there.get::<CacheNote>(&volume_of(copy)).unwrap(), None);
    // What was taken away there does not stand here any more beside the store; here it does.
    assert_eq!(there.remove(&volume).unwrap(), Some(note()));
    assert_eq!(there.get::<CacheNote>(&volume).unwrap(), None);
    assert_eq!(here.get(&volume).unwrap(), Some(note()));
    let renamed: CacheNote =
        serde_json::from_str(&serde_json::to_string(&note()).unwrap().replace("\"v\"", "\"w\"")).unwrap();
    there.put(&volume, &renamed).unwrap();
    assert_eq!(here.get(&volume).unwrap(), Some(renamed), "the last word");
}

/// The directory cannot be written. Outcome: the file has no note either, or the one it had; so a volume that got no
/// cache starts without one.
///
/// Planted break that was seen red: the note of the file stays.
/// Promise: notes-all-or-none.
#[test]
fn a_note_that_one_place_refuses_stands_in_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slow");
    std::fs::write(&path, [1; 4096]).unwrap();
    std::fs::write(directory.path().join("no-directory"), b"").unwrap();
    let (volume, notes) = (volume(path), Notes::new(directory.path().join("no-directory/notes")));
    let elsewhere = Notes::new(directory.path().join("notes"));
    assert!(notes.put(&volume, &note()).is_err());
    assert_eq!(elsewhere.get::<CacheNote>(&volume).unwrap(), None);
    // One that was there before stays.
    elsewhere.put(&volume, &note()).unwrap();
    assert!(notes.put(&volume, &note()).is_err());
    assert_eq!(elsewhere.get(&volume).unwrap(), Some(note()));
}

#[test]
fn a_note_of_version_1_is_read() {
    let text =
        r#"{"version":1,"volume":"v","cache":"fast","path":"/dev/fast","uuid":[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7]}"#;
    assert_eq!(decode::<CacheNote>("here", text.as_bytes()).unwrap().volume, "v");
}

/// Promise: notes-given-up.
#[test]
fn what_was_given_up_is_known_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let notes = Notes::new(directory.path().join("notes"));
    assert!(!notes.is_given_up(&[1; 16]).unwrap());
    notes.give_up(&[1; 16]).unwrap();
    notes.give_up(&[1; 16]).unwrap();
    assert!(notes.is_given_up(&[1; 16]).unwrap() && !notes.is_given_up(&[2; 16]).unwrap());
}

#[test]
fn a_note_is_of_its_store_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let notes = Notes::new(directory.path().join("not/yet/there"));
    let [one, other] = ["one", "other"].map(|name| {
        let path = directory.path().join(name);
        std::fs::write(&path, [1; 4096]).unwrap();
        volume(path)
    });
    assert_eq!(notes.get::<CacheNote>(&one).unwrap(), None);
    assert_eq!(notes.remove::<CacheNote>(&one).unwrap(), None);
    let note = note();
    notes.put(&one, &note).unwrap();
    notes.put(&one, &note).unwrap();
    assert_eq!((notes.get(&one).unwrap(), notes.get::<CacheNote>(&other).unwrap()), (Some(note.clone()), None));
    // Another path to the same file.
    let moved = directory.path().join("moved");
    std::fs::rename(directory.path().join("one"), &moved).unwrap();
    assert_eq!(notes.remove(&volume(moved.clone())).unwrap(), Some(note));
    assert_eq!(notes.get::<CacheNote>(&volume(moved)).unwrap(), None);
}

/// Promise: notes-required-cache.
/// No whole copy is left, or a newer program wrote one.
#[test]
fn what_is_no_note_is_told_and_not_taken_for_none() {
    let directory = tempfile::tempdir().unwrap();
    let notes = Notes::new(directory.path().to_owned());
    let path = directory.path().join("slow");
    std::fs::write(&path, [1; 4096]).unwrap();
    let volume = volume(path.clone());
    notes.put(&volume, &note()).unwrap();
    let file = notes.path_of::<CacheNote>(&volume).unwrap().unwrap();
    let other = std::fs::read_to_string(&file).unwrap().replace("\"version\":2", "\"version\":3");
    let refused = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let error = notes.get::<CacheNote>(&volume).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("is no note of a cache: ") && said.contains(&*file.to_string_lossy()), "{said}");
        assert!(std::fs::read_to_string(&file).unwrap() == text, "it is not touched");
        DamagedNote::behind(&error).is_some()
    };
    assert!(!refused(&other), "beside a whole copy");
    let _ = rustix::fs::removexattr(&path, "user.plimsoll.cache");
    for text in ["", "{}", other.as_str()] {
        assert_eq!(refused(text), text != other);
    }
    // What is damaged can be taken away.
    std::fs::write(&file, "{").unwrap();
    assert_eq!(notes.remove::<CacheNote>(&volume).unwrap(), None);
    assert!(!file.exists() && notes.get::<CacheNote>(&volume).unwrap().is_none());
}

/// One of the two copies is damaged in one of many ways: cut off anywhere, other bytes, empty. Outcome: the whole
/// one holds; a look at it changes nothing, and it is written there again when the note is mended, unless what is left
/// of the damaged one names another cache or is newer. Nothing is then touched.
///
/// Planted breaks that were seen red: what is left of the damaged copy is not compared; the copy is not written
/// again; a damaged copy is an error beside a whole one; a look at the note writes the damaged copy again.
#[test]
fn a_whole_copy_stands_for_a_damaged_one_unless_that_says_more() {
    let directory = tempfile::tempdir().unwrap();
    let notes = Notes::new(directory.path().join("notes"));
    let path = directory.path().join("slow");
    std::fs::write(&path, [1; 4096]).unwrap();
    let (volume, attribute) = (volume(path.clone()), "user.plimsoll.cache");
    notes.put(&volume, &note()).unwrap();
    let file = notes.path_of::<CacheNote>(&volume).unwrap().unwrap();
    let mut read = [0; ATTRIBUTE_BYTES_MAX];
    let Ok(length) = rustix::fs::getxattr(&path, attribute, &mut read[..]) else {
        return eprintln!("not run: no extended attributes on this file system");
    };
    let whole = [std::fs::read(&file).unwrap(), read[..length].to_vec()];
    let put = |copies: [&[u8]; 2]| {
        std::fs::write(&file, copies[0]).unwrap();
        rustix::fs::setxattr(&path, attribute, copies[1], XattrFlags::empty()).unwrap();
    };
    let there = || {
        let mut read = [0; ATTRIBUTE_BYTES_MAX];
        let length = rustix::fs::getxattr(&path, attribute, &mut read[..]).unwrap();
        [std::fs::read(&file).unwrap(), read[..length].to_vec()]
    };
    for which in [0, 1] {
        let with = |damaged: &[u8]| {
            let mut copies = [&whole[0][..], &whole[1][..]];
            copies[which] = damaged;
            put(copies);
        };
        let text = String::from_utf8(whole[which].clone()).unwrap();
        let cut = (0..text.len()).map(|length| text.as_bytes()[..length].to_vec());
        for damaged in cut.chain([b"{}".to_vec(), vec![0; text.len()], vec![0xff; 7]]) {
            with(&damaged);
            assert_eq!(notes.get(&volume).unwrap(), Some(note()), "{:?}", String::from_utf8_lossy(&damaged));
            assert!(there()[which] == damaged, "a look changes nothing");
            notes.mend::<CacheNote>(&volume).unwrap();
            assert!(there() == whole, "it is written again");
        }
        let end = text.rfind("\"generation\"").unwrap() + "\"generation\":5".len();
        for (old, new) in
            [("\"starts\":3", "\"starts\":4"), ("[7,7", "[8,7"), ("\"generation\":5", "\"generation\":6,")]
        {
            assert!(text.contains(old), "{text}");
            let damaged = text[..end].replace(old, new);
            with(damaged.as_bytes());
            let error = notes.get::<CacheNote>(&volume).unwrap_err();
            assert!(DamagedNote::behind(&error).is_some(), "{error}");
            assert!(notes.mend::<CacheNote>(&volume).is_err());
            assert!(there()[which] == damaged.as_bytes(), "it is not touched");
        }
    }
}

/// A FIFO lies at the place of a note. Outcome: no call waits for its other end; it is a damaged note, and a whole copy
/// takes its place.
///
/// Planted break: the note is read as any file (it hangs).
#[test]
fn a_fifo_at_the_place_of_a_note_is_a_damaged_note_and_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let notes = Notes::new(directory.path().join("notes"));
    let path = directory.path().join("slow");
    std::fs::write(&path, [1; 4096]).unwrap();
    let volume = volume(path.clone());
    notes.put(&volume, &note()).unwrap();
    let file = notes.path_of::<CacheNote>(&volume).unwrap().unwrap();
    let put_fifo = || {
        std::fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    };
    put_fifo();
    assert_eq!(notes.all::<CacheNote>().unwrap(), Vec::new());
    if notes.get::<CacheNote>(&volume).is_ok() {
        notes.mend::<CacheNote>(&volume).unwrap();
        assert!(file.is_file(), "the copy beside the store stands for it");
        put_fifo();
        rustix::fs::removexattr(&path, "user.plimsoll.cache").unwrap();
    }
    let said = notes.get::<CacheNote>(&volume).unwrap_err();
    assert!(DamagedNote::behind(&said).is_some() && said.to_string().contains("got a FIFO"), "{said}");
    assert_eq!(notes.remove::<CacheNote>(&volume).unwrap(), None);
    assert!(!file.exists());
}
