//! What the names in a data directory say (PostgreSQL documentation, "Database File Layout").
//!
//! ```text
//!   pg_wal/000000010000000000000001      the log
//!   base/16384/24576                     a relation: database 16384, file node 24576
//!   base/16384/24576.1  ..._fsm  ..._vm  its second GiB, its free-space map, its visibility map
//!   base/16384/t3_24577                  a temporary relation of backend 3
//!   base/pgsql_tmp/pgsql_tmp42.0         what a sort has spilled
//!   pg_tblspc/24580/PG_15_202209061/16384/24590     a relation in a tablespace
//! ```

use plimsoll_core::Class;
use std::path::Path;

/// File nodes below this were given by initdb, to catalogues (`FirstNormalObjectId`).
const FILE_NODE_OF_USERS_MIN: u32 = 16384;
/// Where a server keeps the state of transactions: small, and read by all.
const STATES: [&str; 5] = ["pg_xact", "pg_multixact/members", "pg_multixact/offsets", "pg_subtrans", "pg_commit_ts"];
const TEMPORARY: &str = "pgsql_tmp";

/// What a file is to a database (Differentiated Storage Services, table 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatabaseClass {
    /// The write-ahead log.
    Log,
    /// Catalogues, their indexes, and the state of transactions.
    SystemTable,
    /// Free-space maps, and visibility maps, which are like them.
    FreeSpaceMap,
    /// Temporary tables, and what queries spill.
    Temporary,
    /// A table with rows that are mostly found by an index.
    RandomTable,
    /// A table that is mostly read from one end to the other.
    SequentialTable,
    /// An index of a user's table.
    Index,
}

impl DatabaseClass {
    /// All of them.
    pub const ALL: [DatabaseClass; 7] = [
        DatabaseClass::Log,
        DatabaseClass::SystemTable,
        DatabaseClass::FreeSpaceMap,
        DatabaseClass::Temporary,
        DatabaseClass::RandomTable,
        DatabaseClass::SequentialTable,
        DatabaseClass::Index,
    ];

    /// Its number, that of `classes/postgresql.toml`.
    pub fn class(self) -> Class {
        let number = match self {
            DatabaseClass::Log => 19,
            DatabaseClass::SystemTable => 20,
            DatabaseClass::FreeSpaceMap => 21,
            DatabaseClass::Temporary => 22,
            DatabaseClass::RandomTable => 23,
            DatabaseClass::SequentialTable => 24,
            DatabaseClass::Index => 25,
        };
        Class::new(number).expect("below 32")
    }
}

/// What a name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All.
    Of(DatabaseClass),
    /// A part of this relation: the path of its first file, as `pg_relation_filepath` has it.
    Relation(String),
    /// Nothing.
    Other,
}

/// What the file at `path` is, which is relative to the data directory.
pub fn kind(path: &str) -> Kind {
    let Some((directory, name)) = path.rsplit_once('/') else { return Kind::Other };
    if directory.split('/').any(|part| part == TEMPORARY) {
        return Kind::Of(DatabaseClass::Temporary);
    }
    match directory.split('/').next() {
        Some("pg_wal") => return Kind::Of(DatabaseClass::Log),
        Some("base" | "global" | "pg_tblspc") => {}
        _ if STATES.contains(&directory) => return Kind::Of(DatabaseClass::SystemTable),
        _ => return Kind::Other,
    }
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    if let Some((backend, _)) = stem.strip_prefix('t').and_then(|rest| rest.split_once('_'))
        && is_number(backend)
    {
        return Kind::Of(DatabaseClass::Temporary);
    }
    let (node, fork) = stem.split_once('_').unwrap_or((stem, "main"));
    match (is_number(node), fork) {
        (true, "fsm" | "vm") => Kind::Of(DatabaseClass::FreeSpaceMap),
        (true, "main" | "init") => Kind::Relation(format!("{directory}/{node}")),
        // pg_filenode.map, pg_internal.init, PG_VERSION.
        _ => Kind::Of(DatabaseClass::SystemTable),
    }
}

