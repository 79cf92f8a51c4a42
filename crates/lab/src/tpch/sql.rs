//! What is said to the server: tables and their columns (TPC-H, clause 1.4), the indexes that DBT-3 makes, and the
//! queries.

use super::Table;

/// The queries that there are: those that the paper calls I/O intensive (Differentiated Storage Services, section 5.2).
pub const QUERIES: [u64; 4] = [2, 17, 18, 19];

/// A statement that makes a table, without indexes.
pub fn create(table: Table) -> String {
    format!("CREATE TABLE {} ({})", table.name(), columns(table))
}

fn columns(table: Table) -> &'static str {
    match table {
        Table::Region => "r_regionkey integer, r_name char(25), r_comment varchar(152)",
        Table::Nation => "n_nationkey integer, n_name char(25), n_regionkey integer, n_comment varchar(152)",
        Table::Supplier => {
            "s_suppkey integer, s_name char(25), s_address varchar(40), s_nationkey integer, s_phone char(15), \
             s_acctbal numeric(15,2), s_comment varchar(101)"
        }
        Table::Customer => {
            "c_custkey integer, c_name varchar(25), c_address varchar(40), c_nationkey integer, c_phone char(15), \
             c_acctbal numeric(15,2), c_mktsegment char(10), c_comment varchar(117)"
        }
        Table::Part => {
            "p_partkey integer, p_name varchar(55), p_mfgr char(25), p_brand char(10), p_type varchar(25), p_size integer, \
             p_container char(10), p_retailprice numeric(15,2), p_comment varchar(23)"
        }
        Table::PartSupplier => {
            "ps_partkey integer, ps_suppkey integer, ps_availqty integer, ps_supplycost numeric(15,2), ps_comment varchar(199)"
        }
        Table::Orders => {
            "o_orderkey bigint, o_custkey integer, o_orderstatus char(1), o_totalprice numeric(15,2), o_orderdate date, \
             o_orderpriority char(15), o_clerk char(15), o_shippriority integer, o_comment varchar(79)"
        }
        Table::LineItem => {
            "l_orderkey bigint, l_partkey integer, l_suppkey integer, l_linenumber integer, l_quantity numeric(15,2), \
             l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2), l_returnflag char(1), \
             l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct char(25), \
             l_shipmode char(10), l_comment varchar(44)"
        }
    }
}

/// Indexes of DBT-3, the TPC-H kit for PostgreSQL of the paper's time: name, table, columns. Those with names that
/// begin with `pk` are primary keys.
pub const INDEXES: [(&str, Table, &str); 23] = [
    ("pk_region", Table::Region, "r_regionkey"),
    ("pk_nation", Table::Nation, "n_nationkey"),
    ("pk_supplier", Table::Supplier, "s_suppkey"),
    ("pk_customer", Table::Customer, "c_custkey"),
    ("pk_part", Table::Part, "p_partkey"),
    ("pk_partsupp", Table::PartSupplier, "ps_partkey, ps_suppkey"),
    ("pk_orders", Table::Orders, "o_orderkey"),
    ("pk_lineitem", Table::LineItem, "l_orderkey, l_linenumber"),
    ("i_l_shipdate", Table::LineItem, "l_shipdate"),
    ("i_l_suppkey_partkey", Table::LineItem, "l_partkey, l_suppkey"),
    ("i_l_partkey", Table::LineItem, "l_partkey"),
    ("i_l_suppkey", Table::LineItem, "l_suppkey"),
    ("i_l_receiptdate", Table::LineItem, "l_receiptdate"),
    ("i_l_orderkey", Table::LineItem, "l_orderkey"),
    ("i_l_orderkey_quantity", Table::LineItem, "l_orderkey, l_quantity"),
    ("i_c_nationkey", Table::Customer, "c_nationkey"),
    ("i_o_orderdate", Table::Orders, "o_orderdate"),
    ("i_o_custkey", Table::Orders, "o_custkey"),
    ("i_s_nationkey", Table::Supplier, "s_nationkey"),
    ("i_ps_partkey", Table::PartSupplier, "ps_partkey"),
    ("i_ps_suppkey", Table::PartSupplier, "ps_suppkey"),
    ("i_n_regionkey", Table::Nation, "n_regionkey"),
    ("i_l_commitdate", Table::LineItem, "l_commitdate"),
];

