//! All of a hash table of the kernel's.
//!
//! A tenant may have tens of thousands of processes, which begin and end while a thread looks. Going from key to key
//! takes two system calls for each. It begins anew whenever the current key is gone, so under a storm of forks it need
//! not end. So a table is read bucket by bucket, many at a time.
//!
//! The kernel fills as much of the room as whole buckets do, and says with `ENOENT` that it has come to the end. Only
//! then is it all: `libbpf_rs::MapCore::lookup_batch` takes a batch that is not full for the last one, and any error
//! for the end.

use crate::source::Entry;
use libbpf_rs::{MapCore, MapHandle, libbpf_sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Reads the table, with room for so many entries at a time. What is there all the time is read once. O(entries +
/// buckets).
pub(super) fn entries(map: &MapHandle, room: u32) -> io::Result<Vec<Entry>> {
    let (key_bytes, value_bytes) = (map.key_size() as usize, map.value_size() as usize);
    let (mut keys, mut values) = (vec![0; key_bytes * room as usize], vec![0; value_bytes * room as usize]);
    let (mut bucket, mut is_first, mut all) = (0u32, true, Vec::new());
    loop {
        let mut count = room;
        let position = ptr::from_mut(&mut bucket).cast();
        let from = if is_first { ptr::null_mut() } else { position };
        // SAFETY: the kernel writes no more than `count` keys and values, for which there is room, and where it
        // stopped: of a hash table the number of a bucket, 32 bits. All live until the call returns, and it wants no
        // options.
        let outcome = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from,
                position,
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                ptr::null(),
            )
        };
        let error = (outcome != 0).then(io::Error::last_os_error);
        let is_over = error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
        if let Some(error) = error.filter(|_| !is_over) {
            return Err(error);
        }
        let found = keys.chunks_exact(key_bytes).zip(values.chunks_exact(value_bytes)).take(count as usize);
        all.extend(found.map(|(key, value)| (key.to_vec(), value.to_vec())));
        if is_over {
            return Ok(all);
        }
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::{MapFlags, MapType};
    use std::collections::{BTreeMap, BTreeSet};
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

    /// A process that stays is found once, however many come and go meanwhile. Planted break that was seen red: from
    /// key to key.
    /// Promise: tags-processes.
    #[test]
    fn a_process_that_stays_is_found_once_while_others_come_and_go() {
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
                entries(&map, ROOM).unwrap().into_iter().for_each(|(key, _)| *found.entry(key).or_default() += 1);
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

    /// Promise: tags-processes.
    #[test]
    fn a_table_is_read_whole_whether_empty_or_full() {
        let Some(map) = map() else { return };
        assert_eq!(entries(&map, ROOM).unwrap(), []);
        (0..ROOM).for_each(|key| put(&map, key));
        let found: BTreeMap<_, _> = entries(&map, ROOM).unwrap().into_iter().collect();
        let expected = (0..ROOM).map(|key| (key.to_ne_bytes().to_vec(), u64::from(key).to_ne_bytes().to_vec()));
        assert_eq!(found, expected.collect());
    }

    /// Broken on purpose and seen red: a batch that is not full is taken for the last one.
    /// Promise: tags-processes.
    #[test]
    fn a_table_is_read_whole_in_parts_that_buckets_do_not_fill() {
        let Some(map) = map() else { return };
        (0..ROOM).for_each(|key| put(&map, key));
        for room in [ROOM - 1, ROOM / 2 + 1, 100] {
            let found = entries(&map, room).unwrap();
            let keys: BTreeSet<_> = found.iter().map(|(key, _)| key).collect();
            assert_eq!((found.len(), keys.len()), (ROOM as usize, ROOM as usize), "room for {room}");
        }
        assert!(entries(&map, 1).is_err(), "a bucket has more, and that is no end");
    }
}
