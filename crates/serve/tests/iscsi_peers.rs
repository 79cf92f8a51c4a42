//! The real target against other people's initiators: the conformance suite of libiscsi, and QEMU's iSCSI driver.
//!
//! A program that is not installed is reported as *not run*; Debian has them in `libiscsi-bin`, `qemu-utils` and
//! `qemu-block-extra`. What does not pass, and why, stands in `docs/iscsi.md`.

mod programs;

use plimsoll_engine::CacheClassStatus;
use plimsoll_engine::backend::Volume;
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_protocols::iscsi::{Chap, Credentials};
use plimsoll_testkit::iscsi::{Portal, target_name};
use plimsoll_testkit::{file_config, memory, profile};
use programs::{is_installed, run, succeed};
use std::collections::BTreeMap;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// The suite's tests that pass on a volume in memory, on one in a file and on one with a cache, in the version that was
/// measured (1.19.0).
const PASSING_MIN: usize = 186;
/// Those that fail there.
const FAILING: &[&str] = &["GetLBAStatus.UnmapSingle"];
/// Those that the suite skips are in these suites, or are these tests.
const SKIPPED: &[&str] = &[
    "ExtendedCopy.",
    "NoMedia.",
    "PreventAllow.",
    "ReadDefectData1",
    "ReadOnly.",
    "ReceiveCopyResults.",
    "ReportSupportedOpcodes.OneCommand",
    "Sanitize.",
    "StartStopUnit.",
    "WriteAtomic16.",
    "WriteSame10.ZeroBlocks",
    "WriteSame16.ZeroBlocks",
];

/// Whether QEMU has its iSCSI driver; says so if not.
fn has_qemu(portal: &Portal, volume: &str) -> bool {
    if !is_installed("qemu-img") || !is_installed("qemu-io") {
        return false;
    }
    let info = run("qemu-img", &["info", &portal.url(volume)]);
    let complaints = String::from_utf8_lossy(&info.stderr).into_owned();
    let has_driver = !complaints.contains("Unknown protocol") && !complaints.contains("Unknown driver");
    if !has_driver {
        println!("not run: QEMU has no iSCSI driver: {complaints}");
    }
    has_driver
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    Failed,
}

/// What the suite says of each of its tests.
fn verdicts(printed: &str) -> BTreeMap<String, (Verdict, String)> {
    let (mut suite, mut test, mut text) = (String::new(), None::<String>, String::new());
    let mut verdicts = BTreeMap::new();
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix("Suite: ") {
            suite = name.trim().to_owned();
        }
        // What a test says follows its name; its verdict stands there too, or on a line of its own.
        let line = match line.strip_prefix("  Test: ") {
            Some(rest) => {
                let (name, rest) = rest.split_once(" ...").unwrap_or((rest, ""));
                (test, text) = (Some(format!("{suite}.{name}")), String::new());
                rest
            }
            None => line,
        };
        text.push_str(line);
        text.push('\n');
        let verdict = match (line.starts_with("passed"), line.starts_with("FAILED")) {
            (true, _) if text.contains("[SKIPPED]") => Verdict::Skipped,
            (true, _) => Verdict::Passed,
            (_, true) => Verdict::Failed,
            _ => continue,
        };
        if let Some(test) = test.take() {
            verdicts.insert(test, (verdict, std::mem::take(&mut text)));
        }
    }
    verdicts
}

