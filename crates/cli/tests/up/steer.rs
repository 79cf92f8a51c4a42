//! `plimsoll agent --wdt`: cgroups that read a loop device past the page cache, and the limits that they are given.
//! Root and a controller of block I/O only, of either version; the format of version 2 is tried everywhere, on files
//! that look like its.
//!
//! Planted breaks that turned a test red: limits that are not put back at the end; a note that is not read; equal
//! weights for all; a limit above the one that the administrator had set; cgroups that come later not taken up.

use crate::agent::do_it;
use crate::support::{Site, text};
use crate::tenants::{comes, wait_until};
use rustix::process::Signal;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MB: u64 = 1_000_000;

/// A cgroup's limit: its files in versions 1 and 2, and what stands before the number in them.
struct Kind {
    files: [&'static str; 2],
    keys: [&'static str; 2],
}

/// Processes of a group that read at once.
const READERS: usize = 4;
const READ: Kind = Kind { files: ["blkio.throttle.read_bps_device", "io.max"], keys: ["", "rbps="] };
const WRITE: Kind = Kind { files: ["blkio.throttle.write_bps_device", "io.max"], keys: ["", "wbps="] };

/// Where block I/O is controlled, and whether by version 1 (0) or 2 (1); or why it cannot be tried.
fn controller() -> Result<(PathBuf, usize), &'static str> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let has = |text: &str, at: char, word: &str| text.trim().split(at).any(|one| one == word);
    let first = mounts.iter().find(|words| words[2] == "cgroup" && has(words[3], ',', "blkio"));
    let is_on = |folder: &str| {
        fs::read_to_string(Path::new(folder).join("cgroup.subtree_control")).is_ok_and(|text| has(&text, ' ', "io"))
    };
    let second = mounts.iter().find(|words| words[2] == "cgroup2" && is_on(words[1]));
    match (first, second) {
        _ if !rustix::process::geteuid().is_root() => Err("takes root"),
        _ if !Path::new("/dev/loop-control").exists() => Err("/dev/loop-control is missing"),
        (Some(words), _) => Ok((words[1].into(), 0)),
        (_, Some(words)) => Ok((words[1].into(), 1)),
        _ => Err("neither cgroups' blkio controller is mounted nor their io controller on (cgroup.subtree_control)"),
    }
}

/// A loop device on a file, and a cgroup of our own for the containers. Gone with all processes in it when dropped.
struct Rig {
    site: Site,
    device: String,
    number: String,
    controller: PathBuf,
    version: usize,
    /// Below the controller.
    parent: String,
    readers: RefCell<Vec<Child>>,
}

impl Rig {
    fn new(name: &str) -> Option<Rig> {
        let (controller, version) = match controller() {
            Ok(found) => found,
            Err(why) => {
                println!("not run: {why}");
                return None;
            }
        };
        let parent = format!("plimsoll-test-{}-{name}", std::process::id());
        fs::create_dir(controller.join(&parent)).unwrap();
        if version == 1 {
            fs::write(controller.join(&parent).join("cgroup.subtree_control"), "+io").unwrap();
        }
        let site = Site::new("");
        fs::File::create(site.path("image")).unwrap().set_len(64 << 20).unwrap();
        do_it(&site, "losetup --find --show image > device");
        let device = fs::read_to_string(site.path("device")).unwrap().trim().to_owned();
        let number = fs::read_to_string(format!("/sys/block/{}/dev", &device[5..])).unwrap().trim().to_owned();
        Some(Rig { site, device, number, controller, version, parent, readers: RefCell::default() })
    }

    fn group(&self, name: &str) -> PathBuf {
        self.controller.join(&self.parent).join(name)
    }

    fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    fn make(&self, name: &str) {
        fs::create_dir(self.group(name)).unwrap();
    }

    /// Processes in the group read the disk, again and again. There are several, since one waits for each of its reads:
    /// alone it may be far from what its weight brings on a busy machine, and then it does not ask for its share.
    fn start_reading(&self, name: &str) {
        let script = format!(
            "echo $$ > {}/cgroup.procs; for _ in {}; do while :; do dd if={} of=/dev/null bs=64k iflag=direct status=none; done & done; wait",
            self.group(name).display(),
            "r ".repeat(READERS),
            self.device
        );
        let mut command = Command::new("sh");
        // A group of its own, so that dd ends with it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let reader = command.args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap();
        self.readers.borrow_mut().push(reader);
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let fixed = ["agent", "--wdt", "--mount", &self.device, "--run-directory", "state"];
        fixed.iter().chain(more).map(|&argument| argument.to_owned()).collect()
    }

    fn limit(&self, name: &str, kind: Kind) -> Option<u64> {
        let text = fs::read_to_string(self.group(name).join(kind.files[self.version])).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", self.number)))?;
        line.split(' ').find_map(|word| word.strip_prefix(kind.keys[self.version])?.parse().ok())
    }

