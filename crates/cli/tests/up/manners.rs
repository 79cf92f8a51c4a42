//! How a daemon begins and ends beside others: signals that were ignored, other users that were there first, machines
//! that cannot.

use crate::agent::{Disk, site as agent_site, start};
use crate::support::{Site, text, why_no_mounts};
use crate::tenants::{run, wait_until};
use rustix::process::Signal;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const MEMORY: &str = r#"
[device.d]
[pool.p]
device = "d"
[volume.v]
pool = "p"
size = "1MiB"
memory = true
nbd = {}
"#;
/// Two user ids without an account.
const STRANGER: u32 = 65533;
const USER: u32 = 65532;

/// How often a daemon is started until it is seen while it reads its configuration.
const TRIES: u32 = 20;

fn sh(site: &Site, script: &str) -> Command {
    let mut command = site.command(&[]);
    let program = command.get_program().to_owned();
    command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(program).current_dir(site.folder.path());
    command
}

/// Broken on purpose and seen red: SIGHUP is listened for whatever it was before.
/// Promise: daemon-ignored-signal.
#[test]
fn a_daemon_that_nohup_starts_outlives_its_terminal() {
    let site = Site::new(MEMORY);
    let daemon = site.start_command(sh(&site, "trap '' HUP; exec \"$1\" up plimsoll.toml"));
    daemon.signal(Signal::HUP);
    // A daemon that took the SIGHUP would end before it could answer.
    assert!(site.ask(&["status"]).status.success());
    daemon.stop();
}

/// SIGHUP ended the daemon until it had its configuration read again. Planted break that was seen red: it ends the
/// daemon.
/// Promise: daemon-hang-up.
#[test]
fn a_hang_up_has_the_configuration_read_again_and_never_ends_the_daemon() {
    let site = Site::new(MEMORY);
    let daemon = site.up();
    let limit = || site.json(&["pool", "list"])[0]["allocation"]["limit"].clone();
    let write = |text: &str| std::fs::write(site.path("plimsoll.toml"), text).unwrap();
    let before = std::fs::read_to_string(site.path("plimsoll.toml")).unwrap();
    assert!(limit().is_null());
    write(&before.replace("[pool.p]", "[pool.p]\nlimit = \"7MB/s\""));
    daemon.signal(Signal::HUP);
    wait_until("the new limit", || limit() == "7 MB/s");
    write(&before.replace("[pool.p]", "[pool.p]\nlimit = \"9MB/s\"\nweight = 0"));
    daemon.signal(Signal::HUP);
    write(&before.replace("[pool.p]", "[pool.p]\nlimit = \"8MB/s\"").replace("1MiB", "2MiB"));
    // Signals of one kind that wait are one: the last file is read in any case.
    wait_until("the last file", || {
        daemon.signal(Signal::HUP);
        limit() == "8 MB/s"
    });
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.wait();
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains("read again; changed: pool.p.limit; waits for a restart: volume.v.size"), "{log}");
    // The last signals found the file as it was; what waits is named each time.
    assert!(log.contains("read again; changed: pool.p.limit\n"), "{log}");
}

/// A pool leaves the file and comes back with another limit; the daemon has had it all along. Outcome: the limit is
/// taken.
///
/// Red with the code before: "not reloaded: there is a pool "q" already", at each SIGHUP.
#[test]
fn a_pool_that_left_the_file_and_came_back_is_set_and_not_opened_again() {
    let site = Site::new(MEMORY);
    let path = site.path("plimsoll.toml");
    let without = std::fs::read_to_string(&path).unwrap();
    let with =
        |limit: &str| without.replace("[pool.p]", &format!("[pool.q]\ndevice = \"d\"\nlimit = \"{limit}\"\n[pool.p]"));
    std::fs::write(&path, with("7MB/s")).unwrap();
    let daemon = site.up();
    let limit = || {
        let pools = site.json(&["pool", "list"]);
        pools
            .as_array()
            .unwrap()
            .iter()
            .find(|pool| pool["path"] == "q")
            .map(|pool| pool["allocation"]["limit"].clone())
    };
    assert_eq!(limit(), Some("7 MB/s".into()));
    std::fs::write(&path, &without).unwrap();
    daemon.signal(Signal::HUP);
    // Signals of one kind that wait are one: each file is to be read before the next is written.
    let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    let _ = rustix::thread::nanosleep(&pause);
    std::fs::write(&path, with("8MB/s")).unwrap();
    wait_until("the limit of the pool that came back", || {
        daemon.signal(Signal::HUP);
        limit() == Some("8 MB/s".into())
    });
    let log = daemon.stop();
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn a_hang_up_that_finds_the_same_file_says_that_nothing_changed() {
    let site = Site::new(MEMORY);
    let daemon = site.up();
    daemon.signal(Signal::HUP);
    assert!(site.ask(&["status"]).status.success());
    // A daemon that ends hears its signals in their order.
    let log = daemon.stop();
    assert!(log.contains("plimsoll.toml: read again: nothing changed"), "{log}");
}

/// Whether a process has handlers for SIGHUP and for SIGTERM.
fn handlers(process: u32) -> (bool, bool) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map_or("0", str::trim);
    let caught = u64::from_str_radix(caught, 16).unwrap();
    let has = |signal: Signal| caught & 1 << (signal.as_raw() - 1) != 0;
    (has(Signal::HUP), has(Signal::TERM))
}

