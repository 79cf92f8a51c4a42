//! A machine whose power fails: two disks with volatile caches, and what each sector may hold afterwards.

pub mod disks;
pub mod oracle;