    /// As the administrator does.
    fn set_limit(&self, name: &str, kind: Kind, bytes: u64) {
        let text = format!("{} {}{bytes}", self.number, kind.keys[self.version]);
        fs::write(self.group(name).join(kind.files[self.version]), text).unwrap();
    }

    /// Waits until a may read four times as much as b, and answers with what a may. What the kernel's throttle lets
    /// through beyond a cap is owed, and the next cap is lower for it: on a busy machine ratios differ by some per cent
    /// in each second. How exact they are over ten seconds is for the steward's own tests.
    fn wait_for_shares(&self) -> u64 {
        let mut seen = Vec::new();
        let is_so = comes(|| {
            let limits = (self.limit("a", READ), self.limit("b", READ));
            if seen.last() != Some(&limits) {
                seen.push(limits);
            }
            matches!(limits, (Some(a), Some(b)) if (3.5..4.5).contains(&(a as f64 / b as f64)))
        });
        assert!(is_so, "never a limit of a of four times that of b; {}", self.state(&seen));
        seen.last().expect("they were looked at").0.expect("a has one")
    }

    /// Why limits may be as they are.
    fn state(&self, seen: &[(Option<u64>, Option<u64>)]) -> String {
        let of = |name: &str| {
            let read = |file: &str| fs::read_to_string(self.group(name).join(file)).unwrap_or_default();
            let counters = ["blkio.throttle.io_service_bytes", "io.stat"].map(read).concat();
            let mine: Vec<&str> = counters.lines().filter(|line| line.starts_with(&self.number)).collect();
            format!("{name}: processes {:?}, {mine:?}", read("cgroup.procs").lines().collect::<Vec<_>>())
        };
        format!("{}; {}; the last limits: {:?}", of("a"), of("b"), &seen[seen.len().saturating_sub(20)..])
    }

    fn refused(&self, more: &[&str]) -> (Option<i32>, String) {
        let arguments = self.arguments(more);
        let output = self.site.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
        (output.status.code(), text(&output.stderr))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for reader in self.readers.get_mut() {
            let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(reader), Signal::KILL);
            let _ = reader.wait();
        }
        let folder = self.controller.join(&self.parent);
        let groups: Vec<PathBuf> = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).collect();
        for group in groups.into_iter().filter(|path| path.is_dir()).chain([folder]) {
            // A killed reader may be in the group for a moment yet.
            let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let is_removed = (0..500).any(|_| {
                let _ = rustix::thread::nanosleep(&pause);
                fs::remove_dir(&group).is_ok()
            });
            assert!(is_removed || std::thread::panicking(), "{} is left", group.display());
        }
        do_it(&self.site, &format!("losetup --detach {}", self.device));
    }
}

fn start<'rig>(rig: &'rig Rig, more: &[&str]) -> crate::support::Daemon<'rig> {
    let arguments = rig.arguments(more);
    rig.site.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Promise: tenants-steer.
