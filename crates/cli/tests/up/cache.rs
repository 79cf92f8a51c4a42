//! `plimsoll up` with cached volumes, as a normal user: what is served, killed and found again, and the commands.

use crate::support::{Random, Site, text, why_no_mounts};
use crate::versions::{BLOCK_BYTES, Blocks, KILLS, kills_of_soak, load_until_killed};
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};

const BLOCKS: u64 = 4096;

/// A volume of 16 MiB with a cache of a quarter of that.
fn configuration(more: &str) -> String {
    format!(
        r#"
[device.disk0]
[pool.web]
device = "disk0"
[cache.fast]
file = "fast.img"
size = "4MiB"
{more}
[volume.db]
pool = "web"
size = "16MiB"
file = "slow.img"
cache = "fast"
nbd = {{}}
"#
    )
}

/// A site with its slow file there and its cache made.
pub(crate) fn site(more: &str) -> Site {
    let site = Site::of_normal_user(&configuration(more));
    let truncated = std::process::Command::new("truncate").args(["-s", "16M"]).arg(site.path("slow.img")).status();
    assert!(truncated.unwrap().success());
    assert!(site.command(&["check", "plimsoll.toml"]).output().unwrap().status.success());
    std::process::Command::new("chmod").arg("666").arg(site.path("slow.img")).status().unwrap();
    make(&site, &[]);
    site
}

fn make(site: &Site, more: &[&str]) {
    let made = site.command(&[&["cache", "make", "plimsoll.toml", "fast"], more].concat()).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).starts_with("cache fast: 3.91 MiB on "), "{}", text(&made.stdout));
}

fn address(site: &Site) -> Address {
    Address::Unix(site.path("state/nbd.sock"))
}

pub(crate) fn connect(site: &Site) -> Client {
    Client::connect(&address(site), &ClientOptions { export_name: "db".into(), ..ClientOptions::default() }).unwrap()
}

/// The only cache of the daemon.
fn status(site: &Site) -> serde_json::Value {
    site.json(&["cache", "status"])[0]["cache"].clone()
}

pub(crate) fn done(site: &Site, arguments: &[&str]) -> String {
    let output = site.ask(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Promise: cache-oracle-volume.
#[test]
fn a_cached_volume_is_served_administered_and_warm_after_a_restart() {
    let site = site("");
    let daemon = site.up();
    let served = daemon.served.join("\n");
    let line = "volume db: cache fast, policy credit, 0 B found in it, 0 B of that not yet on the slow device";
    assert!(served.contains(line), "{served}");
    let mut client = connect(&site);
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 4096 * 7 + at) as u8).collect();
    client.write(0, &data, true).unwrap();
    let mut read = vec![0; 1 << 20];
    client.read(0, &mut read).unwrap();
    assert!(read == data);
    let cache = status(&site);
    assert_eq!(
        (&cache["dirty_units"], &cache["used_units"], &cache["has_failed"]),
        (&256.into(), &256.into(), &false.into())
    );
    assert_eq!(cache["classes"][0]["read_hits"], 256, "{cache}");
    let table = done(&site, &["cache", "status"]);
    assert!(table.contains("write-cache") && table.contains("100.0 %"), "{table}");
    assert!(
        std::fs::read(site.path("slow.img")).unwrap()[..1 << 20] == vec![0; 1 << 20],
        "it is not on the slow device yet"
    );

    assert_eq!(done(&site, &["cache", "flush", "db"]), "volume db: all dirty data is on the slow device");
    assert_eq!(status(&site)["dirty_units"], 0);
    assert!(std::fs::read(site.path("slow.img")).unwrap()[..1 << 20] == data);
    done(&site, &["cache", "policy", "db", "--policy", "selective", "--classes", "ntfs", "--semantics", "strict"]);
    let cache = status(&site);
    assert_eq!((&cache["policy"], &cache["is_strict"]), (&"selective".into(), &true.into()));
    let wrong = site.ask(&["cache", "policy", "db", "--policy", "lur"]);
    assert_eq!(text(&wrong.stderr).trim(), "policy: got \"lur\", allowed lru, s3_fifo, selective, credit");
    assert_eq!(wrong.status.code(), Some(2));
    client.write(0, &data[4096..8192], true).unwrap();
    daemon.stop();

    let daemon = site.up();
    let served = daemon.served.join("\n");
    assert!(served.contains("policy credit, 1 MiB found in it, 4 KiB of that not yet on the slow device"), "{served}");
    let mut client = connect(&site);
    client.read(0, &mut read).unwrap();
    assert!(read[..4096] == data[4096..8192] && read[4096..] == data[4096..]);
    assert_eq!(status(&site)["classes"][0]["read_hits"], 256, "it is warm");

    assert_eq!(done(&site, &["cache", "resize", "db", "2MiB"]), "volume db: its cache has 2 MiB, and is empty");
    client.read(0, &mut read).unwrap();
    assert_eq!(status(&site)["classes"][0]["read_hits"], 0);
    client.write(8192, &[9; 4096], false).unwrap();
    done(&site, &["cache", "detach", "db"]);
    assert_eq!(done(&site, &["cache", "status"]), "no volume has a cache");
    assert!(std::fs::read(site.path("slow.img")).unwrap()[8192..12288] == [9; 4096]);
    let refused = site.ask(&["cache", "attach", "db", "fast"]);
    assert!(text(&refused.stderr).contains("there is no cache on the device"), "{}", text(&refused.stderr));
    done(&site, &["cache", "attach", "db", "fast", "--make"]);
    client.write(8192, &[8; 4096], false).unwrap();
    client.read(8192, &mut read[..4096]).unwrap();
    assert!(read[..4096] == [8; 4096]);
    assert_eq!(status(&site)["dirty_units"], 1);
    daemon.stop();
}

