//! A TPC-H data set and queries on it, for a real PostgreSQL.
//!
//! The eight tables have the columns, the numbers of rows for a scale factor, and what the queries' conditions look at, of the TPC-H
//! specification (clauses 1.4 and 4.2.3). They are not dbgen's, bit by bit: words, comments and random numbers are ours, so what
//! queries answer is no benchmark's. Each row is drawn from a stream of its own, which a seed, the table and the row's number begin;
//! so the lines of an order are the same for both tables that they are in, and nothing is kept in memory.
//!
//! [`sql`] has the tables, the indexes of DBT-3 and the queries.

mod rows;
pub mod sql;
mod words;

use std::io::{self, Write};

/// The scale factors that can be made: from the smallest with four suppliers for each part to one that no volume in memory has room for.
pub const SCALES: std::ops::RangeInclusive<f64> = 0.001..=100.0;

/// Rows are handed over in pieces of about so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// A table of TPC-H.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Five of them.
    Region,
    /// Twenty-five.
    Nation,
    /// A seller of parts.
    Supplier,
    /// A buyer of parts.
    Customer,
    /// What is sold.
    Part,
    /// Which supplier sells which part, for how much: four suppliers for each part.
    PartSupplier,
    /// An order.
    Orders,
    /// A line of an order: one part of one supplier. An order has one to seven.
    LineItem,
}

impl Table {
    /// In the order in which they are loaded: what a row refers to is there already.
    pub const ALL: [Table; 8] = [
        Table::Region,
        Table::Nation,
        Table::Supplier,
        Table::Customer,
        Table::Part,
        Table::PartSupplier,
        Table::Orders,
        Table::LineItem,
    ];

    /// As SQL has it.
    pub fn name(self) -> &'static str {
        match self {
            Table::Region => "region",
            Table::Nation => "nation",
            Table::Supplier => "supplier",
            Table::Customer => "customer",
            Table::Part => "part",
            Table::PartSupplier => "partsupp",
            Table::Orders => "orders",
            Table::LineItem => "lineitem",
        }
    }
}

/// Makes the rows of a data set.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    seed: u64,
    suppliers: u64,
    customers: u64,
    parts: u64,
    orders: u64,
}

impl Generator {
    /// The data set of a scale factor, one of [`SCALES`]. Equal seeds give equal bytes.
    pub fn new(scale: f64, seed: u64) -> Generator {
        let rows = |at_scale_1: u32| (f64::from(at_scale_1) * scale).round() as u64;
        Generator {
            seed,
            suppliers: rows(10_000),
            customers: rows(150_000),
            parts: rows(200_000),
            orders: rows(1_500_000),
        }
    }

    /// Writes a table as `COPY ... FROM STDIN` takes it: a row a line, tabs between columns. Answers with how many rows.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, table: Table, out: &mut impl Write) -> io::Result<u64> {
        let (mut piece, mut rows) = (String::with_capacity(PIECE_BYTES * 2), 0);
        for number in 0..self.keys(table) {
            rows += self.put(table, number, &mut piece);
            if piece.len() >= PIECE_BYTES {
                out.write_all(piece.as_bytes())?;
                piece.clear();
            }
        }
        out.write_all(piece.as_bytes())?;
        Ok(rows)
    }

    /// How many rows a table has; of lines, how many orders they are of, and of parts' suppliers, how many parts.
    fn keys(&self, table: Table) -> u64 {
        match table {
            Table::Region => words::REGIONS.len() as u64,
            Table::Nation => words::NATIONS.len() as u64,
            Table::Supplier => self.suppliers,
            Table::Customer => self.customers,
            Table::Part | Table::PartSupplier => self.parts,
            Table::Orders | Table::LineItem => self.orders,
        }
    }
}

#[cfg(test)]
mod tests;
