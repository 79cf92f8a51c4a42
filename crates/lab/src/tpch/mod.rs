//! A TPC-H data set and queries on it, for a real PostgreSQL.
//!
//! The eight tables are those of the TPC-H specification (clauses 1.4 and 4.2.3). They have its columns, its numbers of
//! rows for a scale factor, and the values that the queries' conditions use. They are not dbgen's, bit by bit: words,
//! comments and random numbers are ours, so what queries answer is no benchmark's. Each row is drawn from a stream of
//! its own, which a seed, the table and the row's number begin. So the lines of an order are the same for both of their
//! tables, and nothing is kept in memory.
//!
//! [`sql`] has the tables, the indexes of DBT-3 and the queries.

mod generator;
pub mod sql;
mod words;

pub use generator::Generator;

/// The allowed scale factors: from the smallest with four suppliers for each part to one that no volume in memory has
/// room for.
pub const SCALES: std::ops::RangeInclusive<f64> = 0.001..=100.0;

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

#[cfg(test)]
mod tests;
