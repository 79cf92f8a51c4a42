//! What relations are, from the server's catalogue.
//!
//! `psql` asks it, which knows of all ways to reach and to be trusted by a server (PGHOST, PGPORT, PGUSER, .pgpass).

use super::layout::{DatabaseClass, of_file_node};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use thiserror::Error;

/// Databases that one can connect to.
const DATABASES: &str = "SELECT datname FROM pg_database WHERE datallowconn";
/// Each relation with a file, what it is, and how its rows were found since the server began to count. Object numbers
/// below 16384 are those of initdb (`FirstNormalObjectId`). An index that is being made is in no catalogue yet. Its
/// maker has locked it, no other session can see it, and its file has its own number.
const RELATIONS: &str = "
    SELECT pg_relation_filepath(c.oid),
           CASE WHEN c.oid < 16384 THEN 'system' WHEN c.relpersistence = 't' THEN 'temporary'
                WHEN c.relkind IN ('i', 'I') THEN 'index' ELSE 'table' END,
           coalesce(s.seq_tup_read, 0), coalesce(s.idx_tup_fetch, 0)
    FROM pg_class c LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
    WHERE pg_relation_filepath(c.oid) IS NOT NULL
    UNION ALL
    SELECT 'base/' || l.database || '/' || l.relation, 'index', 0, 0
    FROM pg_stat_progress_create_index p JOIN pg_locks l ON l.pid = p.pid AND l.database = p.datid
    WHERE p.datname = current_database() AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
      AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = l.relation)";

/// Why the catalogue is not known.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// There is no psql that could ask.
    #[error("{}: {source}", program.display())]
    Program {
        /// What was to be run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The server does not answer.
    #[error("psql: {said}")]
    Refused {
        /// What psql said.
        said: String,
    },
    /// The answer is not what was asked for.
    #[error("psql answered {got:?}, expected a path, a kind and two numbers")]
    Answer {
        /// A line of it.
        got: String,
    },
}

/// A server that runs.
#[derive(Clone, Debug)]
pub struct Server {
    /// The program psql.
    pub psql: PathBuf,
    /// Address of the server and the user to connect as, as options of psql: `--host=/run/postgresql`.
    pub options: Vec<String>,
}

/// How rows of a table were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reads {
    sequential: u64,
    by_index: u64,
}

/// What relations are.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// By the path of the relation's first file.
    relations: BTreeMap<String, (DatabaseClass, Reads)>,
}

impl Server {
    fn ask(&self, database: Option<&str>, question: &str) -> Result<String, CatalogueError> {
        let mut command = Command::new(&self.psql);
        // Zeroes between rows: names may have anything else in them.
        command.args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align", "--record-separator-zero"]);
        command.args(["--field-separator=\t", "--set=ON_ERROR_STOP=1"]).args(&self.options);
        // By the environment a name is a name, and not a text with options of a connection.
        command.env("PGDATABASE", database.unwrap_or("postgres")).env("PGCONNECT_TIMEOUT", "10");
        let output = command.args(["--command", question]).stdin(Stdio::null()).output();
        let output = output.map_err(|source| CatalogueError::Program { program: self.psql.clone(), source })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\0']).to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(CatalogueError::Refused { said: text(&output.stderr).lines().collect::<Vec<_>>().join(" ") }),
        }
    }
}

impl Catalogue {
    /// Asks the server for all relations of all databases.
    ///
    /// # Errors
    /// psql cannot be run, or does not get an answer; then everything is as it was.
    pub fn ask(&mut self, server: &Server) -> Result<(), CatalogueError> {
        let databases = server.ask(None, DATABASES)?;
        let mut answers = Vec::new();
        for database in databases.split('\0').filter(|name| !name.is_empty()) {
            match server.ask(Some(database), RELATIONS) {
                Ok(answer) => answers.push(answer),
                // A database that was dropped in between, or that not every user may connect to.
                Err(error @ CatalogueError::Refused { .. }) => tracing::debug!("database {database:?}: {error}"),
                Err(error) => return Err(error),
            }
        }
        self.relations = self.updated(&answers)?;
        Ok(())
    }

