//! Says the classes of files for programs that do not say them themselves.
//!
//! A classifier looks from outside at what a program keeps where, says to the daemon what class each file is
//! ([`plimsoll_classes`]), and goes on looking, since files come, go and change what they are.
//!
//! | module | of |
//! | --- | --- |
//! | [`file_system`] | what ext4 and XFS keep at fixed places of a volume, for requests that say nothing |
//! | [`postgresql`] | a PostgreSQL cluster: the classes of table 6 of Differentiated Storage Services |

#![forbid(unsafe_code)]

pub mod file_system;
pub mod postgresql;
