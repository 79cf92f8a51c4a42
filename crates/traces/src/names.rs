//! Names of hosts and files, numbered in the order of their appearance, in bounded memory.

use crate::fault::FieldError;
use std::collections::BTreeMap;

/// Names that a trace may bring.
const NAMES_MAX: usize = 4096;
/// The longest name, bytes: what fio reads (`read_iolog` in its `iolog.c`).
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// The names of one trace.
pub(crate) struct Names {
    field: &'static str,
    numbers: BTreeMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Names {
    /// No names yet; errors call one `field`.
    pub fn new(field: &'static str) -> Names {
        Names { field, numbers: BTreeMap::new(), names: Vec::new() }
    }

    /// The number of `name`, if it came before.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The number of `name`, which may be new.
    pub fn number(&mut self, name: &str) -> Result<u32, FieldError> {
        if let Some(number) = self.find(name) {
            return Ok(number);
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(FieldError::new(self.field, name, format!("a name of 1 to {NAME_BYTES_MAX} bytes")));
        }
        if self.names.len() == NAMES_MAX {
            return Err(FieldError::new(self.field, name, format!("one of the {NAMES_MAX} names before, not another")));
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        Ok(number)
    }

    /// The name with that number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(|name| &**name)
    }
}