    /// What a relation is, by the path of its first file.
    pub fn class(&self, relation: &str) -> Option<DatabaseClass> {
        self.relations.get(relation).map(|(class, _)| *class).or_else(|| of_file_node(relation))
    }

    fn updated(&self, answers: &[String]) -> Result<BTreeMap<String, (DatabaseClass, Reads)>, CatalogueError> {
        let mut relations = BTreeMap::new();
        for row in answers.iter().flat_map(|answer| answer.split('\0')).filter(|row| !row.is_empty()) {
            let wrong = || CatalogueError::Answer { got: row.chars().take(200).collect() };
            let fields: Vec<&str> = row.split('\t').collect();
            let &[path, kind, sequential, by_index] = &fields[..] else { return Err(wrong()) };
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
            let reads = Reads { sequential: number(sequential)?, by_index: number(by_index)? };
            let class = match kind {
                "system" => DatabaseClass::SystemTable,
                "temporary" => DatabaseClass::Temporary,
                "index" => DatabaseClass::Index,
                "table" => self.class_of_table(path, reads),
                _ => return Err(wrong()),
            };
            relations.insert(path.to_owned(), (class, reads));
        }
        Ok(relations)
    }

    /// As most of the rows were found that were found since the last time.
    fn class_of_table(&self, path: &str, reads: Reads) -> DatabaseClass {
        let (class, before) = match self.relations.get(path) {
            // A server that lost its counts begins again.
            Some((class, before)) if reads.sequential >= before.sequential && reads.by_index >= before.by_index => {
                (*class, *before)
            }
            Some((class, _)) => (*class, Reads::default()),
            None => (DatabaseClass::RandomTable, Reads::default()),
        };
        match (reads.sequential - before.sequential, reads.by_index - before.by_index) {
            (0, 0) => class,
            (sequential, by_index) if sequential > by_index => DatabaseClass::SequentialTable,
            _ => DatabaseClass::RandomTable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DatabaseClass::{Index, RandomTable, SequentialTable, SystemTable, Temporary};

    fn after(catalogue: &Catalogue, answer: &str) -> Catalogue {
        Catalogue { relations: catalogue.updated(&[answer.to_owned()]).unwrap() }
    }

    /// Promise: classes-postgresql.
    #[test]
    fn a_table_is_as_most_of_its_rows_were_found_lately() {
        let mut catalogue = Catalogue::default();
        let steps = [
            ((0, 0), RandomTable, "no query has read it"),
            ((100, 99), SequentialTable, "most of them in sequence"),
            ((100, 99), SequentialTable, "nobody since"),
            ((110, 110), RandomTable, "lately by the index"),
            ((500, 499), SequentialTable, "in sequence again"),
            ((1, 2), RandomTable, "counts that began anew"),
        ];
        for ((sequential, by_index), class, why) in steps {
            catalogue = after(&catalogue, &format!("base/5/20000\ttable\t{sequential}\t{by_index}"));
            assert_eq!(catalogue.class("base/5/20000"), Some(class), "{why}");
        }
    }

    #[test]
    fn rows_say_what_relations_are_and_wrong_ones_change_nothing() {
        let answer = "base/5/1\tsystem\t0\t0\0base/5/20001\tindex\t0\t0\0base/5/t3_20002\ttemporary\t0\t0\0";
        let catalogue = after(&Catalogue::default(), answer);
        assert_eq!(catalogue.class("base/5/1"), Some(SystemTable));
        assert_eq!(catalogue.class("base/5/20001"), Some(Index));
        assert_eq!(catalogue.class("base/5/t3_20002"), Some(Temporary));
        assert_eq!(catalogue.class("base/5/2619"), Some(SystemTable), "as initdb made it");
        assert_eq!(catalogue.class("base/5/20003"), None);
        for wrong in ["base/5/1\tindex\t0", "base/5/1\tsequence\t0\t0", "base/5/1\ttable\t-1\t0"] {
            let error = catalogue.updated(&[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.starts_with("psql answered "), "{error}");
        }
    }
}
