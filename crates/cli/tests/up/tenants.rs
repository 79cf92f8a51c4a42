//! `plimsoll run`: commands as tenants of a mounted volume. Root and BPF only.
//!
//! Planted break that turned a test red: a command in a process group of its own, which a session leader cannot even
//! have.

use crate::lease::{LeaseWatch, unless_a_lease_runs_out};
use crate::support::{Site, ends_by_itself, text, why_no_mounts};
use plimsoll_gates::words;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

const PATIENCE_LOOKS: u32 = 20_000;

pub fn site() -> Option<Site> {
    if let Some(why) = why_no_mounts() {
        println!("not run: {why}");
        return None;
    }
    let site = Site::new(
        "[device.disk0]\nworst_case = \"1000 runs/s\"\nscheduler = \"split_token\"\n[pool.web]\ndevice = \"disk0\"\n\
         [volume.db]\npool = \"web\"\nsize = \"512MiB\"\nmemory = true\n\
         mount = { path = \"{folder}/mnt\", filesystem = \"ext4\", format = \"if-empty\", tenants = true }\n",
    );
    let path = site.path("plimsoll.toml");
    let configuration = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, configuration.replace("{folder}", site.folder.path().to_str().unwrap())).unwrap();
    Some(site)
}

/// `plimsoll run`, with `options` before the command.
pub fn run(site: &Site, options: &[&str], command: &[&str]) -> Command {
    site.command(&[&["run", "--socket", "state/control.sock"], options, &["--"], command].concat())
}

pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes(is_so), "never came: {what}");
}

/// Whether it is so before patience ends.
pub fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    (0..PATIENCE_LOOKS).any(|_| {
        let _ = rustix::thread::nanosleep(&pause);
        is_so()
    })
}

pub fn accounts(site: &Site) -> Vec<String> {
    let status = site.json(&["status"]);
    let accounts = status["devices"][0]["accounts"].as_array().unwrap();
    accounts.iter().map(|account| account["path"].as_str().unwrap().to_owned()).collect()
}

/// Watches the lease of the daemon's gates, for what is said of the processes that are held there.
pub fn watch_lease(site: &Site) -> LeaseWatch {
    let words = site.memory_directories().into_iter().map(|folder| folder.join(words::FILE_NAME));
    LeaseWatch::of(&words.into_iter().find(|path| path.exists()).expect("the daemon has gates"))
}

/// Starts the daemon, unless this kernel does not let us see causes.
pub fn up(site: &Site) -> Option<crate::support::Daemon<'_>> {
    if cfg!(not(feature = "bpf")) {
        println!("not run: built without BPF");
        return None;
    }
    Some(site.up())
}

#[test]
fn a_command_beyond_its_limit_waits_and_its_session_ends_with_it() {
    unless_a_lease_runs_out(|| {
        let Some(site) = site() else { return };
        let Some(daemon) = up(&site) else { return };
        let lease = watch_lease(&site);
        let mut writer =
            run(&site, &["--limit", "64kB/s"], &["dd", "if=/dev/zero", "of=mnt/b", "bs=64k", "count=1024"]);
        let mut writer = writer.spawn().unwrap();
        wait_until("the command's session", || accounts(&site).iter().any(|path| path == "web/db/dd#2"));
        wait_until("what it wrote", || std::fs::metadata(site.path("mnt/b")).is_ok_and(|file| file.len() > 0));
        // No other process waits with it.
        for n in 0..8 {
            let mut file = File::create(site.path(&format!("mnt/a{n}"))).unwrap();
            file.write_all(&[7; 4096]).unwrap();
            file.sync_all().unwrap();
        }
        assert!(writer.try_wait().unwrap().is_none(), "at its limit it would take a quarter of an hour");
        drop(lease);
        writer.kill().unwrap();
        writer.wait().unwrap();
        wait_until("the end of its session", || !accounts(&site).iter().any(|path| path.starts_with("web/db/dd#")));
        let log = daemon.stop();
        assert!(!log.contains("ERROR"), "{log}");
    });
}

/// Promise: tenants-run-direct.
#[test]
fn a_command_has_its_own_identity_for_its_caller() {
    let Some(site) = site() else { return };
    let Some(daemon) = up(&site) else { return };
    let ended = run(&site, &["--name", "seven"], &["sh", "-c", "echo to stdout; echo to stderr >&2; exit 7"]).output();
    let ended = ended.unwrap();
    assert_eq!((ended.status.code(), text(&ended.stdout).as_str()), (Some(7), "to stdout\n"));
    assert!(text(&ended.stderr).ends_with("to stderr\n"), "{}", text(&ended.stderr));
    let mut sleeping = run(&site, &[], &["sleep", "1000"]).spawn().unwrap();
    wait_until("its session", || accounts(&site).iter().any(|path| path.starts_with("web/db/sleep#")));
    let name = || std::fs::read_to_string(format!("/proc/{}/comm", sleeping.id())).unwrap_or_default();
    wait_until("the command in its place", || name() == "sleep\n");
    let process = rustix::process::Pid::from_child(&sleeping);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(sleeping.wait().unwrap().signal(), Some(15));
    let missing = run(&site, &[], &["no-such-command"]).output().unwrap();
    // As of other wrappers. Not 1, since a command may end with 1 itself.
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("cannot run no-such-command"), "{}", text(&missing.stderr));
    let refused = run(&site, &["--volume", "other"], &["true"]).output().unwrap();
    assert!(
        text(&refused.stderr).contains("volume \"other\" takes no tenants, allowed db"),
        "{}",
        text(&refused.stderr)
    );
    let refused = run(&site, &["--pool", "nobody"], &["true"]).output().unwrap();
    assert!(text(&refused.stderr).contains("there is no pool \"nobody\""), "{}", text(&refused.stderr));
    daemon.stop();
}

/// What the command in a terminal does: says what it sees, and waits for a Ctrl-C.
const IN_TERMINAL: &str = "set -e
test -t 0 && test -t 1 && test -t 2
stty size
trap 'echo interrupted; exit 5' INT
echo ready
while :; do sleep 1; done
";

/// `script` gives `plimsoll run` a terminal, and types into it what it reads.
/// Promise: tenants-run-direct.
#[test]
fn a_command_has_the_terminal_of_its_caller() {
    let Some(site) = site() else { return };
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("not run: script is missing (util-linux)");
        return;
    }
    let Some(daemon) = up(&site) else { return };
    std::fs::write(site.path("in-terminal"), IN_TERMINAL).unwrap();
    let command = run(&site, &["--name", "shell"], &["sh", "in-terminal"]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    // The shell that started the tests in the background may have had Ctrl-C ignored, and a shell traps nothing that
    // was ignored before.
    let mut terminal = Command::new("env");
    terminal.args([
        "--default-signal=INT",
        "script",
        "-qec",
        &format!("stty rows 33 cols 77; exec {}", words.join(" ")),
        "/dev/null",
    ]);
    terminal.current_dir(site.folder.path()).env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    let mut lines = BufReader::new(terminal.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    while !seen.iter().any(|line| line == "ready") {
        let Some(line) = lines.next() else { panic!("the command ended: {seen:?}") };
        seen.push(line.unwrap().trim_end().to_owned());
    }
    assert!(seen.iter().any(|line| line == "33 77"), "{seen:?}");
    let mut keys = terminal.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let has_ended = ends_by_itself(&mut terminal);
    let _ = terminal.kill();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(has_ended && rest.iter().any(|line| line.contains("interrupted")), "{rest:?}");
    assert_eq!(terminal.wait().unwrap().code(), Some(5));
    daemon.stop();
}
