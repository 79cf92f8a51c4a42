//! TPC-H-like: the I/O of the decision-support queries that Differentiated Storage Services runs (2, 17, 18 and 19).
//!
//! A query is scans of tables, random look-ups by an index, and temporary files, one after the other. Which of them is
//! ours: it follows from each query's text in the TPC-H specification, its cardinalities and the selectivity of its
//! predicates. The plan is that of a row store with indexes on keys:
//!
//! | query | plan |
//! | --- | --- |
//! | 2 | scan part; for the 1 in 250 of the size and type (1/50 x 1/5), look up 4 suppliers each in partsupp, twice |
//! | 17 | scan part; for the 1 in 1000 of the brand and container (1/25 x 1/40), look up 30 lines each, twice |
//! | 18 | scan lineitem and sort its orders and quantities through a temporary file; scan orders; scan customer |
//! | 19 | scan part; scan lineitem |
//!
//! Every read and write has a class, as in the paper's PostgreSQL (table 6): a table read in order, a table read by its
//! index, an index, a temporary table. So a table is opened twice, once for either way of reading.

use crate::design::{Common, Design};
use crate::file::{Before, FileSpec};
use crate::random::Random;
use crate::script::{Generator, Program, Script};
use crate::step::{Action, FileIndex};
use crate::thread::ThreadSpec;
use plimsoll_core::Class;

/// Bytes of a page and of a call (PostgreSQL: BLCKSZ).
const PAGE: u64 = 8192;
/// Bytes that a row takes beside its data: tuple header 24, line pointer 4, alignment and page header 8 (PostgreSQL).
const ROW_OVERHEAD: u64 = 36;
/// Bytes that Q18's sort writes for a line: key, quantity and the tuple's header in the sort's file. Ours.
const SORT_BYTES_PER_LINE: u64 = 32;
/// Bytes of an index for a row: tuple header 8, key 8, line pointer 4 (PostgreSQL's B-tree).
const INDEX_BYTES_PER_ROW: u64 = 20;
/// Rows of a part in partsupp and in lineitem (TPC-H: 4 suppliers of a part; 6,000,000 lines of 200,000 parts).
const SUPPLIERS_PER_PART: u64 = 4;
const LINES_PER_PART: u64 = 30;
/// Parts for each that a query chooses (TPC-H, clauses 2.4.2 and 2.4.17).
const PARTS_PER_CHOSEN_Q2: u64 = 250;
const PARTS_PER_CHOSEN_Q17: u64 = 1000;
/// The subquery looks at the same rows again.
const PASSES: u64 = 2;

/// A table: its name, rows for each unit of scale, and bytes of data in a row (TPC-H, clause 4.2.5).
struct Table(&'static str, u64, u64);

const TABLES: [Table; 5] = [
    Table("part", 200_000, 155),
    Table("partsupp", 800_000, 144),
    Table("customer", 150_000, 179),
    Table("orders", 1_500_000, 104),
    Table("lineitem", 6_000_000, 112),
];
const PART: u64 = 0;
const PARTSUPP: u64 = 1;
const CUSTOMER: u64 = 2;
const ORDERS: u64 = 3;
const LINEITEM: u64 = 4;
/// The index of a table is the file so many after it.
const INDEX: u64 = TABLES.len() as u64;
/// The index that none of the queries uses is the file so many after the first of them.
const UNUSED: u64 = 2 * INDEX;

/// The other indexes that DBT-3, the TPC-H kit for PostgreSQL of the paper's time, makes: name and table.
const DBT3_INDEXES: [(&str, u64); 13] = [
    ("pk_lineitem", LINEITEM),
    ("i_l_shipdate", LINEITEM),
    ("i_l_suppkey_partkey", LINEITEM),
    ("i_l_suppkey", LINEITEM),
    ("i_l_receiptdate", LINEITEM),
    ("i_l_orderkey", LINEITEM),
    ("i_l_orderkey_quantity", LINEITEM),
    ("i_l_commitdate", LINEITEM),
    ("i_o_orderdate", ORDERS),
    ("i_o_custkey", ORDERS),
    ("i_c_nationkey", CUSTOMER),
    ("pk_partsupp", PARTSUPP),
    ("i_ps_suppkey", PARTSUPP),
];

/// Classes (paper, table 6).
const TEMPORARY_TABLE: Class = class(22);
const RANDOM_TABLE: Class = class(23);
const SEQUENTIAL_TABLE: Class = class(24);
const INDEX_FILE: Class = class(25);

const fn class(number: u8) -> Class {
    Class::new(number).expect("five bits")
}

/// The queries that the paper runs (section 5.2).
pub(crate) const QUERIES: [u64; 4] = [2, 17, 18, 19];

#[derive(Clone, Copy, Debug)]
enum Phase {
    Begin,
    Scan(u64),
    /// So many keys in the index of a table: a page of the index, and so many pages of the table.
    LookUp {
        table: u64,
        keys: u64,
        rows: u64,
    },
    /// So many bytes through a temporary file.
    Sort(u64),
    End,
}

/// TPC-H-like queries, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct TpcH {
    pub(crate) queries: Vec<u64>,
    pub(crate) scale: u64,
    /// Whether the indexes are there that none of the queries uses.
    pub(crate) has_all_indexes: bool,
}

impl TpcH {
    /// Files that are there before: tables, then indexes.
    fn prepared(&self) -> u64 {
        UNUSED + if self.has_all_indexes { DBT3_INDEXES.len() as u64 } else { 0 }
    }

    fn temporary(&self) -> FileIndex {
        FileIndex(self.prepared())
    }

