//! Says the classes of files for programs that do not say them themselves.
//!
//! A classifier finds out from outside what a program keeps in each file, and says each file's class to the daemon
//! ([`plimsoll_classes`]). It keeps watching, since files come, go and change their use.
//!
//! | module | of |
//! | --- | --- |
//! | [`file_system`] | what ext4 and XFS keep at fixed places of a volume, for requests that say nothing |
//! | [`postgresql`] | a PostgreSQL cluster: the classes of table 6 of Differentiated Storage Services |

#![forbid(unsafe_code)]

pub mod file_system;
pub mod postgresql;