/// Runs the suite on a volume, twice over two paths, and holds what it says against what is expected.
fn conforms(portal: &Portal, volume: &str) {
    let url = portal.url(volume);
    let output = run("iscsi-test-cu", &["-d", "-g", "-v", "-V", "-t", "ALL", &url, &url]);
    let printed = String::from_utf8_lossy(&output.stdout);
    let verdicts = verdicts(&printed);
    let of = |wanted: Verdict| verdicts.iter().filter(move |(_, (verdict, _))| *verdict == wanted);
    let (passed, skipped, failed) = (of(Verdict::Passed), of(Verdict::Skipped), of(Verdict::Failed));
    println!("{volume}: {} passed", passed.clone().count());
    for (test, (_, text)) in skipped.clone() {
        println!("  skipped: {test}: {}", text.lines().find(|line| line.contains("[SKIPPED]")).unwrap_or("").trim());
    }
    for (test, (_, text)) in failed.clone() {
        println!("  failed: {test}: {}", text.lines().filter(|line| line.contains("[FAILED]")).collect::<String>());
    }
    let unexpected: Vec<_> = failed.map(|(test, _)| test).filter(|test| !FAILING.contains(&test.as_str())).collect();
    assert!(unexpected.is_empty(), "{volume}: {unexpected:?} fail now");
    let is_known = |test: &str| SKIPPED.iter().any(|known| test.starts_with(known));
    let unknown: Vec<_> = skipped.map(|(test, _)| test).filter(|test| !is_known(test)).collect();
    assert!(unknown.is_empty(), "{volume}: {unknown:?} are skipped now");
    let count = passed.count();
    assert!(count >= PASSING_MIN, "{volume}: {count} tests pass, {PASSING_MIN} did");
}

/// Promise: iscsi-libiscsi.
#[test]
fn libiscsis_suite_passes() {
    if !is_installed("iscsi-test-cu") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let mut config = file_config("file", &directory.path().join("volume"), Some(128 * MIB));
    config.start_bytes = 128 * MIB;
    // A cache that is too small for the volume, so that blocks come and go, too; in memory, for the suite flushes all
    // the time.
    let fast = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let cached = memory("cached", 128 * MIB, 256 * MIB);
    let settings =
        CacheSettings { size_bytes: Some(2 * MIB), ..plimsoll_testkit::cache_settings(fast.path().join("fast")) };
    let cache = FoundCache::find(settings, &cached).unwrap();
    let volumes = vec![(memory("memory", 128 * MIB, 0), None), (Volume::open(config).unwrap(), None), (cached, None)];
    let portal = &Portal::new(profile(), volumes);
    portal.engine.attach_cache("cached", cache).unwrap();
    std::thread::scope(|scope| {
        for volume in ["memory", "file", "cached"] {
            scope.spawn(move || conforms(portal, volume));
        }
    });
    let (_, status) = portal.engine.caches().unwrap().remove(0);
    let hits = |of: fn(&CacheClassStatus) -> u64| status.classes.iter().map(of).sum::<u64>();
    assert!(status.is_working && !status.has_failed && status.damaged_clean + status.damaged_dirty == 0, "{status:?}");
    assert!(hits(|class| class.read_hits) > 0 && hits(|class| class.write_hits) > 0, "the cache was of no use");
}

/// Promise: iscsi-libiscsi.
#[test]
fn a_read_only_volume_refuses_what_the_suite_writes() {
    if !is_installed("iscsi-test-cu") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("volume");
    std::fs::write(&path, vec![0; 16 << 20]).unwrap();
    let config = plimsoll_engine::backend::VolumeConfig { is_read_only: true, ..file_config("file", &path, None) };
    let portal = Portal::new(profile(), vec![(Volume::open(config).unwrap(), None)]);
    let output = run("iscsi-test-cu", &["-d", "-g", "-v", "-t", "ALL.ReadOnly", &portal.url("file")]);
    let verdicts = verdicts(&String::from_utf8_lossy(&output.stdout));
    let verdict = verdicts.get("ReadOnly.ReadOnlySBC").map(|(verdict, _)| *verdict);
    assert_eq!(verdict, Some(Verdict::Passed), "{output:?}");
}

