//! A PostgreSQL server for one run: a stock one, on the measured file system, with the user of its package.
//!
//! It is a tenant with the memory of the scenario's machine, from the making of its cluster on; it starts behind no
//! gates. Nothing of it outlives the run, even a killed one. The kernel kills it when the host dies, and its shared
//! memory is in a namespace that dies with its processes. Default sizes of a server are those of its machine. The
//! scenario's machine, a part of the paper's, has a part of them ([`settings`]).

use super::super::disk::Disk;
use super::super::error::{failed, interrupted};
use super::super::memory::MemoryGroup;
use super::super::program::{self, Program};
use super::super::tenants::{RUN_DIRECTORY, Tenants};
use super::super::{HostError, clock};
use crate::scenario::DatabaseSetup;
use crate::tpch::{Generator, Table};
use plimsoll_core::{Span, Time};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where Debian keeps the programs of each version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// The user that Debian's package makes; a server refuses to be root.
const USER: &str = "postgres";
const PASSWD: &str = "/etc/passwd";
/// What takes the server's rights and namespace from root (util-linux).
const HELPERS: [&str; 2] = ["unshare", "setpriv"];
/// The data directory, in the root of the file system, and where it listens, in the run directory.
const DATA: &str = "postgresql";
const SOCKETS: &str = "postgresql";
/// Only its own user may enter.
const DIRECTORY_MODE: u32 = 0o700;
/// How long a server may take to answer: many seconds on a machine that is busy.
const PATIENCE: Span = Span::from_secs(60);
/// How often it is asked.
const ASK_AGAIN: Span = Span::from_millis(100);
/// How long it may take to end, before it is killed: it kills those of its processes that do not after five seconds.
const END_PATIENCE: Span = Span::from_secs(20);
/// The server's defaults in the paper's time (PostgreSQL 9.0) beside 32 MB of buffers, as parts of these. They are the
/// planner's guess of the page cache, and the memory of a sort and of making an index. The log between two checkpoints
/// is of three segments.
const EFFECTIVE_CACHE_PER_BUFFERS: u64 = 4;
const SORTS_PER_BUFFERS: u64 = 32;
const INDEX_SORTS_PER_BUFFERS: u64 = 2;
const LOG_PER_BUFFERS: u64 = 2;
/// What a server of today takes at least, bytes: a sort, making an index, the log.
const SORT_BYTES_MIN: u64 = 64 << 10;
const INDEX_SORT_BYTES_MIN: u64 = 1 << 20;
const LOG_BYTES_MIN: u64 = 4 << 20;

/// The programs and the user.
pub(super) struct Installed {
    programs: PathBuf,
    user: u32,
    group: u32,
}

impl Installed {
    /// The newest version that is here, or why there is none.
    pub(super) fn find() -> Result<Installed, String> {
        let versions = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
        let versions = versions.map(|entry| entry.path().join("bin")).filter(|path| path.join("initdb").exists());
        let version = |path: &PathBuf| -> f64 {
            let name = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            name.and_then(|name| name.parse().ok()).unwrap_or_default()
        };
        let newest = versions.max_by(|one, other| version(one).total_cmp(&version(other)));
        let programs = newest.ok_or("PostgreSQL is not installed (Debian: postgresql)")?;
        let (user, group) = numbers_of(&std::fs::read_to_string(PASSWD).unwrap_or_default(), USER)
            .ok_or_else(|| format!("there is no user {USER}, which runs PostgreSQL"))?;
        HELPERS.into_iter().find_map(program::why_not).map_or(Ok(Installed { programs, user, group }), Err)
    }
}

/// The numbers of a user and of his group.
fn numbers_of(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let user = passwd.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number = |place| user.split(':').nth(place)?.parse().ok();
    Some((number(1)?, number(2)?))
}

