//! A volume with a cache that only the cache itself names: every copy of its note was deleted, or a plain copy took the
//! slow file's place.
//!
//! Planted breaks that turned each test red: the caches of the configuration are not asked; a cache of a note is not
//! asked; a cache that a note gives to another volume is taken for one that no note names; the word that a volume is
//! served without a cache is not noted.

use crate::cache::{connect, killed_with_dirty_data, site};
use crate::support::{Site, text};
use crate::versions::BLOCK_BYTES;
use std::path::Path;

const SECTION: &str = "[cache.fast]\nfile = \"fast.img\"\nsize = \"4MiB\"\n\n";
const KEY: &str = "cache = \"fast\"\n";

fn reconfigured(site: &Site, old: &str, new: &str) {
    let path = site.path("plimsoll.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{text}");
    std::fs::write(&path, text.replace(old, new)).unwrap();
}

fn without_notes(site: &Site) {
    std::fs::remove_dir_all(site.path("notes")).unwrap();
    let _ = rustix::fs::removexattr(site.path("slow.img"), "user.plimsoll.cache");
}

/// A copy without attributes, at the place of the slow file.
fn plain_copy(site: &Site) {
    let (slow, copy) = (site.path("slow.img"), site.path("copy.img"));
    std::fs::write(&copy, std::fs::read(&slow).unwrap()).unwrap();
    std::process::Command::new("chmod").arg("666").arg(&copy).status().unwrap();
    std::fs::rename(copy, slow).unwrap();
}

/// `up` and `check` refuse with the same line, which is answered, and touch nothing.
fn refused(site: &Site) -> String {
    let fast = || std::fs::read(site.path("fast.img")).unwrap();
    let before = fast();
    let (up, check) = (site.up_fails(), site.command(&["check", "plimsoll.toml"]).output().unwrap());
    assert_eq!((up.status.code(), check.status.code()), (Some(2), Some(2)), "{}", text(&check.stderr));
    let (up, check) = (text(&up.stderr), text(&check.stderr));
    assert_eq!(up, check);
    assert!(before == fast(), "what is refused is not touched");
    assert_eq!(up.trim().lines().count(), 1, "{up}");
    up.trim().to_owned()
}

fn run(site: &Site, arguments: &[&str]) -> String {
    let output = site.command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Every copy of the note is deleted, and `cache` is taken out. Outcome: the cache, which the configuration still
/// names, is asked; the refusal names the two commands, and each of them does what it says.
#[test]
fn a_volume_without_a_note_is_not_served_without_the_cache_that_has_its_blocks() {
    let site = site("");
    let mut blocks = killed_with_dirty_data(&site);
    without_notes(&site);
    reconfigured(&site, KEY, "");
    let line = refused(&site);
    let fast = shown(&site.path("fast.img"));
    let begins = format!("plimsoll.toml:11: volume.db.cache: got none, and cache fast on {fast} has ");
    assert!(line.starts_with(&begins), "{line}");
    let ends = " not yet on the slow device, of this volume, allowed the cache that has what is newest of the volume (to serve it: put \
                cache = \"fast\" into the section, then plimsoll cache adopt plimsoll.toml fast; to do without, and lose what only that \
                cache has: plimsoll cache forget plimsoll.toml db)";
    assert!(line.ends_with(ends), "{line}");
    // Nor with another cache.
    let other = format!("{}[volume.db]\ncache = \"other\"\n", SECTION.replace("fast", "other"));
    reconfigured(&site, "[volume.db]\n", &other);
    run(&site, &["cache", "make", "plimsoll.toml", "other"]);
    let line = refused(&site);
    assert!(line.contains("volume.db.cache: got \"other\", and cache fast on "), "{line}");
    reconfigured(&site, &other, "[volume.db]\ncache = \"fast\"\n");
    run(&site, &["cache", "adopt", "plimsoll.toml", "fast"]);
    let daemon = site.up();
    blocks.verify(&mut connect(&site));
    connect(&site).write(0, &[5; BLOCK_BYTES], true).unwrap();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();

    without_notes(&site);
    reconfigured(&site, "[volume.db]\ncache = \"fast\"\n", "[volume.db]\n");
    refused(&site);
    let said = run(&site, &["cache", "forget", "plimsoll.toml", "db"]);
    assert_eq!(said.trim(), format!("volume db: cache fast on {fast} is given up, and what only it had is lost"));
    site.up().stop();
}

/// A plain copy takes the slow file's place, and the configuration names the cache no more. Outcome: the note of the
/// file that was there names the volume and the cache, which is asked; after `forget` the copy is served,
/// and the cache stays.
#[test]
fn a_plain_copy_in_the_place_of_the_slow_file_is_not_served_without_the_cache() {
    let site = site("");
    killed_with_dirty_data(&site);
    plain_copy(&site);
    reconfigured(&site, SECTION, "");
    reconfigured(&site, KEY, "");
    let line = refused(&site);
    let why = "of the volume of this name, which had another slow file then, allowed ";
    assert!(line.contains(why) && line.contains("to serve it: bring that file back"), "{line}");
    let said = run(&site, &["cache", "forget", "plimsoll.toml", "db"]);
    let fast = shown(&site.path("fast.img"));
    let stays = format!("volume db: is served as it is; cache fast on {fast} stays, with what only it has");
    assert_eq!(said.trim(), stays);
    site.up().stop();
}

/// Both: no note is left, and the file is a copy. Outcome: the cache of the configuration may be of this volume, since
/// the sizes are the same; a word says that it is not, or a configuration that does not name it. A volume of another
/// size is served.
#[test]
fn a_cache_that_may_be_of_a_volume_of_its_size_is_told() {
    let site = site("");
    killed_with_dirty_data(&site);
    plain_copy(&site);
    without_notes(&site);
    reconfigured(&site, KEY, "");
    let line = refused(&site);
    let why = "of a volume of this size that no note names, allowed ";
    assert!(
        line.contains(why) && line.contains("to serve it as it is: plimsoll cache forget plimsoll.toml db)"),
        "{line}"
    );
    reconfigured(&site, "size = \"16MiB\"", "size = \"8MiB\"");
    site.up().stop();
    reconfigured(&site, "size = \"8MiB\"", "size = \"16MiB\"");
    run(&site, &["cache", "forget", "plimsoll.toml", "db"]);
    site.up().stop();
    without_notes(&site);
    refused(&site);
    reconfigured(&site, SECTION, "");
    site.up().stop();
}

/// A volume of the same size that never had a cache stands beside one with a dirty cache, then without that one, while
/// the cache is still named. Outcome: it is served, as a note gives the cache to the other volume.
#[test]
fn a_volume_beside_one_with_a_dirty_cache_is_served() {
    let site = site("");
    let mut blocks = killed_with_dirty_data(&site);
    let beside = std::process::Command::new("truncate").args(["-s", "16M"]).arg(site.path("beside.img")).status();
    assert!(beside.unwrap().success());
    std::process::Command::new("chmod").arg("666").arg(site.path("beside.img")).status().unwrap();
    let without = std::fs::read_to_string(site.path("plimsoll.toml")).unwrap();
    let beside = "[volume.beside]\npool = \"web\"\nsize = \"16MiB\"\nfile = \"beside.img\"\nnbd = {}\n";
    std::fs::write(site.path("plimsoll.toml"), format!("{without}{beside}")).unwrap();
    let daemon = site.up();
    blocks.verify(&mut connect(&site));
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let (before, _) = without.split_once("[volume.db]").unwrap();
    std::fs::write(site.path("plimsoll.toml"), format!("{before}{beside}")).unwrap();
    site.up().stop();
}
