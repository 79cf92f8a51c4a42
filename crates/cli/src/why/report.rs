//! Rows of a disk, from what the kernel's programs counted.
//!
//! A row is one cause, one class, one file. Bytes that several have caused together are divided among them, so that the
//! rows add up to what the disk did. The remainder goes to the first.

use super::people::{People, Person};
use plimsoll_tags::Flow;
use serde::Serialize;
use std::collections::BTreeMap;

/// The class of a journal's blocks; below it are those of metadata (`classes/ext4.toml`).
const JOURNAL: u8 = 7;

/// What was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Contents of files, or of a bare device.
    Data,
    /// The journal or log.
    Journal,
    /// Metadata in its place.
    Metadata,
}

impl Kind {
    fn of(flow: &Flow) -> Kind {
        match flow.class.number() {
            JOURNAL => Kind::Journal,
            1..JOURNAL => Kind::Metadata,
            _ => Kind::Data,
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Journal => "journal",
            Kind::Metadata => "metadata",
        }
    }
}

/// A task that handed I/O to the block layer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Submitter {
    /// Its name; of the kernel's workers, which have numbers, the kind only.
    pub name: String,
    /// Whether it is one of the kernel's.
    pub is_kernel_thread: bool,
}

impl Submitter {
    fn of(flow: &Flow) -> Submitter {
        let name = if flow.is_kernel_thread { flow.submitter.split('/').next().unwrap_or_default() } else { "" };
        let name = if name == "kworker" { name } else { &flow.submitter };
        Submitter { name: name.to_owned(), is_kernel_thread: flow.is_kernel_thread }
    }
}

/// What one cause did in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cause.
    pub who: Person,
    /// What.
    pub kind: Kind,
    /// The file's inode; 0 where it belongs to none.
    pub inode: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The submitters through which it came, with bytes.
    pub through: BTreeMap<Submitter, u64>,
}

/// Rows, those with most bytes first.
pub fn rows(flows: &[Flow], people: &People) -> Vec<Row> {
    let mut rows: BTreeMap<(Option<u32>, Kind, u64), Row> = BTreeMap::new();
    for flow in flows {
        let accounts: Vec<u32> = (0..u64::BITS).filter(|bit| flow.causes_mask >> bit & 1 == 1).collect();
        let causes: Vec<Option<u32>> =
            if accounts.is_empty() { vec![None] } else { accounts.into_iter().map(Some).collect() };
        let (count, kind) = (causes.len() as u64, Kind::of(flow));
        for (place, account) in (0..).zip(causes) {
            let bytes = flow.bytes / count + if place == 0 { flow.bytes % count } else { 0 };
            let row = rows.entry((account, kind, flow.inode)).or_insert_with(|| Row {
                who: account.map_or_else(Person::unknown, |account| people.person(account)),
                kind,
                inode: flow.inode,
                read_bytes: 0,
                written_bytes: 0,
                through: BTreeMap::new(),
            });
            *if flow.is_write { &mut row.written_bytes } else { &mut row.read_bytes } += bytes;
            *row.through.entry(Submitter::of(flow)).or_default() += bytes;
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.read_bytes + row.written_bytes));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Class;
    use proptest::prelude::*;

    fn flow(causes_mask: u64, class: u8, inode: u64, submitter: &str, is_write: bool, bytes: u64) -> Flow {
        let is_kernel_thread = submitter.contains('/');
        let class = Class::new(class).unwrap();
        Flow { causes_mask, inode, class, is_write, submitter: submitter.to_owned(), is_kernel_thread, bytes }
    }

    #[test]
    fn what_several_caused_is_shared_and_workers_are_one() {
        let flows = [
            flow(0b110, JOURNAL, 0, "jbd2/sda-8", true, 8193),
            flow(0b010, 9, 12, "kworker/u8:1-fl", true, 65_536),
            flow(0b010, 9, 12, "kworker/1:0", true, 4096),
            flow(0b010, 9, 12, "cat", false, 4096),
            flow(0, 3, 0, "kworker/1:0", true, 1),
        ];
        let rows = rows(&flows, &People::default());
        let seen: Vec<_> = rows.iter().map(|row| (row.kind, row.read_bytes, row.written_bytes)).collect();
        let expected =
            [(Kind::Data, 4096, 69_632), (Kind::Journal, 0, 4097), (Kind::Journal, 0, 4096), (Kind::Metadata, 0, 1)];
        assert_eq!(seen, expected);
        let through: Vec<_> = rows[0].through.iter().map(|(by, &bytes)| (by.name.as_str(), bytes)).collect();
        assert_eq!(through, [("cat", 4096), ("kworker", 69_632)]);
        assert_eq!(rows[1].through.keys().next().unwrap().name, "jbd2/sda-8");
    }

    proptest! {
        #[test]
        fn rows_add_up_to_what_the_disk_did(
            flows in prop::collection::vec((0u64..16, 0u8..20, 0u64..3, any::<bool>(), 0u64..1 << 40), 0..40),
        ) {
            let flows: Vec<Flow> =
                flows.into_iter().map(|(mask, class, inode, is_write, bytes)| {
                    flow(mask, class, inode, "task", is_write, bytes)
                }).collect();
            let rows = rows(&flows, &People::default());
            let sum = |is_write| flows.iter().filter(|flow| flow.is_write == is_write).map(|flow| flow.bytes).sum::<u64>();
            prop_assert_eq!(rows.iter().map(|row| row.written_bytes).sum::<u64>(), sum(true));
            prop_assert_eq!(rows.iter().map(|row| row.read_bytes).sum::<u64>(), sum(false));
            for row in &rows {
                prop_assert_eq!(row.through.values().sum::<u64>(), row.read_bytes + row.written_bytes);
            }
        }
    }
}
