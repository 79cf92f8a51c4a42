//! Listeners that are handed over: by any process at the socket, and by real runtimes for real containers.

mod support;

use plimsoll_core::{Span, Time};
use plimsoll_gates::{Filter, OciSocket};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use support::agent::Agent;
use support::runtime::{Cgroups, Runtime};
use support::{Plan, Rig, Tenant, wait_until};

const ACCOUNT: u32 = 7;
const STATE: &str =
    r#"{"ociVersion":"1.0.2","fds":["seccompFd"],"pid":42,"metadata":"7","state":{"id":"c1","pid":42}}"#;

#[test]
#[ignore = "the agent of the other tests"]
fn agent_process() {
    support::agent::run();
}

struct Peer {
    socket: OciSocket,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Peer {
    fn new() -> Peer {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oci.sock");
        Peer { socket: OciSocket::listen(&path, 0o600).unwrap(), path, _folder: folder }
    }

    /// Sends text with so many descriptors, all of one file.
    fn send(&self, text: &[u8], descriptors: usize) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        let file = File::create(self.sent()).unwrap();
        let files = vec![file.as_fd(); descriptors];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if descriptors > 0 {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        sendmsg(&stream, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL).unwrap();
        stream
    }

    fn sent(&self) -> PathBuf {
        self.path.with_extension("sent")
    }

    /// Descriptors of that file that are open.
    fn open(&self) -> usize {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().map_while(Result::ok);
        entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == self.sent())).count()
    }

    fn outcome(&mut self, now: Time) -> String {
        match self.socket.accept(now).unwrap().pop() {
            None => "nothing yet".to_owned(),
            Some(Ok(arrival)) => format!("{} of {}", arrival.state.state.id, arrival.state.metadata),
            Some(Err(error)) => error.to_string(),
        }
    }
}

#[test]
fn a_state_arrives_whole_or_in_pieces_and_is_acknowledged() {
    let mut peer = Peer::new();
    let mut stream = peer.send(&STATE.as_bytes()[..10], 1);
    assert_eq!(peer.outcome(Time::ZERO), "nothing yet");
    // The end of the text is the end: runc leaves the connection open.
    stream.write_all(&STATE.as_bytes()[10..]).unwrap();
    let arrival = peer.socket.accept(Time::ZERO).unwrap().pop().unwrap().unwrap();
    assert_eq!((arrival.state.pid, &*arrival.state.state.id), (42, "c1"));
    arrival.answer.taken_over();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "ok\n");
}

/// Promise: gates-floods.
#[test]
fn what_cannot_be_taken_is_refused_with_the_reason_and_disturbs_no_other() {
    let mut peer = Peer::new();
    let mut refusal = |text: &[u8], descriptors| {
        drop(peer.send(text, descriptors));
        drop(peer.send(STATE.as_bytes(), 1));
        let outcomes = peer.socket.accept(Time::ZERO).unwrap();
        let [refused, taken] = <[_; 2]>::try_from(outcomes).ok().unwrap();
        assert_eq!(taken.unwrap().state.state.id, "c1");
        refused.err().unwrap().to_string()
    };
    assert_eq!(refusal(b"{", 1), "not a container process state: EOF while parsing an object at line 1 column 1");
    assert_eq!(refusal(STATE.as_bytes(), 0), "0 descriptors were sent, and the state names 1");
    assert_eq!(refusal(STATE.as_bytes(), 3), "3 descriptors were sent, and the state names 1");
    assert_eq!(
        refusal(&STATE.replace("seccompFd", "x").into_bytes(), 1),
        "0 of the descriptors are called seccompFd, expected 1"
    );
    assert_eq!(refusal(&[b' '; 70_000], 1), "a state of more than 65536 bytes");
    let crowd = refusal(STATE.as_bytes(), 30);
    assert!(crowd.ends_with(" descriptors, allowed are 8"), "{crowd}");
    assert_eq!(peer.open(), 0, "descriptors of what was refused stay open");
}

/// Each piece is a look at the whole text.
#[test]
fn a_state_that_drips_is_refused() {
    let mut peer = Peer::new();
    let mut stream = peer.send(b"{", 1);
    for piece in 1..=64 {
        assert_eq!(peer.outcome(Time::ZERO), "nothing yet", "{piece}");
        stream.write_all(b" ").unwrap();
    }
    assert_eq!(peer.outcome(Time::ZERO), "a state in more than 64 pieces");
}

/// Promise: gates-floods.
#[test]
fn a_silent_client_is_sent_away_and_keeps_no_other_out() {
    let mut peer = Peer::new();
    let silent: Vec<_> = (0..16).map(|_| UnixStream::connect(&peer.path).unwrap()).collect();
    drop(peer.send(STATE.as_bytes(), 1));
    assert_eq!(peer.outcome(Time::ZERO), "nothing yet");
    let late = Time::ZERO + Span::from_secs(5);
    assert_eq!(peer.outcome(late), "the state was not complete after 5 s");
    assert_eq!(peer.outcome(late), "c1 of 7");
    drop(silent);
}

