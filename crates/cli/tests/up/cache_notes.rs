//! What is noted of a volume's cache: the volume is not served without it, and it is what `plimsoll cache forget` takes away.
//!
//! Planted breaks that turned a test red: a note that cannot be read is none; which volume a note names is not asked.

use crate::cache::{connect, done, killed_with_dirty_data, site};
use crate::support::{Site, text};
use crate::versions::BLOCK_BYTES;

/// The site's configuration with each of the first words in place of the second.
fn reconfigured(site: &Site, changes: &[(&str, &str)]) {
    let path = site.path("plimsoll.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (old, new) in changes {
        assert!(text.contains(old), "{text}");
        text = text.replace(old, new);
    }
    std::fs::write(&path, text).unwrap();
}

const SECTION: &str = "[cache.fast]\nfile = \"fast.img\"\nsize = \"4MiB\"\n\n";
const KEY: &str = "cache = \"fast\"\n";

#[test]
fn a_volume_whose_cache_was_taken_out_of_the_configuration_is_not_served_without_it() {
    let site = site("");
    let mut blocks = killed_with_dirty_data(&site);
    let refused = |what: &str| {
        let log = text(&site.up_fails().stderr);
        assert!(log.contains(what), "{log}");
    };
    reconfigured(&site, &[(SECTION, ""), (KEY, "")]);
    let fast = site.path("fast.img").display().to_string();
    refused(&format!(
        "plimsoll.toml:7: volume.db: cache: got none, allowed \"fast\" on {fast}, which was not detached: what is newest may be \
         only there (to do without it: plimsoll cache forget plimsoll.toml db)"
    ));
    // Nor with another one.
    let other = SECTION.replace("fast", "other");
    reconfigured(&site, &[("[volume.db]\n", &format!("{other}[volume.db]\ncache = \"other\"\n"))]);
    let made = site.command(&["cache", "make", "plimsoll.toml", "other"]).output().unwrap();
    let why = "what is newest of volume db may be in its cache fast, on";
    assert!(!made.status.success() && text(&made.stderr).contains(why), "{}", text(&made.stderr));
    assert!(!site.path("other.img").exists());
    let device = std::fs::File::create(site.path("other.img")).unwrap();
    device.set_len(4 << 20).unwrap();
    std::process::Command::new("chmod").arg("666").arg(site.path("other.img")).status().unwrap();
    refused("there is no cache on the device");

    // With its own all is there, and once that is detached nothing is missed.
    reconfigured(&site, &[(&other, SECTION), ("cache = \"other\"", "cache = \"fast\"")]);
    let daemon = site.up();
    blocks.verify(&mut connect(&site));
    done(&site, &["cache", "detach", "db"]);
    daemon.stop();
    reconfigured(&site, &[(SECTION, ""), (KEY, "")]);
    let daemon = site.up();
    blocks.verify(&mut connect(&site));
    daemon.stop();
}

#[test]
fn a_cache_that_is_forgotten_is_lost_and_never_comes_back() {
    let site = site("");
    killed_with_dirty_data(&site);
    reconfigured(&site, &[(SECTION, ""), (KEY, "")]);
    let forget = || site.command(&["cache", "forget", "plimsoll.toml", "db"]).output().unwrap();
    let forgotten = forget();
    let said = text(&forgotten.stdout);
    assert!(forgotten.status.success() && said.ends_with("is given up, and what only it had is lost\n"), "{said}");
    let again = forget();
    let line = "plimsoll.toml:7: volume.db: got one without a cache, allowed one that has a cache";
    assert_eq!((text(&again.stderr).trim(), again.status.code()), (line, Some(2)));
    let daemon = site.up();
    connect(&site).read(0, &mut [0; BLOCK_BYTES]).unwrap();
    daemon.stop();
    reconfigured(&site, &[("[volume.db]\n", &format!("{SECTION}[volume.db]\n{KEY}"))]);
    let log = text(&site.up_fails().stderr);
    assert!(log.contains("there is no cache on the device"), "{log}");
}

#[test]
fn a_note_of_another_volume_or_one_that_cannot_be_read_is_no_reason_to_serve_without_a_cache() {
    let site = site("");
    killed_with_dirty_data(&site);
    reconfigured(&site, &[(SECTION, ""), (KEY, ""), ("[volume.db]", "[volume.renamed]")]);
    let fast = site.path("fast.img").display().to_string();
    let refused = |why: &str| {
        let log = text(&site.up_fails().stderr);
        assert!(log.contains(&format!("plimsoll.toml:7: volume.renamed: cache: {why}")), "{log}");
    };
    refused(&format!(
        "what its slow device is known by is noted of volume \"db\", whose cache \"fast\" on {fast} was not detached (if that is \
         this one, it can be forgotten by that name)"
    ));
    let notes: Vec<_> = std::fs::read_dir(site.path("notes")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    std::fs::write(note, "{").unwrap();
    refused(&format!("cannot tell whether it has one: {} is no note of a cache: ", note.display()));
}
