//! `plimsoll up` with an encrypted volume, as a normal user: what lies in its file, its key, and what a kill leaves.

use crate::support::{Random, Site, text};
use crate::tenants::wait_until;
use crate::versions::{Blocks, KILLS, kills_of_soak, load_until_killed};
use aes::Aes256;
use aes::cipher::KeyInit;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use xts_mode::{Xts128, get_tweak_default};

const VOLUME_BYTES: u64 = 16 << 20;
const BLOCKS: u64 = VOLUME_BYTES / 4096;

fn configuration(policy: &str) -> String {
    format!(
        r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[executor]
threads = 2
policy = "{policy}"
[device.disk0]
[pool.web]
device = "disk0"
[cache.fast]
file = "fast.img"
size = "4MiB"
[volume.db]
pool = "web"
size = "16MiB"
file = "db.img"
encryption = {{ key_file = "db.key" }}
nbd = {{}}
"#
    )
}

fn key_bytes() -> [u8; 64] {
    std::array::from_fn(|at| at as u8 * 4 + 1)
}

fn write_key(site: &Site, bytes: &[u8], mode: u32) {
    let path = site.path("db.key");
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A site with an empty file and its key.
fn site(policy: &str) -> Site {
    let site = Site::new(&configuration(policy));
    std::fs::File::create(site.path("db.img")).unwrap().set_len(VOLUME_BYTES).unwrap();
    write_key(&site, &key_bytes(), 0o600);
    site
}

fn address(site: &Site) -> Address {
    Address::Unix(site.path("state/nbd.sock"))
}

fn connect(site: &Site) -> Client {
    Client::connect(&address(site), &ClientOptions { export_name: "db".into(), ..ClientOptions::default() }).unwrap()
}

/// What the file holds for another implementation with the key.
fn decrypted(path: &Path) -> Vec<u8> {
    let (mut bytes, key) = (std::fs::read(path).unwrap(), key_bytes());
    let cipher = Xts128::new(Aes256::new_from_slice(&key[..32]).unwrap(), Aes256::new_from_slice(&key[32..]).unwrap());
    cipher.decrypt_area(&mut bytes, 512, 0, get_tweak_default);
    bytes
}

/// Promise: encrypted-format, encrypted-no-cache.
#[test]
fn what_is_written_is_read_and_lies_in_the_file_as_cryptsetup_would_have_it() {
    for policy in ["baseline", "sord", "qats", "combo", "adaptive"] {
        let site = site(policy);
        let daemon = site.up();
        assert!(daemon.served.contains(&format!("executor: 2 service threads, {policy}")), "{:?}", daemon.served);
        let mut client = connect(&site);
        let line = b"nobody else is to know what is written here\n";
        let data: Vec<u8> = line.iter().copied().cycle().take(2 << 20).collect();
        client.write(8192, &data, true).unwrap();
        let mut read = vec![0; VOLUME_BYTES as usize];
        client.read(0, &mut read).unwrap();
        let end = 8192 + data.len();
        assert!(read[8192..end] == data);
        assert!(read[..8192].iter().chain(&read[end..]).all(|&byte| byte == 0), "what was never written is zeroes");
        let stored = std::fs::read(site.path("db.img")).unwrap();
        assert!(!stored.windows(8).any(|part| part == &line[..8]), "nothing of it is there to be read");
        assert!(decrypted(&site.path("db.img"))[8192..end] == data);

        wait_until("the end of all requests", || site.json(&["status"])["executor"]["under_way"] == 0);
        let executor = &site.json(&["status"])["executor"];
        let sum = |what: &str| -> u64 {
            executor["threads"].as_array().unwrap().iter().map(|thread| thread[what].as_u64().unwrap()).sum()
        };
        // In pieces of 256 KiB at the most.
        assert_eq!((sum("resumed"), sum("done")), (64, 64 + 8), "{executor}");
        let text_of = |arguments: &[&str]| text(&site.ask(arguments).stdout);
        assert!(text_of(&["status"]).contains(" times preempted, 64 times resumed"), "{}", text_of(&["status"]));
        assert!(site.json(&["volume", "list"])[0]["content"].as_str().unwrap().ends_with("/db.img, encrypted"));
        let refused = text(&site.ask(&["cache", "attach", "db", "fast", "--make"]).stderr);
        assert!(refused.contains("volume db is encrypted and cannot have a cache"), "{refused}");
        assert!(!site.path("fast.img").exists());
        client.disconnect().unwrap();
        let log = daemon.stop();
        assert!(!log.contains("noise"), "an empty file has no other key: {log}");
    }
}

/// Planted break: the note is not looked at.
/// Promise: encrypted-key.
#[test]
fn a_volume_is_served_with_its_own_key_or_not_at_all() {
    let site = site("adaptive");
    let refused_with = |code: i32, key: &str, what: &str| {
        let output = site.up_fails();
        let log = text(&output.stderr);
        assert!(log.contains(&format!("plimsoll.toml:19: volume.db.encryption{key}")) && log.contains(what), "{log}");
        assert_eq!(output.status.code(), Some(code), "{log}");
    };
    let no_key = |what: &str| refused_with(2, ".key_file: got ", what);
    let refused = |what: &str| refused_with(1, ": volume db: key file ", what);
    write_key(&site, &key_bytes(), 0o640);
    no_key("db.key\": others than its owner may use it (mode 640), allowed is 600 or less; chmod 600 does that");
    write_key(&site, &key_bytes()[..32], 0o600);
    no_key("it has 32 bytes, allowed are exactly 64; to make one: head -c 64 /dev/urandom");
    write_key(&site, &[3; 64], 0o600);
    no_key("its halves are equal");
    std::fs::remove_file(site.path("db.key")).unwrap();
    refused("cannot open it: No such file");

    write_key(&site, &key_bytes(), 0o600);
    let daemon = site.up();
    let mut client = connect(&site);
    client.write(4096, &[7; 4096], true).unwrap();
    client.disconnect().unwrap();
    daemon.stop();
    let before = std::fs::read(site.path("db.img")).unwrap();
    write_key(&site, &[&[9; 32][..], &[8; 32]].concat(), 0o600);
    refused("it is not the key that the volume was written with, as ");
    assert!(std::fs::read(site.path("db.img")).unwrap() == before);

    write_key(&site, &key_bytes(), 0o400);
    let daemon = site.up();
    let mut read = [0; 4096];
    connect(&site).read(4096, &mut read).unwrap();
    assert_eq!(read, [7; 4096]);
    daemon.stop();
    // With a file from elsewhere, the daemon says that its key is unknown.
    std::fs::remove_dir_all(site.path("notes")).unwrap();
    let daemon = site.up();
    let log = daemon.stop();
    assert!(log.contains("no note says which key the volume was written with"), "{log}");
    let key: String = key_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!log.contains(&key[..16]));
}

fn kill_under_load(kills: u32, seed: u64) {
    let site = site("combo");
    let mut random = Random(seed);
    let mut halves = [0..BLOCKS / 2, BLOCKS / 2..BLOCKS].map(|blocks| Blocks::new(blocks, true));
    for _ in 0..kills {
        let daemon = site.up();
        halves.iter_mut().for_each(|half| half.verify(&mut connect(&site)));
        let requests = 50 + random.below(1000);
        load_until_killed(daemon, &address(&site), &mut halves, requests, &mut random);
    }
    let daemon = site.up();
    halves.iter_mut().for_each(|half| half.verify(&mut connect(&site)));
    daemon.stop();
}

/// What was acknowledged is in the file whatever happens to the daemon. Planted break: a write is answered when it is
/// encrypted.
/// Promise: encrypted-kill.
#[test]
fn after_a_kill_under_load_an_encrypted_volume_has_all_that_was_acknowledged() {
    kill_under_load(KILLS, 11);
}

#[test]
#[ignore = "make soak: 200 kills, some minutes"]
fn many_kills_under_load_of_an_encrypted_volume() {
    kill_under_load(kills_of_soak(), 12);
}
