//! A daemon of its own for each test: started with the built command, always ended, and cleaned up after.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

/// How often it is looked whether a process has ended, and what lies between two looks: a minute in all.
const END_LOOKS: u32 = 6000;
const END_LOOK: Duration = Duration::from_millis(10);
/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A folder with a configuration, and the command to use it with.
pub struct Site {
    pub folder: tempfile::TempDir,
    command: PathBuf,
    user: Option<u32>,
}

impl Site {
    /// A folder in which `plimsoll` runs as the user that runs the tests.
    pub fn new(configuration: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let text =
            format!("daemon = {{ state_directory = \"state\", notes_directory = \"notes\" }}\n\n{configuration}");
        std::fs::write(folder.path().join("plimsoll.toml"), text).unwrap();
        Site { folder, command: env!("CARGO_BIN_EXE_plimsoll").into(), user: None }
    }

    /// A folder in which `plimsoll` runs as a user without privileges, also if root runs the tests.
    pub fn of_normal_user(configuration: &str) -> Site {
        let mut site = Site::new(configuration);
        if rustix::process::geteuid().is_root() {
            // The build's folder may be closed to others. Another process copies: a file that is open for writing here
            // would be so in the processes that other tests start, and could not be run.
            let command = site.path("plimsoll");
            assert!(Command::new("cp").args([&site.command, &command]).status().unwrap().success());
            std::os::unix::fs::chown(site.folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            (site.command, site.user) = (command, Some(NOBODY));
        }
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.command);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        as_from_a_terminal(&mut command);
        command
    }

    /// Runs a command of the daemon of this site.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).args(["--socket", "state/control.sock"]).output().unwrap()
    }

    /// Runs a command that must succeed, and answers its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Sends a line to the control socket, and answers the first line that comes.
    pub fn request(&self, line: &str) -> Value {
        let mut socket = std::os::unix::net::UnixStream::connect(self.path("state/control.sock")).unwrap();
        socket.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// Runs `plimsoll up` to its end: for configurations that cannot be served. A daemon that comes up all the same is
    /// ended.
    pub fn up_fails(&self) -> Output {
        self.start_fails(&["up", "plimsoll.toml"])
    }

    /// The same with other arguments.
    pub fn start_fails(&self, arguments: &[&str]) -> Output {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let has_ended = ends_by_itself(&mut child);
        // Of a child that has ended this does nothing.
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(has_ended, "the daemon did not end by itself:\n{stdout}{stderr}");
        assert!(!output.status.success(), "the daemon ended well:\n{stdout}{stderr}");
        output
    }

    /// What daemons of this site keep in memory.
    pub fn memory_directories(&self) -> Vec<PathBuf> {
        let state = self.path("state");
        let words = format!("plimsoll-gates{}-", state.to_string_lossy().replace('/', "-"));
        let memory = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let of_state = std::fs::read_dir(state).into_iter().flatten().flatten();
        let begins = |entry: &std::fs::DirEntry, with: &str| entry.file_name().to_string_lossy().starts_with(with);
        let ours = memory.filter(|entry| begins(entry, &words)).chain(of_state.filter(|entry| begins(entry, "gates-")));
        ours.map(|entry| entry.path()).collect()
    }

    /// Starts the daemon and waits until it serves.
    pub fn up(&self) -> Daemon<'_> {
        self.start(&["up", "plimsoll.toml"])
    }

    /// Starts a daemon with these arguments and waits until it serves.
    pub fn start(&self, arguments: &[&str]) -> Daemon<'_> {
        self.start_command(self.command(arguments))
    }

    /// The same, of a command that becomes the daemon.
    pub fn start_command(&self, mut command: Command) -> Daemon<'_> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut daemon = Daemon { site: self, child, stdout, served: Vec::new() };
        loop {
            let mut line = String::new();
            if daemon.stdout.read_line(&mut line).unwrap() == 0 {
                let (status, log) = daemon.wait();
                panic!("the daemon ended before it served, {status}:\n{log}");
            }
            if line.starts_with("serving;") {
                return daemon;
            }
            daemon.served.push(line.trim_end().to_owned());
        }
    }
}

/// The command does not ignore signals that the tests' process ignores, as what a shell starts in the background does.
fn as_from_a_terminal(command: &mut Command) {
    let listen = || {
        for signal in [libc::SIGINT, libc::SIGHUP] {
            // SAFETY: a system call between fork and exec; no handler is set.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: it takes no lock and no memory.
    unsafe { command.pre_exec(listen) };
}

impl Drop for Site {
    /// Takes away what a daemon of a failed test left attached.
    fn drop(&mut self) {
        let state = self.path("state");
        if rustix::process::geteuid().is_root() && state.exists() {
            match plimsoll_serve::attach::recover(&state) {
                Ok((_, steps)) => steps.iter().for_each(|step| println!("cleaned up: {step}")),
                Err(error) => println!("not cleaned up: {error}"),
            }
            for path in self.memory_directories() {
                println!("cleaned up: {}", path.display());
                let _ = std::fs::remove_dir_all(path);
            }
        }
    }
}

/// A daemon that serves.
pub struct Daemon<'site> {
    site: &'site Site,
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub served: Vec<String>,
}

impl Daemon<'_> {
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; answers how it ended and what it logged.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap(), log)
    }

    /// Whether it ends within a minute.
    pub fn ends_by_itself(&mut self) -> bool {
        ends_by_itself(&mut self.child)
    }

    /// Ends it as systemd does; it must end well.
    pub fn stop(self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let state = self.site.path("state");
        let (status, log) = self.wait();
        assert!(status.success(), "{status}:\n{log}");
        assert!(!state.join("control.sock").exists(), "the control socket is gone");
        log
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process ends within a minute.
pub fn ends_by_itself(child: &mut Child) -> bool {
    (0..END_LOOKS).any(|_| {
        std::thread::park_timeout(END_LOOK);
        child.try_wait().unwrap().is_some()
    })
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Mounts below `folder`, from the kernel's table.
pub fn mounts_below(folder: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let folder = folder.canonicalize().unwrap();
    table.lines().filter(|line| line.contains(folder.to_str().unwrap())).map(str::to_owned).collect()
}

/// Why mounts cannot be tested here, if so.
pub fn why_no_mounts() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("takes root");
    }
    ["/dev/fuse", "/dev/loop-control"].into_iter().find(|device| !Path::new(device).exists())
}

/// A small generator of numbers that look random (xorshift64*, Vigna 2016); the same seed gives the same numbers.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound
    }
}
