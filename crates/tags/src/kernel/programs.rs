//! The programs and the tables of registrations, for any thread to look through.
//!
//! A tenant may have tens of thousands of processes, which begin and end while somebody looks. From key to key that takes two system
//! calls for each, and begins anew whenever the key is gone that it has come to: under a storm of forks it need not end. So a
//! table is read at once, bucket by bucket.

use super::{map, refused};
use crate::error::TagsError;
use crate::source::{Entry, Surveyed, Table};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ProgramInput};

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
        entries(self.table(table))
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

fn entries(map: &MapHandle) -> Result<Vec<Entry>, TagsError> {
    // Room for all: what comes in parts might end within a bucket.
    let batch = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY);
    Ok(batch.map_err(refused("look through accounts"))?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::{MapType, libbpf_sys};
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    const ROOM: u32 = 4096;

    fn map() -> Option<MapHandle> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let made = MapHandle::create(MapType::Hash, Some("plimsoll_test"), 4, 8, ROOM, &options);
        made.inspect_err(|error| println!("not run: BPF is not permitted here: {error}")).ok()
    }

    fn put(map: &MapHandle, key: u32) {
        map.update(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes(), MapFlags::ANY).unwrap();
    }

    /// Who stays is found once, however many come and go meanwhile. Planted break that was seen red: from key to key.
    #[test]
    fn who_stays_is_found_once_while_others_come_and_go() {
        let Some(map) = map() else { return };
        let staying = 0..ROOM / 4;
        staying.clone().for_each(|key| put(&map, key));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut going = (ROOM / 4..ROOM / 2).cycle();
                while !is_over.load(Ordering::Relaxed) {
                    let key = going.next().unwrap();
                    put(&map, key);
                    map.delete(&key.to_ne_bytes()).unwrap();
                }
            });
            for _ in 0..200 {
                let mut found: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
                entries(&map).unwrap().into_iter().for_each(|(key, _)| *found.entry(key).or_default() += 1);
                let is_once = |key: u32| found.get(&key.to_ne_bytes()[..]) == Some(&1);
                let is_right = staying.clone().all(is_once);
                if !is_right {
                    is_over.store(true, Ordering::Relaxed);
                }
                assert!(is_right);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_table_is_read_whole_whether_empty_or_full() {
        let Some(map) = map() else { return };
        assert_eq!(entries(&map).unwrap(), []);
        (0..ROOM).for_each(|key| put(&map, key));
        let found: BTreeMap<_, _> = entries(&map).unwrap().into_iter().collect();
        let expected = (0..ROOM).map(|key| (key.to_ne_bytes().to_vec(), u64::from(key).to_ne_bytes().to_vec()));
        assert_eq!(found, expected.collect());
    }
}