/// What is not said stays, whatever it was changed to before, and also in a cache of another size. Planted break that
/// was seen red: what is not said is what the configuration has.
/// Promise: cache-options.
#[test]
fn each_option_of_a_cache_changes_alone() {
    let site = site("");
    std::fs::write(site.path("mine.toml"), "[class.mine]\nnumber = 0\npriority = 12\n").unwrap();
    let daemon = site.up();
    let mut client = connect(&site);
    let mut works_by = |is_strict: bool, policy: &str, class: &str, after: &str| {
        // A class has to be met to be told.
        client.write(0, &[1; BLOCK_BYTES], false).unwrap();
        let cache = status(&site);
        let found = (&cache["is_strict"], &cache["policy"], &cache["classes"][0]["name"]);
        assert_eq!(found, (&is_strict.into(), &policy.into(), &class.into()), "after {after}");
    };
    works_by(false, "credit", "unclassified", "the start");
    let options = [
        ("--classes", "mine.toml", (false, "credit", "mine")),
        ("--semantics", "strict", (true, "credit", "mine")),
        ("--policy", "lru", (true, "lru", "mine")),
        ("--classes", "ext4", (true, "lru", "unclassified")),
        ("--classes", "mine.toml", (true, "lru", "mine")),
        ("--semantics", "write-cache", (false, "lru", "mine")),
        ("--policy", "selective", (false, "selective", "mine")),
        ("--semantics", "strict", (true, "selective", "mine")),
    ];
    for (option, value, (is_strict, policy, class)) in options {
        done(&site, &["cache", "policy", "db", option, value]);
        works_by(is_strict, policy, class, &format!("{option} {value}"));
    }
    done(&site, &["cache", "resize", "db", "2MiB"]);
    works_by(true, "selective", "mine", "another size");
    daemon.stop();
}

