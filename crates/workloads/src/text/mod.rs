//! The text form of a workload: a head that says what it is, and what is added behind commas.
//!
//! ```text
//! workload = head { "," addition }
//! ```
//!
//! Words are separated by blanks. Each head says which additions it takes; an error names the column, what was there
//! and what is allowed. `docs/workloads.md` has the whole grammar.

mod additions;
mod heads;
mod words;

use crate::design::{Common, Design};
use crate::plan::Plan;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use words::Words;

pub use words::WorkloadError;

/// A workload that was read from its text.
#[derive(Clone, Debug)]
pub struct Workload {
    text: String,
    design: Arc<dyn Design>,
    common: Common,
}

impl Workload {
    /// The workload with a seed, 0 and up: the same text and the same seed are always the same plan.
    pub fn plan(&self, seed: u64) -> Plan {
        Plan::new(self.design.clone(), self.common.clone(), seed)
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    /// Reads a workload.
    ///
    /// # Errors
    /// If a word is not what is allowed there: its column, the word, and what is allowed.
    fn from_str(text: &str) -> Result<Workload, WorkloadError> {
        let mut words = Words::new(text);
        let head = heads::read(&mut words)?;
        let common = additions::read(&mut words, &head)?;
        Ok(Workload { text: text.to_owned(), design: head.design, common })
    }
}

impl fmt::Display for Workload {
    /// Prints the text from which it was read.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}