/// Promise: iscsi-qemu.
#[test]
fn qemu_reads_back_what_it_wrote_zeroed_and_discarded() {
    let directory = TempDir::new().unwrap();
    let mut config = file_config("file", &directory.path().join("volume"), Some(8 * MIB));
    config.start_bytes = 8 * MIB;
    let volumes = vec![(memory("memory", 8 * MIB, 0), None), (Volume::open(config).unwrap(), None)];
    let portal = Portal::new(profile(), volumes);
    if !has_qemu(&portal, "memory") {
        return;
    }
    for volume in ["memory", "file"] {
        let commands = [
            "write -P 0x11 0 1M",
            "write -f -P 0x22 1M 64k",
            "aio_write -P 0x33 2M 2M",
            "aio_flush",
            "write -z 128k 128k",
            "discard 3M 512k",
            "flush",
            "read -P 0x11 0 128k",
            "read -P 0 128k 128k",
            "read -P 0x11 256k 768k",
            "read -P 0x22 1M 64k",
            "read -P 0x33 2M 1M",
            "read -P 0x33 3584k 512k",
            "read -P 0 4M 4M",
        ];
        let url = portal.url(volume);
        let arguments = commands.iter().flat_map(|command| ["-c", command]);
        let printed =
            succeed("qemu-io", &["-f", "raw"].into_iter().chain(arguments).chain([&*url]).collect::<Vec<_>>());
        assert!(!printed.contains("failed"), "{volume}: {printed}");
    }
}

/// Promise: iscsi-qemu.
#[test]
fn qemu_img_converts_an_image_there_and_back() {
    let portal = Portal::new(profile(), vec![(memory("memory", 24 * MIB, 0), None)]);
    if !has_qemu(&portal, "memory") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let mut random = plimsoll_testkit::Random(43);
    let content: Vec<u8> =
        (0..24 * MIB).map(|at| if at >> 16 & 3 == 0 { 0 } else { random.below(256) as u8 }).collect();
    let (image, back) = (directory.path().join("image.raw"), directory.path().join("back.raw"));
    std::fs::write(&image, &content).unwrap();
    let (image, back, url) = (image.to_str().unwrap(), back.to_str().unwrap(), portal.url("memory"));
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", "-W", "-m", "8", &url, back]);
    assert!(std::fs::read(back).unwrap() == content, "what came back is not what was sent");
}

/// Promise: iscsi-secret.
#[test]
fn only_an_initiator_with_the_secret_gets_in_and_all_see_names() {
    if !is_installed("iscsi-inq") || !is_installed("iscsi-ls") {
        return;
    }
    let initiator = Credentials { user: "alice".into(), secret: "correct-horse-battery".into() };
    let volumes = vec![(memory("kept", MIB, 0), Some(Chap { initiator, target: None }))];
    let portal = Portal::new(profile(), volumes);
    let url = |credentials: &str| format!("iscsi://{credentials}{}/{}/0", portal.address(), target_name("kept"));
    let printed = succeed("iscsi-inq", &[&url("alice%correct-horse-battery@")]);
    assert!(printed.contains("PLIMSOLL"), "{printed}");
    for wrong in ["", "alice%correct-horse-batters@", "bob%correct-horse-battery@"] {
        assert!(!run("iscsi-inq", &[&url(wrong)]).status.success(), "{wrong:?} got in");
    }
    let listed = succeed("iscsi-ls", &[&format!("iscsi://{}", portal.address())]);
    assert!(listed.contains(&target_name("kept")), "{listed}");
}

/// Planted break that was seen red: the target answers with the initiator's secret.
/// Promise: iscsi-own-secret.
#[test]
fn an_initiator_goes_away_from_a_target_that_does_not_know_its_own_secret() {
    if !is_installed("iscsi-inq") {
        return;
    }
    let of = |user: &str, secret: &str| Credentials { user: user.into(), secret: secret.into() };
    let chap =
        Chap { initiator: of("alice", "correct-horse-battery"), target: Some(of("store", "staple-of-the-target")) };
    let portal = Portal::new(profile(), vec![(memory("kept", MIB, 0), Some(chap))]);
    let asks = |user: &str, secret: &str| {
        let (address, name) = (portal.address(), target_name("kept"));
        let of_target = format!("target_user={user}&target_password={secret}");
        run("iscsi-inq", &[&format!("iscsi://alice%correct-horse-battery@{address}/{name}/0?{of_target}")])
    };
    let right = asks("store", "staple-of-the-target");
    assert!(String::from_utf8_lossy(&right.stdout).contains("PLIMSOLL"), "{right:?}");
    for (user, secret) in [("store", "staple-of-another-one"), ("shop", "staple-of-the-target")] {
        let wrong = asks(user, secret);
        assert!(!wrong.status.success(), "{user} {secret}: {wrong:?}");
    }
}