/// The old cache is given up where the daemon has it open, and a new one cannot be made where the path leads by then.
/// Outcome: nothing is lost, the volume goes on without a cache, and the message says so and what to do. Planted break
/// that was seen red: only the reason is said.
/// Promise: cache-failed-resize.
#[test]
fn a_resize_that_fails_half_way_says_that_the_volume_has_no_cache_now() {
    let site = site("");
    let daemon = site.up();
    let mut client = connect(&site);
    client.write(0, &[5; 2 * BLOCK_BYTES], false).unwrap();
    let fast = site.path("fast.img");
    std::fs::remove_file(&fast).unwrap();
    std::os::unix::fs::symlink(site.path("nowhere/fast.img"), &fast).unwrap();
    let refused = site.ask(&["cache", "resize", "db", "2MiB"]);
    let said = text(&refused.stderr);
    let state = "; volume db has no cache now, and everything is on the slow device (to put one before it again: plimsoll cache attach \
                 db fast --make)";
    assert!(said.contains("cache fast: cannot open") && said.trim().ends_with(state), "{said}");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(done(&site, &["cache", "status"]), "no volume has a cache");
    assert!(std::fs::read(site.path("slow.img")).unwrap()[..2 * BLOCK_BYTES] == [5; 2 * BLOCK_BYTES]);
    client.write(0, &[6; BLOCK_BYTES], true).unwrap();
    std::fs::remove_file(&fast).unwrap();
    done(&site, &["cache", "attach", "db", "fast", "--make"]);
    let mut read = [0; 2 * BLOCK_BYTES];
    client.read(0, &mut read).unwrap();
    assert!(read[..BLOCK_BYTES] == [6; BLOCK_BYTES] && read[BLOCK_BYTES..] == [5; BLOCK_BYTES]);
    client.write(0, &[7; BLOCK_BYTES], true).unwrap();
    daemon.stop();
    let daemon = site.up();
    connect(&site).read(0, &mut read).unwrap();
    assert!(read[..BLOCK_BYTES] == [7; BLOCK_BYTES] && read[BLOCK_BYTES..] == [5; BLOCK_BYTES]);
    daemon.stop();
}

/// Planted break that was seen red: blocks belong to no session in the cache.
/// Promise: cache-pool-bound.
#[test]
fn a_session_fills_the_part_of_a_cache_that_it_may_and_no_more_also_after_a_restart() {
    let site = site("policy = \"lru\"\npools = { web = \"90%\", \"db/scan\" = \"10%\" }");
    let daemon = site.up();
    let export = site.json(&["session", "open", "db", "scan"])["export"].as_str().unwrap().to_owned();
    let scan = |export: String| {
        Client::connect(&address(&site), &ClientOptions { export_name: export, ..ClientOptions::default() })
    };
    let mut client = connect(&site);
    let data = vec![7; 2 << 20];
    client.write(0, &data, false).unwrap();
    let mut read = vec![0; 8 << 20];
    scan(export).unwrap().read(8 << 20, &mut read).unwrap();
    let pools = |of: &str| -> (u64, u64) {
        let cache = status(&site);
        let pool = cache["pools"].as_array().unwrap().iter().find(|pool| pool["pool"] == of).cloned().unwrap();
        (pool["units"].as_u64().unwrap(), pool["units_max"].as_u64().unwrap())
    };
    let (scanned, scanned_max) = pools("web/db/scan");
    assert!(scanned > scanned_max / 2 && scanned <= scanned_max, "{scanned} of {scanned_max}");
    assert_eq!((scanned_max, pools("web").0), (100, 512), "what the scan brought in pushed out nobody");
    let table = done(&site, &["cache", "status"]);
    assert!(table.contains("web/db/scan") && table.contains("at most"), "{table}");
    daemon.stop();
    let daemon = site.up();
    assert_eq!((pools("web/db/scan").0, pools("web").0), (scanned, 512));
    daemon.stop();
}

