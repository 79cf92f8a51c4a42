//! The `plimsoll` command as a library, so that tests and the demo call the same code.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`arguments`] | the command line |
//! | [`commands`] | one file a command |
//! | [`config`] | the configuration file: reading, checking, messages |
//! | [`control`] | the control socket: protocol, daemon's end, commands' end |
//! | [`demo`] | the demonstration: two tenants, one slow disk |
//! | [`metrics`] | the table of metrics: what is said of a running daemon, one row a field |
//! | [`outcome`] | how a command ends: exit codes |
//! | [`signals`] | what ends a command that has something to put away |
//! | [`table`] | how tables are printed |
//! | [`up`] | the daemon |
//! | [`why`] | which processes caused the I/O of disks |

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "it panics when the reader has gone, as behind `| head`: see commands::print")]

pub mod arguments;
pub mod commands;
pub mod config;
pub mod control;
pub mod demo;
pub mod metrics;
pub mod outcome;
pub mod signals;
pub mod table;
pub mod up;
pub mod why;