/// A configuration so long that reading it takes a while. Outcome: the handler stands before the file is read, and a
/// SIGHUP meanwhile has the file read again instead of ending the daemon.
///
/// Planted break, seen red: the handler is set when the file has been read.
/// Promise: daemon-hang-up.
#[test]
fn a_hang_up_while_a_daemon_begins_does_not_end_it() {
    let site =
        Site::new(&format!("{MEMORY}{}", "# a comment that says nothing and takes a while to read\n".repeat(60_000)));
    let is_hit = (0..TRIES).any(|_| {
        let mut child =
            site.command(&["up", "plimsoll.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        // What listens for both has SIGTERM first.
        let is_early = loop {
            match handlers(child.id()) {
                (true, false) => break true,
                (false, false) if child.try_wait().unwrap().is_none() => {}
                _ => break false,
            }
        };
        if is_early {
            rustix::process::kill_process(process, Signal::HUP).unwrap();
        }
        wait_until("the daemon serves or has ended", || {
            child.try_wait().unwrap().is_some() || site.ask(&["status"]).status.success()
        });
        let _ = rustix::process::kill_process(process, Signal::TERM);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
        is_early
    });
    assert!(is_hit, "no handler was seen before the file was read");
}

/// Planted break that was seen red: nothing is locked.
/// Promise: tenants-one-agent.
#[test]
fn a_second_agent_of_a_disk_is_refused_whatever_its_directory_and_the_first_goes_on() {
    let Some(site) = agent_site() else { return };
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    let second = site.start_fails(&["agent", "--mount", "disk", "--run-directory", "other"]);
    let said = text(&second.stderr);
    assert!(said.contains("another agent already has the tenants of 7:"), "{said}");
    assert!(run(&site, &[], &["true"]).status().unwrap().success(), "the first one's tenants");
    daemon.stop();
    let daemon = site.start(&["agent", "--mount", "disk", "--run-directory", "other"]);
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
}

/// As of `plimsoll up 2>log` on a disk that is full, or with a pipe that has no reader any more. Broken on purpose and
/// seen red, as it was: the log says on stderr that it cannot write to stderr, and the thread that logged ends with
/// that; a refusal is printed whatever comes of it.
/// Promise: daemon-full-log.
#[test]
fn a_daemon_whose_log_cannot_be_written_goes_on() {
    let site = Site::new(MEMORY);
    let daemon = site.start_command(sh(&site, "exec \"$1\" --log trace up plimsoll.toml 2>/dev/full"));
    assert!(site.ask(&["pool", "set", "p", "--weight", "5"]).status.success());
    assert!(site.ask(&["status"]).status.success(), "the engine answers");
    daemon.stop();
    let refused = sh(&site, "\"$1\" check missing.toml 2>/dev/full").status().unwrap();
    assert_eq!(refused.code(), Some(2));
}

/// Broken on purpose and seen red: any user that has made the directory may have it.
/// Promise: daemon-prepared-path.
#[test]
fn a_state_directory_of_another_user_is_refused_and_left_as_it_is() {
    let site = Site::new(MEMORY);
    let state = site.path("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(site.path("precious"), "precious").unwrap();
    symlink(site.path("precious"), state.join("lock")).unwrap();
    let said = |output: Output| text(&output.stderr);
    let open_to_all = said(site.up_fails());
    assert!(open_to_all.contains("state cannot be used: others may write to it (mode 0777)"), "{open_to_all}");
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).unwrap();
    let linked = said(site.up_fails());
    assert!(linked.contains("state/lock: Too many levels of symbolic links"), "{linked}");
    assert_eq!(std::fs::read_to_string(site.path("precious")).unwrap(), "precious");
    if !rustix::process::geteuid().is_root() {
        return println!("not run: what is another user's needs root");
    }
    chown(&state, Some(STRANGER), None).unwrap();
    let foreign = said(site.up_fails());
    assert!(foreign.contains(&format!("it belongs to user {STRANGER}, and this is user 0")), "{foreign}");
}

/// Tenants of other users find their gates there.
#[test]
fn a_state_directory_can_be_entered_whatever_the_mask() {
    let site = Site::new(MEMORY);
    let daemon = site.start_command(sh(&site, "umask 077; exec \"$1\" up plimsoll.toml"));
    let mode = std::fs::metadata(site.path("state")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    daemon.stop();
}

/// The daemon that answers says what commands are started with. Broken on purpose and seen red: a daemon of any user
/// is asked.
/// Promise: daemon-own-user.
#[test]
fn commands_ask_daemons_of_root_and_their_own_user_only_unless_told_to() {
    if !rustix::process::geteuid().is_root() {
        return println!("not run: other users need root");
    }
    let site = Site::of_normal_user(MEMORY);
    // The stranger runs a daemon at the place of user 65532's daemon.
    std::fs::set_permissions(site.folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let place = format!("plimsoll-{USER}");
    let configuration = std::fs::read_to_string(site.path("plimsoll.toml")).unwrap();
    let moved = configuration.replace("\"state\"", &format!("{place:?}"));
    std::fs::write(site.path("plimsoll.toml"), moved).unwrap();
    let mut command = site.command(&["up", "plimsoll.toml"]);
    let _daemon = site.start_command({
        command.uid(STRANGER).gid(STRANGER);
        command
    });
    // The stranger lets other users ask the daemon.
    std::fs::set_permissions(site.path(&place).join("control.sock"), PermissionsExt::from_mode(0o777)).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        command.uid(USER).gid(USER).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", site.folder.path());
        command.output().unwrap()
    };
    let refused = ask(&["status"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let expected = format!("is served by user {STRANGER}, allowed are root and user {USER}");
    assert!(text(&refused.stderr).contains(&expected), "{refused:?}");
}

/// Broken on purpose and seen red: the volume is formatted first.
/// Promise: tenants-no-causes.
#[test]
fn where_causes_cannot_be_known_a_volume_with_tenants_is_not_run_and_not_formatted() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let mount = r#"mount = { path = "mnt", filesystem = "ext4", format = "if-empty", tenants = true }"#;
    let file = MEMORY.replace("memory = true", "file = \"v\"").replace("1MiB", "64MiB").replace("nbd = {}", mount);
    let site = Site::new(&file);
    std::fs::write(site.path("v"), vec![0; 64 << 20]).unwrap();
    std::fs::create_dir(site.path("mnt")).unwrap();
    let configuration = std::fs::read_to_string(site.path("plimsoll.toml")).unwrap();
    let configuration = configuration.replace("\"mnt\"", &format!("{:?}", site.path("mnt")));
    std::fs::write(site.path("plimsoll.toml"), configuration).unwrap();
    // A container has process numbers of its own.
    let output = sh(&site, "exec unshare --pid --fork --mount-proc \"$1\" up plimsoll.toml").output().unwrap();
    if text(&output.stderr).contains("unshare") {
        return println!("not run: {}", text(&output.stderr));
    }
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("not run: ") && said.contains("plimsoll.toml:") && said.contains("volume.v.mount: "),
        "{said}"
    );
    assert!(std::fs::read(site.path("v")).unwrap().iter().all(|&byte| byte == 0));
}

/// Broken on purpose and seen red: every refusal ends with 1.
/// Promise: tenants-refused.
#[test]
fn what_a_tenant_cannot_be_promised_is_refused_and_its_command_does_not_start() {
    let Some(site) = agent_site() else { return };
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    for (arguments, expected) in [
        (["--reserve", "30%"], "which split_token does not keep on observed disks"),
        (["--limit", "30%"], "allowed only with device.disk.worst_case"),
        (["--pool", "nosuch"], "nosuch"),
        (["--volume", "nosuch"], "volume \"nosuch\" takes no tenants, allowed disk"),
    ] {
        let output = run(&site, &arguments, &["touch", "started"]).output().unwrap();
        // As other wrappers end: 2 may be the command's own.
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
        assert!(!site.path("started").exists());
    }
    daemon.stop();
}

/// As `env`, `nohup` and `timeout` end. Planted break that was seen red: every failure of its own is 1.
/// Promise: tenants-run-exit-code.
#[test]
fn run_ends_as_other_wrappers_do() {
    let code = |site: &Site, command: &[&str]| run(site, &[], command).output().unwrap().status.code();
    let Some(site) = agent_site() else { return };
    let wrong = site.command(&["run", "--nosuch", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125), "an option that there is not");
    assert_eq!(site.command(&["status", "--nosuch"]).output().unwrap().status.code(), Some(2), "no wrapper");
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    std::fs::write(site.path("text"), "no program").unwrap();
    assert_eq!(code(&site, &["./text"]), Some(126), "cannot be executed");
    assert_eq!(code(&site, &["plimsoll-no-such-program"]), Some(127), "is not there");
    assert_eq!(code(&site, &["sh", "-c", "exit 7"]), Some(7), "the command's own");
    daemon.stop();
    assert_eq!(code(&site, &["true"]), Some(125), "no agent answers");
}

/// A command runs with `--verbose`, then where no daemon is. Outcome: stderr names what was joined, and what is waited
/// for; stdout is the command's alone.
///
/// Planted breaks: nothing is said of what was joined; the wait is silent.
#[test]
fn run_says_what_it_has_joined_and_what_it_waits_for() {
    let site = Site::new("");
    let waited = site.command(&["run", "--socket", "none.sock", "--", "true"]).output().unwrap();
    let said = text(&waited.stderr);
    assert!(
        said.starts_with("plimsoll run: waiting up to 5 s for a daemon at none.sock\nno daemon answers at "),
        "{said}"
    );
    assert_eq!((waited.status.code(), text(&waited.stdout)), (Some(125), String::new()));
    let Some(site) = agent_site() else { return };
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    let output = run(&site, &["--verbose"], &["echo", "hi"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.starts_with("plimsoll run: joined ") && said.contains(" as ") && said.contains("echo"), "{said}");
    assert_eq!((said.lines().count(), text(&output.stdout)), (1, "hi\n".to_owned()));
    assert_eq!(text(&run(&site, &[], &["echo", "hi"]).output().unwrap().stderr), "");
    daemon.stop();
}

/// Broken on purpose and seen red: what the filter cannot is said of the program; arguments have to be texts.
/// Promise: tenants-refused.
#[test]
fn a_command_behind_a_filter_cannot_start_another_and_its_arguments_may_be_anything() {
    use std::os::unix::ffi::OsStrExt;
    let Some(site) = agent_site() else { return };
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    let mut inner = run(&site, &[], &["true"]);
    let (program, arguments) = (inner.get_program().to_owned(), inner.get_args().map(ToOwned::to_owned));
    let arguments: Vec<_> = arguments.collect();
    inner = run(&site, &[], &[]);
    let nested = inner.arg(&program).args(arguments).output().unwrap();
    // A failure of its own: the command has not started.
    assert_eq!(nested.status.code(), Some(125), "{nested:?}");
    let said = text(&nested.stderr);
    assert!(
        said.starts_with("cannot put the command behind a filter: ") && said.contains("Linux allows one"),
        "{said}"
    );
    let odd = std::ffi::OsStr::from_bytes(b"disk/caf\xe9");
    let output = run(&site, &[], &["touch"]).arg(odd).output().unwrap();
    assert!(output.status.success() && site.folder.path().join(odd).exists(), "{output:?}");
    daemon.stop();
}

/// Directories in memory are named after state directories, and two may have one name. Broken on purpose and seen red:
/// the second agent takes it away.
/// Promise: tenants-second-agent.
#[test]
fn a_second_agent_leaves_the_gates_to_the_first() {
    let Some(site) = agent_site() else { return };
    // Two disks, since a disk has one agent, of one name.
    let _disks = ["disk", "other/disk"].map(|folder| Disk::at(&site, folder, "ext4"));
    std::fs::create_dir(site.path("state")).unwrap();
    let start_in = |disk, directory| ["agent", "--mount", disk, "--run-directory", directory];
    let daemon = site.start(&start_in("disk", "state/b"));
    let gates = PathBuf::from(format!(
        "/dev/shm/plimsoll-gates{}-disk",
        site.path("state/b").canonicalize().unwrap().to_string_lossy().replace('/', "-")
    ));
    if !gates.exists() {
        return println!("not run: temporary files are in memory, so gates are in the state directory");
    }
    let second = site.start_fails(&start_in("other/disk", "state-b"));
    assert!(text(&second.stderr).contains("gate-words belongs to an agent that is running"), "{second:?}");
    assert!(gates.join("gate-words").exists());
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.wait();
    assert!(status.success() && !gates.exists(), "{log}");
}
