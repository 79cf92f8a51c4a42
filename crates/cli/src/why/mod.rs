//! `plimsoll why`: who caused the I/O of each disk, by process, class and file.
//!
//! Tools that look at who *submits* show threads of the kernel: one writes back what everybody dirtied, another commits what
//! everybody changed. Here programs in the kernel follow each block back to who caused it ([`plimsoll_tags`]), and count it
//! with the thread through which it came.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`people`] | who accounts are: processes and their cgroups |
//! | [`report`] | rows of a disk from what was counted |
//! | [`watch`] | one disk, watched |

pub mod people;
pub mod report;
pub mod watch;