/// A statement that makes one of [`INDEXES`], as large as the paper's. Since 2020 (PostgreSQL 13) servers keep equal
/// keys once only. That makes an index by day or part a third of its former size.
pub fn create_index((name, table, columns): (&str, Table, &str)) -> String {
    match name.starts_with("pk_") {
        true => format!("ALTER TABLE {} ADD CONSTRAINT {name} PRIMARY KEY ({columns})", table.name()),
        false => format!("CREATE INDEX {name} ON {} ({columns}) WITH (deduplicate_items = off)", table.name()),
    }
}

/// One of [`QUERIES`], with the values for which the specification has its answers.
///
/// # Panics
/// If it is none of them.
pub fn query(number: u64) -> &'static str {
    match number {
        2 => CHEAPEST_SUPPLIER,
        17 => SMALL_QUANTITIES,
        18 => LARGE_ORDERS,
        19 => DISCOUNTED_REVENUE,
        _ => panic!("there is no query {number}"),
    }
}

/// Query 2: the suppliers in Europe that sell brass parts of size 15 at the lowest cost there.
const CHEAPEST_SUPPLIER: &str = "
    SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
    FROM part
    JOIN partsupp ON ps_partkey = p_partkey
    JOIN supplier ON s_suppkey = ps_suppkey
    JOIN nation ON n_nationkey = s_nationkey
    JOIN region ON r_regionkey = n_regionkey
    WHERE p_size = 15 AND p_type LIKE '%BRASS' AND r_name = 'EUROPE'
      AND ps_supplycost = (
        SELECT min(other.ps_supplycost)
        FROM partsupp other
        JOIN supplier seller ON seller.s_suppkey = other.ps_suppkey
        JOIN nation home ON home.n_nationkey = seller.s_nationkey
        JOIN region place ON place.r_regionkey = home.n_regionkey
        WHERE other.ps_partkey = p_partkey AND place.r_name = 'EUROPE')
    ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
    LIMIT 100";

/// Query 17: what a year loses without orders of less than a fifth of a part's mean quantity.
const SMALL_QUANTITIES: &str = "
    SELECT sum(l_extendedprice) / 7 AS yearly
    FROM part
    JOIN lineitem line ON line.l_partkey = p_partkey
    WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX'
      AND line.l_quantity < (SELECT avg(same.l_quantity) / 5 FROM lineitem same WHERE same.l_partkey = p_partkey)";

/// Query 18: orders of more than 300 pieces, and their customers.
const LARGE_ORDERS: &str = "
    SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS pieces
    FROM customer
    JOIN orders ON o_custkey = c_custkey
    JOIN lineitem ON l_orderkey = o_orderkey
    WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
    GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
    ORDER BY o_totalprice DESC, o_orderdate
    LIMIT 100";

/// Query 19: revenue of three kinds of parts that were sent by air and handed over in person.
const DISCOUNTED_REVENUE: &str = "
    SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
    FROM lineitem
    JOIN part ON p_partkey = l_partkey
    WHERE l_shipinstruct = 'DELIVER IN PERSON' AND l_shipmode IN ('AIR', 'REG AIR') AND p_size >= 1
      AND (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
             AND l_quantity BETWEEN 1 AND 11 AND p_size <= 5
        OR p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
             AND l_quantity BETWEEN 10 AND 20 AND p_size <= 10
        OR p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
             AND l_quantity BETWEEN 20 AND 30 AND p_size <= 15)";