/// Settings of a server with so many bytes of buffers. They switch off what the paper's server did not have: parallel
/// queries, compiled expressions, a vacuum in the background. They scale its memory with the buffers.
fn settings(buffers_bytes: u64, sockets: &Path) -> Vec<String> {
    let kilobytes = |bytes: u64| format!("{}kB", bytes >> 10);
    let part = |per: u64, least: u64| kilobytes((buffers_bytes / per).max(least));
    let log = (buffers_bytes * LOG_PER_BUFFERS).max(LOG_BYTES_MIN) >> 20;
    let sizes = [
        ("shared_buffers", kilobytes(buffers_bytes)),
        ("effective_cache_size", kilobytes(buffers_bytes * EFFECTIVE_CACHE_PER_BUFFERS)),
        ("work_mem", part(SORTS_PER_BUFFERS, SORT_BYTES_MIN)),
        ("maintenance_work_mem", part(INDEX_SORTS_PER_BUFFERS, INDEX_SORT_BYTES_MIN)),
        ("max_wal_size", format!("{log}MB")),
        ("min_wal_size", format!("{}MB", log / 2)),
        ("unix_socket_directories", sockets.display().to_string()),
    ];
    let rest = [
        "listen_addresses=",
        "max_connections=10",
        "wal_level=minimal",
        "max_wal_senders=0",
        "autovacuum=off",
        "jit=off",
        "max_parallel_workers_per_gather=0",
        "max_parallel_maintenance_workers=0",
        "log_min_messages=fatal",
        // System V's segments are in the namespace; POSIX's are files.
        "dynamic_shared_memory_type=sysv",
    ];
    sizes.iter().map(|(key, value)| format!("{key}={value}")).chain(rest.map(str::to_owned)).collect()
}

/// A server that answers. Dropping it ends it.
pub(super) struct Server {
    installed: Installed,
    data: PathBuf,
    sockets: PathBuf,
    postmaster: Program,
}

/// The account, the tenants and the memory of the server's processes.
pub(super) struct Place<'run> {
    pub(super) account: &'run str,
    pub(super) tenants: Option<&'run Tenants>,
    pub(super) memory: Option<&'run MemoryGroup>,
}

impl Place<'_> {
    /// A program of the server's, with its rights and in its groups.
    fn begin(&self, installed: &Installed, name: &str, arguments: Vec<String>) -> Result<Program, HostError> {
        let Installed { programs, user, group } = installed;
        let helpers = [
            "unshare --ipc --".to_owned(),
            format!("setpriv --reuid={user} --regid={group} --clear-groups --pdeathsig=KILL --"),
        ];
        let helpers = helpers.iter().flat_map(|words| words.split(' ')).map(str::to_owned);
        let program = programs.join(name).display().to_string();
        let mut program = Program::wait(name, helpers.chain([program]).chain(arguments))?;
        if let Some(tenants) = self.tenants {
            tenants.enroll(self.account, program.number())?;
        }
        self.memory.map_or(Ok(()), |memory| memory.join(program.number()))?;
        program.begin()?;
        Ok(program)
    }
}

impl Server {
    /// Makes a cluster on the disk's file system, and starts its server.
    pub(super) fn start(
        installed: Installed,
        setup: &DatabaseSetup,
        disk: &Disk,
        place: &Place<'_>,
        stop: &AtomicBool,
    ) -> Result<Server, HostError> {
        let (data, sockets) = (disk.folder().join(DATA), Path::new(RUN_DIRECTORY).join(SOCKETS));
        for folder in [&data, &sockets] {
            make_directory(folder, &installed).map_err(|error| failed(folder.display(), error))?;
        }
        let options = "--auth=trust --no-instructions --no-sync --wal-segsize=1 --locale=C --encoding=UTF8 --pgdata";
        let options = options.split(' ').map(str::to_owned).chain([data.display().to_string()]);
        place.begin(&installed, "initdb", options.collect())?.end(stop)?;
        let settings = settings(setup.buffers_bytes, &sockets);
        let settings = settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]);
        let options = ["-D".to_owned(), data.display().to_string()].into_iter().chain(settings);
        let postmaster = place.begin(&installed, "postgres", options.collect())?;
        let mut server = Server { installed, data, sockets, postmaster };
        server.wait_for_an_answer(stop)?;
        Ok(server)
    }

    fn wait_for_an_answer(&mut self, stop: &AtomicBool) -> Result<(), HostError> {
        let until = clock::now() + PATIENCE;
        loop {
            if let Some(status) = self.postmaster.ended()? {
                return Err(self.postmaster.failed(status));
            }
            match self.say("SELECT 1", stop) {
                Ok(_) => return Ok(()),
                Err(error) if stop.load(Ordering::Relaxed) || clock::now() >= until => return Err(error),
                Err(_) => clock::sleep_until(clock::now() + ASK_AGAIN),
            }
        }
    }

    /// Its data directory.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// How psql reaches it.
    pub(super) fn client(&self) -> Client {
        Client { psql: self.installed.programs.join("psql"), sockets: self.sockets.clone() }
    }

    /// Says a statement to it; answers with when it was done.
    pub(super) fn say(&self, statement: &str, stop: &AtomicBool) -> Result<Time, HostError> {
        self.client().say(statement, stop)
    }
}

