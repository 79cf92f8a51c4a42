//! `plimsoll classify postgresql` with a real server on a cached volume. Root, BPF and the Debian package postgresql
//! only.

use crate::classes::{site, units};
use crate::support::{Daemon, Site, text};
use crate::tenants::wait_until;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAMS: &str = "/usr/lib/postgresql";
/// A server takes some seconds on a busy machine.
const SECONDS: &str = "120";

/// A PostgreSQL server of its own on the volume, as the user `postgres`; ended when dropped.
struct Server<'site> {
    site: &'site Site,
    programs: PathBuf,
    user: (u32, u32),
}

/// Where Debian keeps the programs of the newest version, and the user that runs them.
fn installed() -> Option<(PathBuf, (u32, u32))> {
    let versions = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let programs = versions.filter(|path| path.join("initdb").exists()).max()?;
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let user = users.lines().find(|line| line.starts_with("postgres:"))?.to_owned();
    let number = |place| user.split(':').nth(place)?.parse().ok();
    Some((programs, (number(2)?, number(3)?)))
}

impl<'site> Server<'site> {
    fn start(site: &'site Site, programs: PathBuf, user: (u32, u32)) -> Server<'site> {
        let data = site.path("mnt/data");
        for folder in [&data, &site.path("sockets")] {
            std::fs::create_dir(folder).unwrap();
            std::os::unix::fs::chown(folder, Some(user.0), Some(user.1)).unwrap();
        }
        let server = Server { site, programs, user };
        server.run("initdb", &["--auth=trust", "--no-instructions", "--pgdata"], &data);
        let sockets = site.path("sockets");
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c shared_buffers=4MB -c autovacuum=off \
             -c max_wal_size=64MB -c min_wal_size=32MB",
            sockets.display()
        );
        let log = sockets.join("log");
        server.run(
            "pg_ctl",
            &[
                "start",
                "--wait",
                "--timeout",
                SECONDS,
                "--options",
                &options,
                "--log",
                log.to_str().unwrap(),
                "--pgdata",
            ],
            &data,
        );
        server
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.uid(self.user.0).gid(self.user.1).current_dir("/").stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str], last: &Path) {
        // What it leaves behind would hold a pipe open.
        let mut command = self.command(self.programs.join(program));
        let status = command.args(arguments).arg(last).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "{program}: {status}");
    }

    fn psql(&self, question: &str) -> Command {
        let mut command = self.command(self.programs.join("psql"));
        command.args(["--no-psqlrc", "-At", "-v", "ON_ERROR_STOP=1", "-h"]).arg(self.site.path("sockets"));
        command.args(["-d", "postgres", "-c", question]);
        command
    }

    fn ask(&self, question: &str) -> String {
        let output = self.psql(question).output().unwrap();
        assert!(output.status.success(), "{question}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    /// The first file of a relation.
    fn file(&self, relation: &str) -> PathBuf {
        self.site.path("mnt/data").join(self.ask(&format!("SELECT pg_relation_filepath('{relation}')")))
    }

    /// The number of the class that was said of a file.
    fn class(&self, file: &Path) -> String {
        let command = ["class", "ask", file.to_str().unwrap(), "--at", "state/classes.sock"];
        let output = self.site.command(&command).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().last().unwrap().split_whitespace().next().unwrap().to_owned()
    }

    fn classifier(&self, more: &[&str]) -> Command {
        let [data, sockets] = ["mnt/data", "sockets"].map(|name| self.site.path(name).to_str().unwrap().to_owned());
        let arguments = ["classify", "postgresql", "--at", "state/classes.sock", "--data-directory", &data];
        let psql = self.programs.join("psql").to_str().unwrap().to_owned();
        let connecting = ["--host", &sockets, "--user", "postgres", "--psql", &psql];
        self.site.command(&[&arguments[..], &connecting, more].concat())
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let data = self.site.path("mnt/data");
        let mut command = self.command(self.programs.join("pg_ctl"));
        let ended = command.args(["stop", "--mode", "immediate", "--wait", "--pgdata"]).arg(data).output();
        assert!(ended.is_ok_and(|output| output.status.success()) || std::thread::panicking());
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

const TABLES: &str = "
    CREATE TABLE orders (number int PRIMARY KEY, note text);
    CREATE TABLE lines AS SELECT n, repeat('x', 200) AS note FROM generate_series(1, 20000) n;
    INSERT INTO orders SELECT n, repeat('y', 200) FROM generate_series(1, 20000) n;
    VACUUM orders, lines";

fn classes_follow(server: &Server<'_>) {
    for statement in TABLES.split(';') {
        server.ask(statement);
    }
    server.ask("CHECKPOINT");
    let said = is_done(&server.classifier(&["--once"]).output().unwrap());
    assert!(said.starts_with("log ") && !said.contains("the catalogue does not show"), "{said}");
    let fork = |file: PathBuf, fork: &str| PathBuf::from(format!("{}_{fork}", file.display()));
    assert_eq!(server.class(&server.file("orders")), "23");
    assert_eq!(server.class(&server.file("orders_pkey")), "25");
    assert_eq!(server.class(&server.file("pg_class")), "20");
    assert_eq!(server.class(&fork(server.file("orders"), "fsm")), "21");
    let log = server.site.path("mnt/data/pg_wal").join(server.ask("SELECT pg_walfile_name(pg_current_wal_lsn())"));
    assert_eq!(server.class(&log), "19");

    let mut watching = Ended(server.classifier(&[]).stdout(Stdio::null()).spawn().unwrap());
    // What is new, and what an old table has been put into.
    server.ask("CREATE TABLE later AS SELECT n FROM generate_series(1, 1000) n");
    server.ask("CREATE INDEX later_index ON later (n)");
    let before = server.file("orders");
    server.ask("VACUUM FULL orders");
    assert_ne!(server.file("orders"), before, "it has other files");
    // Making an index and rebuilding a table have read them in sequence.
    for (relation, class) in [("later", "24"), ("later_index", "25"), ("orders", "24"), ("orders_pkey", "25")] {
        wait_until(relation, || server.class(&server.file(relation)) == class);
    }
    server.ask("SELECT count(note) FROM lines");
    server.ask("SET enable_seqscan = off; SELECT count(note) FROM orders WHERE number < 10000");
    wait_until("that it is read in sequence", || server.class(&server.file("lines")) == "24");
    wait_until("that it is read by its index", || server.class(&server.file("orders")) == "23");
    while_an_index_is_made(server);
    assert!(watching.0.try_wait().unwrap().is_none(), "it goes on");
}

/// A table with an index that takes five minutes.
const FEW: &str = "
    CREATE TABLE few AS SELECT n FROM generate_series(1, 200) n;
    CREATE FUNCTION slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql
        AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN n; END $$";

/// Broken on purpose and seen red: the catalogue is asked only for committed rows, and an index is there when it is
/// finished.
fn while_an_index_is_made(server: &Server<'_>) {
    server.ask(FEW);
    let folder = server.file("few").parent().unwrap().to_owned();
    let files = || -> BTreeSet<PathBuf> {
        let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.file_name().unwrap().to_str().unwrap().parse::<u32>().is_ok()).collect()
    };
    let before = files();
    let making = server.psql("CREATE INDEX slow_index ON few (slow(n))").stdout(Stdio::null()).spawn().unwrap();
    let mut making = Ended(making);
    wait_until("an index's class", || files().difference(&before).any(|file| server.class(file) == "25"));
    assert!(making.0.try_wait().unwrap().is_none(), "it is still being made");
}

/// Promise: classes-postgresql.
#[test]
fn each_file_of_a_real_server_has_its_class_after_ddl_too() {
    let Some((programs, user)) = installed() else {
        println!("not run: PostgreSQL is not installed (Debian: postgresql)");
        return;
    };
    let Some(site) = site(512, 128) else { return };
    let daemon: Daemon<'_> = site.up();
    std::fs::set_permissions(site.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let server = Server::start(&site, programs, user);
    classes_follow(&server);
    server.ask("INSERT INTO orders SELECT n, repeat('z', 200) FROM generate_series(30001, 40000) n");
    server.ask("CHECKPOINT");
    for class in ["database-log", "database-system-table", "database-random-table", "database-index"] {
        assert!(units(&site, class) > 0, "{class}");
    }
    drop(server);
    daemon.stop();
}

#[test]
fn what_is_no_cluster_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let command = [env!("CARGO_BIN_EXE_plimsoll"), "classify", "postgresql", "--once", "--data-directory", path];
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let expected = "PG_VERSION: No such file or directory (os error 2), allowed is that of a PostgreSQL cluster";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
}
