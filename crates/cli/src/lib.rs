//! The `plimsoll` command as a library, so that tests and the demonstration call the same code as people do.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`config`] | the configuration file: reading, checking, messages |
//! | [`arguments`] | the command line |
//! | [`commands`] | one file a command |
//! | [`table`] | how tables are printed |
//! | [`outcome`] | how a command ends: exit codes |

pub mod arguments;
pub mod commands;
pub mod config;
pub mod outcome;
pub mod table;