#[test]
fn cgroups_are_limited_as_their_weights_and_limits_are_put_back() {
    let Some(rig) = Rig::new("shares") else { return };
    ["a", "b"].iter().for_each(|name| rig.make(name));
    // The administrator's own: what is lower holds, and all of it is there again afterwards.
    rig.set_limit("a", WRITE, 5 * MB);
    let (a, b) = (format!("{}=400", rig.named("a")), format!("{}=100", rig.named("b")));
    let weights = ["--weight", &a, "--weight", &b];
    let daemon = start(&rig, &weights);
    let said = daemon.served.join("\n");
    assert!(said.contains("by weight (wdt)") && said.contains(&format!("{}: weight 400", rig.named("a"))), "{said}");
    assert_eq!((rig.limit("a", READ), rig.limit("b", READ)), (None, None), "nobody who has not read anything");
    rig.start_reading("a");
    rig.start_reading("b");
    let read = rig.wait_for_shares();
    assert!((MB..100_000 * MB).contains(&read), "{read}");
    assert!(rig.limit("a", WRITE).is_some_and(|limit| limit <= 5 * MB), "the lower one holds");
    let (code, message) = rig.refused(&weights);
    assert_eq!(
        (code, message.as_str()),
        (Some(1), &*format!("another agent already sets the limits on {}\n", rig.number))
    );
    let log = daemon.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    let put_back = |rig: &Rig| {
        let limits = ["a", "b"].map(|name| [READ, WRITE].map(|kind| rig.limit(name, kind)));
        assert_eq!(limits, [[None, Some(5 * MB)], [None, None]]);
    };
    put_back(&rig);
    // Killed, it leaves them; the next start says so and puts them back first.
    let daemon = start(&rig, &weights);
    rig.wait_for_shares();
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(rig.limit("a", READ).is_some() && rig.limit("b", READ).is_some());
    let daemon = start(&rig, &weights);
    let said = daemon.served.join("\n");
    for name in ["a", "b"] {
        assert!(
            said.contains(&format!("recovered from a predecessor: the limits of {}", rig.group(name).display())),
            "{said}"
        );
    }
    daemon.stop();
    put_back(&rig);
    let left: Vec<_> = fs::read_dir(rig.site.path("state")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Promise: tenants-steer.
#[test]
fn containers_come_and_go() {
    let Some(rig) = Rig::new("come") else { return };
    rig.make("a");
    rig.start_reading("a");
    let (parent, a) = (rig.parent.clone(), format!("{}=400", rig.named("a")));
    let daemon = start(&rig, &["--containers", &parent, "--weight", &a]);
    rig.make("b");
    rig.start_reading("b");
    rig.wait_for_shares();
    let mut reader = rig.readers.borrow_mut().pop().unwrap();
    rustix::process::kill_process_group(rustix::process::Pid::from_child(&reader), Signal::KILL).unwrap();
    reader.wait().unwrap();
    wait_until("b's end", || fs::remove_dir(rig.group("b")).is_ok());
    wait_until("no limit for who is alone", || rig.limit("a", READ).is_none());
    // Another one of the same name has limits of its own again.
    rig.make("b");
    rig.start_reading("b");
    rig.wait_for_shares();
    daemon.stop();
    assert_eq!((rig.limit("a", READ), rig.limit("b", READ)), (None, None));
}

/// Promise: tenants-steer-refused.
#[test]
fn what_is_unknown_is_told_in_a_line() {
    let Some(rig) = Rig::new("unknown") else { return };
    rig.make("a");
    let (a, b) = (format!("{}=400", rig.named("a")), format!("{}=1", rig.named("b")));
    let (code, message) = rig.refused(&["--weight", &a, "--weight", &b]);
    assert_eq!((code, message), (Some(2), format!("{}: there is no such cgroup\n", rig.named("b"))));
    let (code, message) = rig.refused(&["--containers", "plimsoll/none"]);
    assert_eq!((code, message.as_str()), (Some(2), "plimsoll/none: there is no such cgroup\n"));
    let (code, message) = rig.refused(&[]);
    assert_eq!((code, message.lines().count()), (Some(2), 1), "{message}");
    for weight in ["a", "a=0", "a=10001", "a=x", "../a=1"] {
        let (code, message) = rig.refused(&["--weight", weight]);
        assert!(code == Some(2) && message.contains("allowed GROUP=N, N from 1 to 10000"), "{weight}: {message}");
    }
    let output =
        rig.site.command(&["agent", "--wdt", "--mount", "/dev/plimsoll-none", "--weight", &a]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert_eq!(rig.limit("a", READ), None);
}

/// Where there is no controller of version 2, too: files with its names and formats, and counters that grow.
/// Promise: tenants-steer.
#[test]
fn version_2_is_told_in_its_own_files() {
    let Some(rig) = Rig::new("second") else { return };
    let folder = rig.site.path("cgroup");
    for name in ["a", "b"] {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("io.max"), "").unwrap();
        fs::write(folder.join(name).join("io.stat"), "").unwrap();
    }
    let own = format!("{} rbps=max wbps=7 riops=max wiops=max\n", rig.number);
    fs::write(folder.join("b/io.max"), &own).unwrap();
    let daemon = start(&rig, &["--cgroups", "cgroup", "--weight", "a=300", "--weight", "b=100"]);
    // Both read; a writes a third of what it reads.
    let limits = || {
        let of = |name: &str| {
            let text = fs::read_to_string(folder.join(name).join("io.max")).unwrap();
            let line = text.strip_prefix(&format!("{} rbps=", rig.number))?.trim_end().to_owned();
            let (read, write) = line.split_once(" wbps=")?;
            Some((read.parse::<u64>().ok()?, write.parse::<u64>().ok()?))
        };
        Some([of("a")?, of("b")?])
    };
    let mut bytes = 0;
    let mut found = [(0, 0); 2];
    wait_until("limits as the weights", || {
        bytes += MB;
        let line = |read: u64, written: u64| format!("{} rbytes={read} wbytes={written} rios=1 wios=1\n", rig.number);
        // Replaced as a whole: the kernel's file is never seen half.
        let count = |name: &str, line: String| {
            fs::write(folder.join(name).join("new"), line).unwrap();
            fs::rename(folder.join(name).join("new"), folder.join(name).join("io.stat")).unwrap();
        };
        count("a", line(bytes * 3, bytes));
        count("b", line(bytes * 4, 0));
        limits().is_some_and(|limits| {
            found = limits;
            // Three quarters of a's share are reads, all of b's.
            (2.1..2.4).contains(&(limits[0].0 as f64 / limits[1].0 as f64))
        })
    });
    assert!((2.8..3.2).contains(&(found[0].0 as f64 / found[0].1 as f64)), "{found:?}");
    assert_eq!(found[1].1, 7, "the administrator's");
    daemon.stop();
    assert_eq!(fs::read_to_string(folder.join("a/io.max")).unwrap(), format!("{} rbps=max wbps=max\n", rig.number));
    assert_eq!(fs::read_to_string(folder.join("b/io.max")).unwrap(), format!("{} rbps=max wbps=7\n", rig.number));
}