fn make_directory(path: &Path, installed: &Installed) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(DIRECTORY_MODE))?;
    std::os::unix::fs::chown(path, Some(installed.user), Some(installed.group))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It tells its processes to end at once, and waits for them: its files go with the run.
        self.postmaster.signal(rustix::process::Signal::QUIT);
        let until = clock::now() + END_PATIENCE;
        while matches!(self.postmaster.ended(), Ok(None)) && clock::now() < until {
            clock::sleep_until(clock::now() + ASK_AGAIN);
        }
        let _ = std::fs::remove_dir_all(&self.sockets);
    }
}

/// Says statements to a server, by psql.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) psql: PathBuf,
    sockets: PathBuf,
}

impl Client {
    /// Options by which psql reaches it.
    pub(super) fn options(&self) -> Vec<String> {
        vec![format!("--host={}", self.sockets.display()), format!("--username={USER}")]
    }

    fn begin(&self, statement: &str) -> Result<Program, HostError> {
        let mut command = Command::new(&self.psql);
        command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname=postgres"]).args(self.options());
        command.args(["--command", statement]);
        Program::start("psql", command)
    }

    /// Says a statement; answers with when it was done.
    pub(super) fn say(&self, statement: &str, stop: &AtomicBool) -> Result<Time, HostError> {
        self.begin(statement)?.end(stop)
    }

    /// Fills a table with the rows that `generator` makes.
    pub(super) fn fill(&self, table: Table, generator: &Generator, stop: &AtomicBool) -> Result<(), HostError> {
        let mut psql = self.begin(&format!("COPY {} FROM STDIN", table.name()))?;
        let written = generator.write(table, &mut Stoppable { out: psql.input(), stop });
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        // Why the pipe has broken, psql says.
        psql.end(stop)?;
        written.map(drop).map_err(|error| failed(table.name(), error))
    }
}

/// Takes no more when it is to stop.
struct Stoppable<'run, W> {
    out: W,
    stop: &'run AtomicBool,
}

impl<W: Write> Write for Stoppable<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_number_and_a_group() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\npostgresql:x:7:8::/:/bin/sh\npostgres:x:105:113:,,,:/var/lib:/bin/sh\n";
        assert_eq!(numbers_of(passwd, "postgres"), Some((105, 113)));
        assert_eq!(numbers_of(passwd, "nobody"), None);
    }

    /// Broken on purpose and seen red: a sort of the buffers' size.
    #[test]
    fn a_server_has_the_papers_defaults_or_a_part_of_them() {
        let of = |buffers: u64| settings(buffers, Path::new("/run"));
        let full = of(32 << 20);
        let expected = [
            "shared_buffers=32768kB",
            "effective_cache_size=131072kB",
            "work_mem=1024kB",
            "maintenance_work_mem=16384kB",
        ];
        assert!(expected.iter().all(|one| full.iter().any(|setting| setting == one)), "{full:?}");
        let fiftieth = of(640 << 10);
        let expected =
            ["shared_buffers=640kB", "effective_cache_size=2560kB", "work_mem=64kB", "maintenance_work_mem=1024kB"];
        assert!(expected.iter().all(|one| fiftieth.iter().any(|setting| setting == one)), "{fiftieth:?}");
    }
}