/// What a relation is by its file node alone: a catalogue, if it is as initdb made it.
pub(super) fn of_file_node(relation: &str) -> Option<DatabaseClass> {
    let node: u32 = relation.rsplit('/').next()?.parse().ok()?;
    (node < FILE_NODE_OF_USERS_MIN).then_some(DatabaseClass::SystemTable)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The directories of a data directory that have files with a class, relative to it.
pub(super) fn directories(root: &Path) -> Vec<String> {
    let mut found = vec!["global".to_owned(), "pg_wal".to_owned()];
    found.extend(STATES.map(str::to_owned));
    // Databases and what is spilled beside them; a tablespace has a directory for each version of the server.
    below(root, "base", 2, &mut found);
    below(root, "pg_tblspc", 4, &mut found);
    found
}

/// The directory at `path` and those below it, `depth` deep; links are followed, as tablespaces are some.
fn below(root: &Path, path: &str, depth: u32, found: &mut Vec<String>) {
    found.push(path.to_owned());
    if depth == 0 {
        return;
    }
    for entry in std::fs::read_dir(root.join(path)).into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str()
            && entry.path().is_dir()
        {
            below(root, &format!("{path}/{name}"), depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Promise: classes-postgresql.
    #[test]
    fn names_say_what_files_are() {
        use DatabaseClass::{FreeSpaceMap, Log, SystemTable, Temporary};
        let relation = |path: &str| Kind::Relation(path.to_owned());
        let expected = [
            ("pg_wal/000000010000000000000001", Kind::Of(Log)),
            ("pg_xact/0000", Kind::Of(SystemTable)),
            ("pg_multixact/members/0000", Kind::Of(SystemTable)),
            ("global/pg_control", Kind::Of(SystemTable)),
            ("global/1262", relation("global/1262")),
            ("base/5/2619", relation("base/5/2619")),
            ("base/16384/24576", relation("base/16384/24576")),
            ("base/16384/24576.17", relation("base/16384/24576")),
            ("base/16384/24576_init", relation("base/16384/24576")),
            ("base/16384/24576_fsm", Kind::Of(FreeSpaceMap)),
            ("base/16384/24576_fsm.1", Kind::Of(FreeSpaceMap)),
            ("base/16384/24576_vm", Kind::Of(FreeSpaceMap)),
            ("base/16384/t3_24577", Kind::Of(Temporary)),
            ("base/16384/t3_24577_fsm", Kind::Of(Temporary)),
            ("base/16384/pg_filenode.map", Kind::Of(SystemTable)),
            ("base/pgsql_tmp/pgsql_tmp42.0", Kind::Of(Temporary)),
            ("base/pgsql_tmp/pgsql_tmp42.0.sharedfileset/i0of1.p0.0", Kind::Of(Temporary)),
            ("pg_tblspc/24580/PG_15_202209061/16384/24590.2", relation("pg_tblspc/24580/PG_15_202209061/16384/24590")),
            ("pg_tblspc/24580/PG_15_202209061/pgsql_tmp/pgsql_tmp1.1", Kind::Of(Temporary)),
            ("PG_VERSION", Kind::Other),
            ("pg_stat_tmp/global.stat", Kind::Other),
        ];
        for (path, kind) in expected {
            assert_eq!(super::kind(path), kind, "{path}");
        }
        assert_eq!(of_file_node("base/5/2619"), Some(SystemTable));
        assert_eq!(of_file_node("base/5/24576"), None);
    }

    proptest! {
        #[test]
        fn no_name_is_too_much(path in "\\PC{0,60}", name in "[t_.0-9a-z/]{0,30}") {
            kind(&path);
            if let Kind::Relation(relation) = kind(&format!("base/1/{name}")) {
                prop_assert!(relation.starts_with("base/1/") && relation.rsplit('/').next().is_some_and(is_number));
            }
        }
    }
}