/// Loads a cached volume from two connections, kills the daemon, and verifies, `kills` times.
fn kill_under_load(is_strict: bool, kills: u32, seed: u64) {
    // Without promotion what is dirty stays for several kills; with it clean units are read again.
    let site = site(if is_strict { "semantics = \"strict\"" } else { "promote_reads = false" });
    let mut random = Random(seed);
    let mut halves = [0..BLOCKS / 2, BLOCKS / 2..BLOCKS].map(|blocks| Blocks::new(blocks, is_strict));
    let (mut requests, mut recovered, mut dirty, mut is_warm) = (0, 0, 0, false);
    let mut start = || {
        let daemon = site.up();
        let line = daemon.served.iter().find(|line| line.contains("cache fast")).expect("what was found");
        recovered += u32::from(line.contains("records recovered from"));
        dirty += u32::from(!line.contains(" 0 B of that not yet"));
        // A kill before the first flush leaves nothing.
        let was_warm = std::mem::replace(&mut is_warm, !line.contains(" 0 B found in it"));
        assert!(is_warm || !was_warm, "it stays warm: {line}");
        daemon
    };
    for _ in 0..kills {
        let daemon = start();
        halves.iter_mut().for_each(|half| half.verify(&mut connect(&site)));
        requests += load_until_killed(daemon, &address(&site), &mut halves, 50 + random.below(1000), &mut random);
    }
    let daemon = start();
    halves.iter_mut().for_each(|half| half.verify(&mut connect(&site)));
    println!("{kills} kills, {requests} requests, {recovered} journals recovered, {dirty} caches dirty");
    // A kill just after a snapshot leaves a journal in which nothing is.
    assert!(recovered > kills / 8 && dirty > 0, "{recovered} journals, {dirty} dirty caches of {kills} kills");
    done(&site, &["cache", "detach", "db"]);
    halves.iter_mut().for_each(|half| half.verify(&mut connect(&site)));
    daemon.stop();
}

/// Promise: cache-kill.
#[test]
fn after_a_kill_under_load_each_block_is_a_version_between_flushed_and_written() {
    kill_under_load(false, KILLS, 1);
}

/// Promise: cache-kill.
#[test]
fn after_a_kill_a_strict_cache_has_all_that_was_acknowledged() {
    kill_under_load(true, KILLS, 2);
}

#[test]
#[ignore = "make soak: 200 kills, some minutes"]
fn many_kills_under_load_of_a_write_cache() {
    kill_under_load(false, kills_of_soak(), 3);
}

#[test]
#[ignore = "make soak: 200 kills, some minutes"]
fn many_kills_under_load_of_a_strict_cache() {
    kill_under_load(true, kills_of_soak(), 4);
}

/// A daemon was killed that had dirty data in its cache: what its blocks may hold.
pub(crate) fn killed_with_dirty_data(site: &Site) -> Blocks {
    let mut blocks = Blocks::new(0..BLOCKS, false);
    let daemon = site.up();
    load_until_killed(daemon, &address(site), std::slice::from_mut(&mut blocks), 500, &mut Random(7));
    blocks
}

/// Red if the slow file is not looked at before the cache's is made.
/// Promise: notes-made.
#[test]
fn a_cache_of_a_file_that_is_not_there_or_is_served_is_not_made() {
    let site = site("");
    let refused = |why: &str| {
        let made = site.command(&["cache", "make", "plimsoll.toml", "fast", "--replace"]).output().unwrap();
        let said = text(&made.stderr);
        assert!(said.starts_with(&format!("plimsoll.toml:14: volume.db.file: {why}")), "{said}");
    };
    let (slow, daemon) = (site.path("slow.img").display().to_string(), site.up());
    refused(&format!("volume db: {slow} is served by the plimsoll daemon, process {}", daemon.process()));
    daemon.stop();
    ["slow.img", "fast.img"].iter().for_each(|name| std::fs::remove_file(site.path(name)).unwrap());
    refused(&format!("{slow} does not exist; to make one: truncate -s 16777216 {slow}"));
    assert!(!site.path("fast.img").exists());
}

