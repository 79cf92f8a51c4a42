//! The workloads, one file each.

pub(crate) mod access;
pub(crate) mod create;
pub(crate) mod database;
pub(crate) mod file_pool;
pub(crate) mod sfs2014;
pub(crate) mod spc1;
pub(crate) mod spin;
pub(crate) mod stream;
pub(crate) mod tpcb;
pub(crate) mod tpch;
