//! Reads TOML for people. One run finds every mistake of a file, and each message is one line with the place, the value
//! and the allowed values: `FILE:LINE: KEY: got X, allowed Y`.
//!
//! A file is parsed into tables that keep the place of every key ([`syntax`]). A [`Section`] is asked for its keys one
//! by one. A key that is not asked for is an unknown key. The configuration of the daemon and the scenarios of the
//! laboratory are read so. The keys of the configuration are described beside the code that reads them ([`key`]).
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`problem`] | [`Problem`], [`Place`], and the error that holds all of a file |
//! | [`syntax`] | from text to tables |
//! | [`reader`] | [`Section`]: keys with their types, units and ranges |
//! | [`key`] | a key with its description, from which it is read and its page is made |
//! | [`allocation`] | the keys that promise an account something |
//! | [`scheme`] | classes of blocks: what they are called, which are kept longest, which may enter a cache |
//! | [`keys`] | the keys of a file with their values, to compare two versions of it |
//! | [`file`] | text from a file, of bounded length |
//! | [`suggest`] | "did you mean" |

#![forbid(unsafe_code)]

pub mod allocation;
pub mod file;
pub mod key;
pub mod keys;
pub mod problem;
pub mod reader;
pub mod scheme;
pub mod suggest;
pub mod syntax;

pub use allocation::allocation;
pub use problem::{ConfigurationError, Place, Problem, quoted};
pub use reader::{LineIndex, Section, name_like, name_problem};
