//! What makes the rows of a data set, table by table.

mod rows;

use super::{Table, words};
use std::io::{self, Write};

/// Rows are handed over in pieces of about so many bytes.
const PIECE_BYTES: usize = 64 << 10;

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
    /// The data set of a scale factor, one of [`SCALES`](super::SCALES). Equal seeds give equal bytes.
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

    /// Writes a table as `COPY ... FROM STDIN` takes it: a row a line, tabs between columns. Answers with how many
    /// rows.
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