    /// A table, opened to be read by its index.
    fn by_index(&self, table: u64) -> FileIndex {
        FileIndex(self.prepared() + 1 + table)
    }

    fn index_bytes(&self, table: u64) -> u64 {
        (self.scale * TABLES[table as usize].1 * INDEX_BYTES_PER_ROW).next_multiple_of(PAGE)
    }

    fn table_bytes(&self, table: u64) -> u64 {
        let Table(_, rows, bytes) = TABLES[table as usize];
        (self.scale * rows * (bytes + ROW_OVERHEAD)).next_multiple_of(PAGE)
    }

    /// Bytes of a file: a table or its index.
    fn bytes(&self, file: u64) -> u64 {
        match file.checked_sub(INDEX) {
            None => self.table_bytes(file),
            Some(table) => self.index_bytes(table),
        }
    }

    fn phases(&self, query: u64) -> Vec<Phase> {
        let Table(_, parts, _) = TABLES[PART as usize];
        let Table(_, lines, _) = TABLES[LINEITEM as usize];
        let parts = parts * self.scale;
        let look_up = |table, one_in, rows| Phase::LookUp { table, keys: parts / one_in * PASSES, rows };
        let middle = match query {
            2 => vec![Phase::Scan(PART), look_up(PARTSUPP, PARTS_PER_CHOSEN_Q2, SUPPLIERS_PER_PART)],
            17 => vec![Phase::Scan(PART), look_up(LINEITEM, PARTS_PER_CHOSEN_Q17, LINES_PER_PART)],
            18 => vec![
                Phase::Scan(LINEITEM),
                Phase::Sort(lines * self.scale * SORT_BYTES_PER_LINE),
                Phase::Scan(ORDERS),
                Phase::Scan(CUSTOMER),
            ],
            _ => vec![Phase::Scan(PART), Phase::Scan(LINEITEM)],
        };
        [vec![Phase::Begin], middle, vec![Phase::End]].concat()
    }
}

impl Design for TpcH {
    fn file_count(&self, _common: &Common) -> u64 {
        self.prepared()
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        let name = |table: u64| TABLES[(table % INDEX) as usize].0;
        let of_class = |spec, class| FileSpec { class: Some(class), ..spec };
        let (number, first_by_index) = (file.0, self.by_index(0).0);
        match number {
            _ if number < INDEX => {
                of_class(FileSpec::filled(name(number).to_owned(), self.bytes(number)), SEQUENTIAL_TABLE)
            }
            _ if number < UNUSED => {
                of_class(FileSpec::filled(format!("{}.index", name(number)), self.bytes(number)), INDEX_FILE)
            }
            _ if number < self.prepared() => {
                let (name, table) = DBT3_INDEXES[(number - UNUSED) as usize];
                of_class(FileSpec::filled(name.to_owned(), self.index_bytes(table)), INDEX_FILE)
            }
            _ if number < first_by_index => {
                of_class(FileSpec::with("temporary".to_owned(), 0, Before::Absent), TEMPORARY_TABLE)
            }
            _ => {
                let table = (number - first_by_index) % INDEX;
                of_class(FileSpec::filled(name(table).to_owned(), self.bytes(table)), RANDOM_TABLE)
            }
        }
    }

    fn thread_count(&self, _common: &Common) -> u32 {
        1
    }

    fn thread(&self, _common: &Common, _thread: u32) -> ThreadSpec {
        let by_index = (0..INDEX).map(|table| self.by_index(table));
        ThreadSpec::new("query", (0..UNUSED).map(FileIndex).chain(by_index).collect())
    }

    fn program(&self, _common: &Common, _seed: u64, _thread: u32) -> Program {
        let phases: Vec<Phase> = self.queries.iter().flat_map(|&query| self.phases(query)).collect();
        Box::new(QueryThread { design: self.clone(), phases: phases.into_iter(), table: 0, keys: 0, rows: 0 })
    }
}

struct QueryThread {
    design: TpcH,
    phases: std::vec::IntoIter<Phase>,
    /// Where keys are looked up, how many are to come, and how many rows each has.
    table: u64,
    keys: u64,
    rows: u64,
}

impl QueryThread {
    fn read_any(&self, file: FileIndex, bytes: u64, random: &mut Random, script: &mut Script) {
        let offset = random.below(bytes / PAGE) * PAGE;
        script.call(Action::Read { file, offset, length: PAGE });
    }
}

impl Generator for QueryThread {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        if self.keys == 0 {
            match self.phases.next() {
                None => return,
                Some(Phase::Begin) => script.begin(None),
                Some(Phase::End) => script.end(),
                Some(Phase::Scan(table)) => {
                    script.sweep(FileIndex(table), true, 0..self.design.table_bytes(table), PAGE);
                }
                Some(Phase::Sort(bytes)) => {
                    let file = self.design.temporary();
                    script.call(Action::Create { file });
                    script.sweep(file, false, 0..bytes, PAGE);
                    script.sweep(file, true, 0..bytes, PAGE);
                    script.call(Action::Close { file });
                    script.call(Action::Unlink { file });
                }
                Some(Phase::LookUp { table, keys, rows }) => (self.table, self.keys, self.rows) = (table, keys, rows),
            }
        }
        if self.keys > 0 {
            self.keys -= 1;
            let (index, table) = (FileIndex(INDEX + self.table), self.design.by_index(self.table));
            self.read_any(index, self.design.index_bytes(self.table), random, script);
            for _ in 0..self.rows {
                self.read_any(table, self.design.table_bytes(self.table), random, script);
            }
        }
    }
}