/// Promise: notes-lost-cache.
#[test]
fn a_lost_cache_is_noticed_and_the_slow_device_is_not_served_without_it() {
    let site = site("");
    killed_with_dirty_data(&site);
    let fast = site.path("fast.img");
    let bytes = std::fs::read(&fast).unwrap();
    let refused = |what: &str| {
        let log = text(&site.up_fails().stderr);
        assert!(log.contains("plimsoll.toml:8: cache.fast.file: ") && log.contains(what), "{log}");
    };
    std::fs::write(&fast, vec![0; bytes.len()]).unwrap();
    refused(
        // It is noted that the volume has one, so to make another takes a word.
        "there is no cache on the device; to make one: plimsoll cache make plimsoll.toml fast --replace (if there was a cache, its dirty data is lost)",
    );
    std::fs::write(&fast, &bytes[..bytes.len() / 2]).unwrap();
    refused("but its device has only 512");
    std::fs::write(&fast, &bytes).unwrap();
    // A copy of the slow file is another one, and may be older.
    let (slow, copy) = (site.path("slow.img"), site.path("copy.img"));
    std::fs::copy(&slow, &copy).unwrap();
    std::fs::rename(&slow, site.path("kept.img")).unwrap();
    std::fs::rename(&copy, &slow).unwrap();
    std::process::Command::new("chmod").arg("666").arg(&slow).status().unwrap();
    refused("the cache belongs to another store");
    std::fs::rename(site.path("kept.img"), &slow).unwrap();
    std::fs::remove_file(&fast).unwrap();
    refused("cannot open");
}

/// Promise: notes-lost-cache.
#[test]
fn a_corrupted_cache_is_never_served_as_good_data() {
    let site = site("");
    let mut blocks = killed_with_dirty_data(&site);
    let fast = site.path("fast.img");
    // Every third unit; the units are the last of the file.
    let mut bytes = std::fs::read(&fast).unwrap();
    let first_unit = bytes.len() / BLOCK_BYTES / 20;
    (first_unit..bytes.len() / BLOCK_BYTES).step_by(3).for_each(|unit| bytes[unit * BLOCK_BYTES + 100] ^= 1);
    std::fs::write(&fast, &bytes).unwrap();
    let daemon = site.up();
    let failed = blocks.verify_what_is_answered(&mut connect(&site));
    let cache = status(&site);
    let damaged = [&cache["damaged_clean"], &cache["damaged_dirty"]].map(|count| count.as_u64().unwrap());
    assert!(failed > 0 && damaged[1] > 0, "{failed} reads failed, {damaged:?} units were damaged");
    assert!(done(&site, &["cache", "status"]).contains("DAMAGED"));
    drop(daemon);

    // The superblocks say of the map and the journal what they are: neither is believed when it is damaged.
    // What is damaged is the cache as the last start left it: a copy from before that would be refused for its age.
    let mut bytes = std::fs::read(&fast).unwrap();
    bytes[2 * BLOCK_BYTES..first_unit * BLOCK_BYTES].iter_mut().step_by(977).for_each(|byte| *byte ^= 0x10);
    std::fs::write(&fast, &bytes).unwrap();
    let log = text(&site.up_fails().stderr);
    let advice = "to accept the loss: put accept_losses = true into cache.fast (plimsoll.toml:7), then plimsoll up plimsoll.toml";
    assert!(log.contains("are damaged; accepting that loses at most ") && log.contains(advice), "{log}");
    let path = site.path("plimsoll.toml");
    let accepting =
        std::fs::read_to_string(&path).unwrap().replace("size = \"4MiB\"", "size = \"4MiB\"\naccept_losses = true");
    std::fs::write(&path, accepting).unwrap();
    let daemon = site.up();
    let said = daemon.served.join("\n");
    assert!(said.contains(", LOST: ") && said.contains("; GIVEN UP, since it may be old: "), "{said}");
    daemon.stop();
}

/// Two disks in memory that count the flushes which reach them.
const TWO_DISKS: &str = r#"
[device.d]
[pool.p]
device = "d"
[volume.fast]
pool = "p"
size = "8MiB"
memory = true
mount = { filesystem = "none" }
[volume.slow]
pool = "p"
size = "16MiB"
memory = true
mount = { filesystem = "none" }
"#;

