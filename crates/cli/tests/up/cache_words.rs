//! What administrators are told of caches: of sizes that none can have, of damage, of what a command would lose.

use crate::cache::{connect, done, killed_with_dirty_data, site};
use crate::support::text;
use crate::versions::BLOCK_BYTES;
use std::os::unix::fs::FileExt;
use std::process::Output;

fn told(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), text(&output.stderr).trim().to_owned())
}

/// Outcome: a size that no cache can have is refused in one line, by the commands and on the control socket, and the
/// cache goes on with what is dirty in it.
///
/// Planted breaks, seen red: the command asks the daemon; the daemon looks at the size when the old cache is given up.
#[test]
fn a_size_that_no_cache_can_have_is_refused_before_anything_is_given_up() {
    let site = site("");
    let daemon = site.up();
    connect(&site).write(0, &[5; BLOCK_BYTES], false).unwrap();
    let before = site.json(&["cache", "status"])[0]["cache"].clone();
    assert_eq!(before["dirty_units"], 1);
    for (size, got) in [("999999TB", "909494 TiB"), ("513GiB", "513 GiB"), ("10KiB", "10 KiB"), ("124KiB", "124 KiB")] {
        let refused = format!("size: got {got}, allowed 128 KiB to 512 GiB");
        assert_eq!(told(&site.ask(&["cache", "resize", "db", size])), (Some(2), refused));
    }
    for (bytes, got) in [(1u64 << 60, "1048576 TiB"), (4096, "4 KiB")] {
        let request = format!("{{\"command\":\"cache_resize\",\"volume\":\"db\",\"size_bytes\":{bytes}}}");
        let answer = site.request(&request);
        let error = &answer["error"];
        let refused = format!("cache fast: size: got {got}, allowed 128 KiB to 512 GiB");
        assert_eq!((&error["kind"], &error["message"]), (&"invalid".into(), &refused.into()), "{answer}");
    }
    let empty = site.request("{\"command\":\"cache_set\",\"volume\":\"db\",\"change\":{}}");
    assert_eq!(empty["error"]["kind"], "invalid", "{empty}");
    let after = site.json(&["cache", "status"])[0]["cache"].clone();
    assert_eq!((&after["dirty_units"], &after["units"]), (&before["dirty_units"], &before["units"]));
    daemon.stop();
    let path = site.path("plimsoll.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.replace("4MiB", "999999TB")).unwrap();
    let refused = "plimsoll.toml:9: cache.fast.size: got 909494 TiB, allowed 128 KiB to 512 GiB";
    for arguments in
        [&["check", "plimsoll.toml"][..], &["up", "plimsoll.toml"], &["cache", "make", "plimsoll.toml", "fast"]]
    {
        assert_eq!(told(&site.command(arguments).output().unwrap()), (Some(2), refused.to_owned()), "{arguments:?}");
    }
}

/// Outcome: two blocks that only the cache has are damaged. Each flush says which they are and how to give them up,
/// they count once each, and the log names them once.
///
/// Planted break, seen red: each pass counts.
#[test]
fn damaged_blocks_count_once_and_are_named_with_the_command_that_gives_them_up() {
    let site = site("promote_reads = false");
    let daemon = site.up();
    let mut client = connect(&site);
    client
        .write(4 * BLOCK_BYTES as u64, &[[4; BLOCK_BYTES], [0xa5; BLOCK_BYTES], [0xa6; BLOCK_BYTES]].concat(), false)
        .unwrap();
    client.flush().unwrap();
    drop(daemon);
    let fast = std::fs::File::options().read(true).write(true).open(site.path("fast.img")).unwrap();
    let bytes = std::fs::read(site.path("fast.img")).unwrap();
    let mut damaged = 0;
    for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if [[0xa5; BLOCK_BYTES], [0xa6; BLOCK_BYTES]].iter().any(|content| block == content) {
            fast.write_all_at(&[0xbd], (at * BLOCK_BYTES) as u64).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 2);
    let daemon = site.up();
    let named = "the cache cannot be read for 8 KiB, bytes 20480 to 28672 of volume db (plimsoll cache detach db --lost gives that up)";
    for arguments in [["cache", "flush", "db"], ["cache", "detach", "db"], ["cache", "flush", "db"]] {
        let refused = format!("volume db: 8 KiB are not on the slow device: {named}");
        assert_eq!(told(&site.ask(&arguments)), (Some(1), refused), "{arguments:?}");
    }
    let cache = site.json(&["cache", "status"])[0]["cache"].clone();
    assert_eq!((&cache["damaged_dirty"], &cache["unreadable"]), (&2.into(), &2.into()), "{cache}");
    let table = done(&site, &["cache", "status"]);
    assert!(table.contains("works, 2 blocks were DAMAGED, 2 lost"), "{table}");
    let given_up = done(&site, &["cache", "detach", "db", "--lost"]);
    assert!(given_up.contains("8 KiB of dirty data could not be read and are lost"), "{given_up}");
    let log = daemon.stop();
    assert_eq!(log.matches(named).count(), 1, "{log}");
}

/// Planted break, seen red: nothing but the reason is said.
#[test]
fn a_start_without_the_file_of_a_cache_names_the_command_that_makes_one_and_what_is_lost() {
    let site = site("");
    let fast = site.path("fast.img");
    let refused = |what: &str| {
        let said = text(&site.up_fails().stderr);
        assert!(said.trim().ends_with(what), "{said}");
    };
    let kept = site.path("kept.img");
    std::fs::rename(&fast, &kept).unwrap();
    refused("No such file or directory (os error 2); to make one: plimsoll cache make plimsoll.toml fast");
    std::fs::rename(&kept, &fast).unwrap();
    site.up().stop();
    // It is noted from now on that the volume has one.
    std::fs::rename(&fast, &kept).unwrap();
    refused("to make one: plimsoll cache make plimsoll.toml fast --replace (the old cache's dirty data is lost)");
    // It is there, and this user may not open it. (A directory is refused when the configuration is read.)
    std::fs::File::create(&fast).unwrap();
    std::fs::set_permissions(&fast, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    refused(
        "if it can be read and not written: plimsoll cache rescue plimsoll.toml db copies its dirty data, and then plimsoll \
         cache forget plimsoll.toml db gives it up",
    );
}

/// One block of the journal is damaged. Outcome: the refusal names the bound of what accepting it loses, in units and
/// bytes, how old that is at the most, and what accepts it. Once accepted, no more than that is lost: what was written
/// before the damaged block and in it. What was written later is there.
///
/// Planted breaks that were seen red: the bound leaves out what the damaged block named; the refusal says nothing of
/// acceptance.
#[test]
fn a_damaged_journal_is_refused_with_the_bound_of_what_accepting_it_loses() {
    let site = site("dirty_age = \"1h\"");
    let daemon = site.up();
    let mut client = connect(&site);
    for (at, byte) in [(0, 1), (64, 2), (128, 3)] {
        client.write(at * BLOCK_BYTES as u64, &[byte; 10 * BLOCK_BYTES], false).unwrap();
        client.flush().unwrap();
    }
    drop(daemon);
    let fast = std::fs::File::options().read(true).write(true).open(site.path("fast.img")).unwrap();
    // Behind two superblocks: the journal, with the flushes' blocks from number 1 on. That is their number modulo 16.
    let [second, third] = [2 + 2, 2 + 3].map(|block| (block * BLOCK_BYTES) as u64);
    let mut magic = [[0; 16]; 2];
    fast.read_exact_at(&mut magic[0], second).unwrap();
    fast.read_exact_at(&mut magic[1], third).unwrap();
    assert!(magic[0] == magic[1] && magic[0] != [0; 16], "both are of this cache's journal");
    fast.write_all_at(&[0xbd; 512], second + 1024).unwrap();
    let log = text(&site.up_fails().stderr);
    let bound = "1 blocks of the cache's journal and 0 pages of its map are damaged; accepting that loses at most 1.03 MiB (263 units) that the \
                 slow device lacks: 40 KiB (10 units) that cannot be believed any more, and at most 253 units that the damaged records \
                 named; 0 clean units are forgotten, too; all of this data was written in the last 3600 s before the daemon ended";
    let accepts = "put accept_losses = true into cache.fast (plimsoll.toml:7), then plimsoll up plimsoll.toml";
    assert!(log.contains(bound) && log.contains(accepts), "{log}");
    let path = site.path("plimsoll.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.replace("dirty_age = \"1h\"", "accept_losses = true")).unwrap();
    let daemon = site.up();
    let mut client = connect(&site);
    for (at, byte) in [(0, 0), (64, 0), (128, 3)] {
        let mut read = [9; 10 * BLOCK_BYTES];
        client.read(at * BLOCK_BYTES as u64, &mut read).unwrap();
        assert!(read == [byte; 10 * BLOCK_BYTES], "block {at}: {}", read[0]);
    }
    daemon.stop();
}

/// A volume with a dirty cache is made longer while no daemon runs. Outcome: it is refused with the way that loses
/// nothing, and no word of replacing the cache; that way works.
///
/// Planted break that was seen red: the other size counts as another store.
#[test]
fn a_volume_that_was_made_longer_is_answered_with_the_way_that_loses_nothing() {
    let site = site("");
    let mut blocks = killed_with_dirty_data(&site);
    let path = site.path("plimsoll.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    let slow = std::fs::File::options().write(true).open(site.path("slow.img")).unwrap();
    slow.set_len(32 << 20).unwrap();
    let longer = before.replace("size = \"16MiB\"", "size = \"32MiB\"");
    std::fs::write(&path, &longer).unwrap();
    let log = text(&site.up_fails().stderr);
    let why = "the cache is of this store when it had 16 MiB, and it has 32 MiB now; nothing is lost: put size = \"16777216 B\" back into \
               volume.db; the file or device may stay longer; then plimsoll up plimsoll.toml, plimsoll cache detach db";
    assert!(log.contains(why) && !log.contains("--replace"), "{log}");
    std::fs::write(&path, before.replace("size = \"16MiB\"", "size = \"16777216 B\"")).unwrap();
    let daemon = site.up();
    blocks.verify(&mut connect(&site));
    done(&site, &["cache", "detach", "db"]);
    daemon.stop();
    std::fs::write(&path, &longer).unwrap();
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let daemon = site.up();
    let mut client = connect(&site);
    blocks.verify(&mut client);
    client.write(31 << 20, &[7; BLOCK_BYTES], true).unwrap();
    daemon.stop();
}

/// Commands on a volume without a cache: each ends as one with bad input does.
///
/// Planted break: a flush of it is a failure (exit code 1).
#[test]
fn a_volume_without_a_cache_is_bad_input_for_each_command() {
    let site = site("");
    let path = site.path("plimsoll.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, file.replace("cache = \"fast\"\n", "")).unwrap();
    let daemon = site.up();
    for arguments in [
        &["flush", "db"][..],
        &["policy", "db", "--policy", "lru"],
        &["detach", "db"],
        &["detach", "db", "--lost"],
        &["resize", "db", "2MiB"],
    ] {
        let answer = told(&site.ask(&[&["cache"], arguments].concat()));
        assert_eq!(answer, (Some(2), "volume db has no cache".to_owned()), "{arguments:?}");
    }
    daemon.stop();
}

/// `size` and `dirty_max` of a cache that is there are changed in the file. Outcome: `check`, the log of the start and
/// that of a SIGHUP say that nothing comes of it, and which command gives the cache another size; after that, nothing
/// is said.
///
/// Planted breaks: nothing is compared; SIGHUP says that the size waits for a restart, and no more.
#[test]
fn a_size_that_has_no_effect_is_told() {
    let site = site("");
    let path = site.path("plimsoll.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    let daemon = site.up();
    std::fs::write(&path, file.replace("\"4MiB\"", "\"8MiB\"\ndirty_max = \"6MiB\"")).unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    let log = daemon.stop();
    let waits = "cache.fast.size (of a cache that is made then; plimsoll cache resize changes one that is there)";
    assert!(log.contains(waits), "{log}");
    let lines = [
        "plimsoll.toml:9: cache.fast.size: 8 MiB has no effect on the cache that is there: it holds 3.91 MiB, not 7.89 MiB (to give it \
         another size: plimsoll cache resize db \"8388608 B\")",
        "plimsoll.toml:10: cache.fast.dirty_max: 6 MiB has no effect on the cache that is there: it holds 3.91 MiB",
    ];
    let check = || {
        let output = site.command(&["check", "plimsoll.toml"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = check();
    assert!(lines.iter().all(|line| said.contains(line)), "{said}");
    let daemon = site.up();
    done(&site, &["cache", "resize", "db", "8388608 B"]);
    let log = daemon.stop();
    assert!(lines.iter().all(|line| log.contains(&format!("WARN {line}"))), "{log}");
    assert!(!check().contains("has no effect"), "{}", check());
    let log = site.up().stop();
    assert!(!log.contains("has no effect"), "{log}");
}

/// A cache is to be made on a file that holds an ext4. Outcome: the refusal names a command that there is.
///
/// Planted break: the line of `cache make` with its `--replace`, which is no option of `cache attach`.
#[test]
fn what_an_attached_cache_would_be_made_over_is_given_up_by_a_command_that_there_is() {
    let site = site("");
    let daemon = site.up();
    done(&site, &["cache", "detach", "db"]);
    let fast = std::fs::File::options().write(true).open(site.path("fast.img")).unwrap();
    fast.set_len(0).unwrap();
    fast.set_len(4 << 20).unwrap();
    fast.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    let output = site.ask(&["cache", "attach", "db", "fast", "--make"]);
    let said = text(&output.stderr);
    let advice = "to give that up: plimsoll cache make plimsoll.toml fast --replace, while no daemon serves volume db";
    assert!(!output.status.success() && said.trim_end().ends_with(advice), "{said}");
    daemon.stop();
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast", "--replace"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    site.up().stop();
}
