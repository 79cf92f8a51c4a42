//! The programs and the tables of registrations, for any thread to look through.

use super::{batch, map, refused};
use crate::error::TagsError;
use crate::source::{Entry, Surveyed, Table};
use libbpf_rs::{MapCore, MapHandle, Object, ProgramInput};

/// The program that user space runs; it belongs to no tracepoint.
pub(super) const SWEEP: &str = "sweep_accounts";

pub(super) struct Programs {
    pub object: Object,
    threads: MapHandle,
    processes: MapHandle,
    cgroups: MapHandle,
    owners: MapHandle,
}

impl Programs {
    pub fn new(object: Object) -> Result<Programs, TagsError> {
        let handle = |name| map(&object, name);
        let (threads, processes) = (handle("threads")?, handle("processes")?);
        let (cgroups, owners) = (handle("cgroups")?, handle("owners")?);
        Ok(Programs { object, threads, processes, cgroups, owners })
    }

    pub fn table(&self, table: Table) -> &MapHandle {
        match table {
            Table::Threads => &self.threads,
            Table::Processes => &self.processes,
            Table::Cgroups => &self.cgroups,
            Table::Owners => &self.owners,
        }
    }
}

impl Surveyed for Programs {
    fn entries(&self, table: Table) -> Result<Vec<Entry>, TagsError> {
        let table = self.table(table);
        let all = batch::entries(table, table.max_entries());
        all.map_err(|error| refused("look through accounts")(error.into()))
    }

    fn sweep(&self, ended: u64) -> Result<u64, TagsError> {
        let mut context = [ended.to_ne_bytes(), [0; 8]].concat();
        let program = self.object.progs_mut().find(|program| program.name() == SWEEP).expect("it is compiled in");
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        program.test_run(input).map_err(refused("look for ended accounts"))?;
        let (_, carried) = context.split_last_chunk().expect("two words");
        Ok(u64::from_ne_bytes(*carried))
    }
}
