//! `plimsoll why`: the causes of each disk's I/O, by process, class and file.
//!
//! Tools that look at the *submitter* show threads of the kernel: one writes back what every process dirtied, another
//! commits what every process changed. Here programs in the kernel follow each block back to the process that caused it
//! ([`plimsoll_tags`]), and count it with the thread that submitted it.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`people`] | which processes and cgroups the accounts are |
//! | [`report`] | rows of a disk from what was counted |
//! | [`watch`] | one disk, watched |

pub mod people;
pub mod report;
pub mod watch;