/// Starts a tenant of two threads in a container behind a profile that is made for a listener, and waits until it runs.
fn contained(rig: &Rig, runtime: &Runtime, what: &str, profile: impl FnOnce(&Path) -> Value) -> Tenant {
    let pid_file = runtime.bundle.path().join("pid");
    let mut plan = Plan::of(runtime.run(&pid_file), rig.disk.path(), what, 2);
    // The tenant's arguments become the container's; the runtime gets its own.
    let arguments: Vec<_> = plan.command.get_args().map(|argument| argument.to_str().unwrap().to_owned()).collect();
    let program = support::compile(&format!("tenant-{}-{what}", runtime.program), &["-static", "-pthread"]);
    let program = program.to_str().unwrap().to_owned();
    let tenant: Vec<_> = std::iter::once(program).chain(arguments[arguments.len() - 4..].to_vec()).collect();
    let socket = rig.run.path().join(support::agent::SOCKET_NAME);
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR"));
    runtime.describe(&tenant, &[shared], &profile(&socket));
    plan.command = runtime.run(&pid_file);
    plan.command.process_group(0);
    let mut tenant = plan.start(&plimsoll_gates::Launch::new());
    wait_until("the container runs", || {
        assert_eq!(tenant.child.try_wait().unwrap(), None, "the runtime has ended");
        // The runtime may write the process id only when the container runs already.
        pid_file.exists() && tenant.returned().iter().all(|&returned| returned > 0)
    });
    tenant.group = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    tenant
}

fn a_container_is_gated_and_outlives_the_agent(runtime: Option<Runtime>) {
    let Some(runtime) = runtime else { return };
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let profile = |socket: &Path| Filter::default().oci_profile(socket, &ACCOUNT.to_string());
    let mut tenant = contained(&rig, &runtime, "fsync", profile);
    agent.has_listeners(1);
    agent.hold(&[ACCOUNT]);
    tenant.waits_in(libc::SYS_fsync, 2);
    agent.kill();
    tenant.goes_on();
    let agent = Agent::start(&rig);
    agent.has_listeners(1);
    agent.hold(&[ACCOUNT]);
    tenant.waits_in(libc::SYS_fsync, 2);
    agent.hold(&[]);
    tenant.goes_on();
}

/// What a static program and a runtime on its way to it need, and nothing that makes a directory; to rename is refused
/// apart.
fn own_profile() -> Value {
    let allowed = "read write pread64 pwrite64 lseek open openat close close_range fstat newfstatat statx statfs fstatfs access faccessat \
         faccessat2 readlink readlinkat getdents64 getcwd chdir fchdir dup dup2 dup3 pipe2 fcntl ioctl mmap munmap mremap mprotect madvise \
         brk rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack kill tkill tgkill restart_syscall futex sched_yield sched_getaffinity \
         nanosleep clock_nanosleep clock_gettime select poll ppoll epoll_create1 epoll_ctl epoll_pwait eventfd2 socketpair sendmsg recvmsg \
         getpid getppid gettid getuid geteuid getgid getegid setuid setgid setgroups setresuid setresgid capget capset prctl arch_prctl \
         prlimit64 umask uname getrandom rseq set_tid_address set_robust_list clone clone3 vfork wait4 waitid execve execveat exit exit_group \
         fsync fdatasync ftruncate io_uring_setup";
    let allowed: Vec<_> = allowed.split_whitespace().collect();
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            { "names": allowed, "action": "SCMP_ACT_ALLOW" },
            { "names": ["rename", "renameat", "renameat2"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EXDEV },
            { "names": ["personality"], "action": "SCMP_ACT_ALLOW",
              "args": [{ "index": 0, "value": 0xffff_ffff_u32, "op": "SCMP_CMP_EQ" }] },
        ],
    })
}

/// Broken on purpose and seen red: the profile is ours alone, so its refusals are gone.
fn a_container_keeps_its_profile_and_is_gated(runtime: Option<Runtime>) {
    let Some(runtime) = runtime else { return };
    if cfg!(not(target_arch = "x86_64")) {
        return println!("not run: the profile is for x86-64");
    }
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let profile = |socket: &Path| {
        let merged = Filter::default().merged_profile(own_profile(), socket, &ACCOUNT.to_string()).unwrap();
        assert!(merged.not_notified.is_empty());
        merged.profile
    };
    let mut tenant = contained(&rig, &runtime, "refused", profile);
    agent.has_listeners(1);
    for _ in 0..2 {
        agent.hold(&[ACCOUNT]);
        tenant.waits_in(libc::SYS_fsync, 2);
        agent.hold(&[]);
        tenant.goes_on();
    }
}

/// Promise: gates-profile.
#[test]
fn a_container_of_runc_keeps_its_own_profile_and_is_gated() {
    a_container_keeps_its_profile_and_is_gated(Runtime::new("runc", Cgroups::Version1));
}

/// Promise: gates-profile.
#[test]
fn a_container_of_crun_keeps_its_own_profile_and_is_gated() {
    a_container_keeps_its_profile_and_is_gated(Runtime::new("crun", Cgroups::None));
}

/// Promise: gates-runtimes.
#[test]
fn a_container_of_runc_is_gated_and_outlives_the_agent() {
    a_container_is_gated_and_outlives_the_agent(Runtime::new("runc", Cgroups::Version1));
}

/// Promise: gates-runtimes.
#[test]
fn a_container_of_crun_is_gated_and_outlives_the_agent() {
    a_container_is_gated_and_outlives_the_agent(Runtime::new("crun", Cgroups::None));
}
