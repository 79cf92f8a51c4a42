//! A real database: a PostgreSQL on the measured file system, with a generated TPC-H data set and one query after the
//! other.
//!
//! ```text
//!   generator -> psql: COPY -> server (tenant, memory of the machine) -> ext4 -> cache -> device
//!                                 ^ files and catalogue
//!                              classifier -> socket -> classes of blocks
//! ```
//!
//! **The order** is the paper's (Differentiated Storage Services, section 5.7): tables are filled, then indexes are
//! made, then queries are asked; only these are measured. Tables are there, empty and committed, before they are
//! filled, so that the classifier knows what they are when their first block is written. **The complication.**
//! Statistics are gathered before the indexes are made. A sample of a table at the paper's size is all of it at a
//! fiftieth. It would push out of the cache what the indexes have brought in.

mod classes;
mod queries;
mod server;

use super::HostError;
use super::crew::Load;
use super::disk::Disk;
use super::memory::MemoryGroup;
use crate::results::RunResult;
use crate::scenario::DatabaseSetup;
use crate::tpch::{Generator, Table, sql};
use classes::Classes;
use plimsoll_core::Time;
use queries::Queries;
use server::{Installed, Place, Server};
use std::sync::atomic::AtomicBool;

/// Bytes of tables, indexes, log and temporary files at scale 1: an eighth of the paper's 29 GB (section 5.7).
const BYTES_AT_SCALE_1: f64 = 3.6e9;

/// Why a database cannot be run here, if so.
pub(super) fn why_not() -> Option<String> {
    Installed::find().err()
}

/// About how many bytes it takes on the disk.
pub(super) fn bytes(setup: &DatabaseSetup) -> u64 {
    (setup.scale * BYTES_AT_SCALE_1) as u64
}

/// A database that is filled. Dropping it ends its server.
pub(super) struct Database<'run> {
    setup: &'run DatabaseSetup,
    /// Dropped before the server, which its catalogue queries need.
    _classes: Option<Classes>,
    server: Server,
}

impl<'run> Database<'run> {
    /// Starts a server on the disk's file system and fills it.
    pub(super) fn build(
        setup: &'run DatabaseSetup,
        disk: &Disk,
        memory: Option<&MemoryGroup>,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Database<'run>, HostError> {
        let installed = Installed::find().map_err(HostError::NotRun)?;
        let place = Place { account: &setup.account, tenants: disk.tenants(), memory };
        let server = Server::start(installed, setup, disk, &place, stop)?;
        for table in Table::ALL {
            server.say(&sql::create(table), stop)?;
        }
        let classes = disk.tenants().map(|tenants| Classes::say(&server, tenants, disk.folder())).transpose()?;
        let generator = Generator::new(setup.scale, seed);
        for table in Table::ALL {
            server.client().fill(table, &generator, stop)?;
        }
        server.say("ANALYZE", stop)?;
        for index in sql::INDEXES {
            server.say(&sql::create_index(index), stop)?;
        }
        server.say("CHECKPOINT", stop)?;
        Ok(Database { setup, _classes: classes, server })
    }

    /// The queries, not asked yet.
    pub(super) fn queries(&self) -> impl Load + use<'run> {
        Queries::new(self.setup, self.server.client())
    }

    /// Notes when each query began: when the one before it was answered.
    pub(super) fn note_starts(&self, result: &mut RunResult) {
        let mut began = Some(Time::ZERO);
        for source in self.setup.sources() {
            let Some(found) = result.sources.get_mut(&source) else { continue };
            found.started = began;
            if source != self.setup.name {
                began = found.ended;
            }
        }
    }
}
