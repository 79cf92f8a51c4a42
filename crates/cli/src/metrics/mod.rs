//! The table of metrics: one row for each field of a running daemon in the control socket's answers.
//!
//! A row has the field's name in JSON, its name for monitoring, its unit, its help and its kind. It says how it is read
//! out of a status, and which columns show it. The answers of the control socket follow from the rows. So does what
//! `plimsoll status`, `pool list`, `volume list` and `cache status` print, and so do the tables of `docs/control.md`.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`metric`] | a row; kinds, units, columns |
//! | [`reading`] | the value of a field, and how JSON has it |
//! | [`section`] | the rows of one kind of subject; JSON of a subject; tables for a terminal |
//! | [`accounts`], [`caches`], [`devices`], [`emulation`], [`executor`], [`tenants`], [`volumes`] | the rows |
//! | [`sentence`], [`text`] | what `status` says besides tables; the texts of commands |
//! | [`walk`](mod@walk) | all subjects of an answer, with their labels |
//! | [`coverage`] | fields of an answer that have no row |

pub mod accounts;
pub mod caches;
pub mod coverage;
pub mod devices;
pub mod emulation;
pub mod executor;
pub mod metric;
pub mod reading;
pub mod section;
pub mod sentence;
pub mod tenants;
pub mod text;
pub mod volumes;
pub mod walk;

use metric::Rows;

/// The answers that say how a daemon is, with the sections of what they have.
pub static ANSWERS: &[(&str, &dyn Rows)] = &[
    ("status", &devices::DAEMON),
    ("pools", &accounts::POOL),
    ("volumes", &volumes::SERVED_VOLUME),
    ("caches", &caches::CACHED_VOLUME),
    ("tenants", &tenants::TENANT),
];

#[cfg(test)]
mod tests;
