//! A machine that loses its power: two disks with volatile caches, and what each sector may hold afterwards.

pub mod disks;
pub mod oracle;