/// A client's flush must be one of both devices, or a power failure takes back what was acknowledged: a kill would not
/// show that.
/// Promise: cache-flush.
#[test]
fn what_a_client_flushes_is_flushed_on_the_devices() {
    if let Some(why) = why_no_mounts() {
        println!("not run: {why}");
        return;
    }
    let disks = Site::new(TWO_DISKS);
    let below = disks.up();
    let device = |name: &str| {
        let line = below.served.iter().find_map(|line| line.strip_prefix(&format!("volume {name}: block device ")));
        line.expect("a line for the volume").to_owned()
    };
    let flushes = |name: &str| {
        let status = disks.json(&["status"]);
        let accounts = status["devices"][0]["accounts"].as_array().unwrap();
        let account = accounts.iter().find(|account| account["path"] == format!("p/{name}")).unwrap();
        account["flush_latency"]["count"].as_u64().unwrap()
    };
    let text = configuration("").replace("fast.img", &device("fast")).replace("slow.img", &device("slow"));
    let site = Site::new(&text);
    make(&site, &[]);
    let daemon = site.up();
    let mut client = connect(&site);
    client.write(0, &[1; BLOCK_BYTES], false).unwrap();
    let before = flushes("fast");
    client.flush().unwrap();
    let after = flushes("fast");
    assert!(after >= before + 2, "{before} flushes, then {after}: one for the data and one for the journal");
    let before = flushes("slow");
    done(&site, &["cache", "flush", "db"]);
    let after = flushes("slow");
    assert!(
        after > before,
        "what is recorded as clean must be durable on the slow device: {before} flushes, then {after}"
    );
    daemon.stop();
    below.stop();
}

/// Planted break that was seen red: `cache detach` does not say that the file still names the cache.
/// Promise: notes-detached.
#[test]
fn a_file_that_names_a_detached_cache_is_told_at_once_and_at_the_next_start() {
    let site = site("");
    let daemon = site.up();
    let said = done(&site, &["cache", "detach", "db"]);
    assert!(said.contains("still names the cache: take volume.db.cache out"), "{said}");
    daemon.stop();
    let refused = site.start_fails(&["up", "plimsoll.toml"]);
    let told = text(&refused.stderr);
    assert!(told.contains("it was detached or never made") && !told.contains("lost"), "{told}");
    let file = std::fs::read_to_string(site.path("plimsoll.toml")).unwrap();
    let line = file.lines().position(|line| line.starts_with("cache = ")).unwrap() + 1;
    assert!(told.contains(&format!("to do without: take volume.db.cache out of line {line}\n")), "{told}");
    std::fs::write(site.path("plimsoll.toml"), file.replace("cache = \"fast\"\n", "")).unwrap();
    site.up().stop();
}

/// A second cache is attached to a volume that has one: made, found, and the same one again. Outcome: it is refused
/// before anything is made, and the first one has all that only it had, also for the next start.
///
/// Planted break that was seen red: only the engine refuses it, when the second one was made and the first given up.
/// Promise: cache-one-a-volume.
#[test]
fn a_second_cache_of_a_volume_is_refused_before_it_is_made() {
    let site = site("[cache.second]\nfile = \"second.img\"\nsize = \"4MiB\"\n");
    let daemon = site.up();
    let data = [7; 4 * BLOCK_BYTES];
    connect(&site).write(0, &data, true).unwrap();
    let commands: [&[&str]; 4] = [&["second", "--make"], &["second"], &["fast", "--make"], &["fast"]];
    for command in commands {
        let refused = site.ask(&[&["cache", "attach", "db"], command].concat());
        assert_eq!(text(&refused.stderr).trim(), "volume db has cache fast, detach that first");
        assert_eq!(refused.status.code(), Some(2));
        assert!(!site.path("second.img").exists(), "{command:?}");
    }
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let daemon = site.up();
    let mut read = [0; 4 * BLOCK_BYTES];
    connect(&site).read(0, &mut read).unwrap();
    assert!(read == data && status(&site)["dirty_units"] == 4);
    daemon.stop();
}
