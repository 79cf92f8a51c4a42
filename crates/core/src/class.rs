//! What a block means to the software above: its class.
//!
//! Five bits travel with each request (Differentiated Storage Services, section 3). A class's name and importance are
//! *data*: a [`Scheme`] is read from a file (`settings`), so that a site can bring its own.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Number of classes that five bits can name.
pub const CLASSES: usize = 32;
/// Number of priority levels; 0 is the highest.
pub const PRIORITIES: u8 = 16;
/// The priority of what is unclassified, where a scheme does not say (Differentiated Storage Services, table 3).
pub const PRIORITY_UNCLASSIFIED: u8 = 12;

/// The class of a request, 0 to 31; 0 means unclassified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Class(u8);

impl Class {
    /// The class of a block of unknown kind.
    pub const UNCLASSIFIED: Class = Class(0);

    /// A journal's blocks (Differentiated Storage Services, table 3).
    pub const JOURNAL: Class = Class(7);

    /// Whether it is metadata in its place (the same table): superblock to directories.
    pub const fn is_metadata(self) -> bool {
        matches!(self.0, 1..=6)
    }

    /// The class numbered `number`, if it is below 32.
    #[inline]
    pub const fn new(number: u8) -> Option<Class> {
        if (number as usize) < CLASSES { Some(Class(number)) } else { None }
    }

    /// Its number, 0 to 31.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl From<Class> for u8 {
    #[inline]
    fn from(class: Class) -> u8 {
        class.0
    }
}

impl TryFrom<u8> for Class {
    type Error = ClassError;
    fn try_from(number: u8) -> Result<Class, ClassError> {
        Class::new(number).ok_or(ClassError { number })
    }
}

/// A class that five bits cannot name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("class {number} is out of range, allowed are 0 to 31")]
pub struct ClassError {
    /// What was written.
    pub number: u8,
}

/// When a block of a class may be taken into a cache that does not hold it yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Whenever it is read or written.
    #[default]
    Always,
    /// Only while the cache has units to give away and cleans none (Differentiated Storage Services, section 4.4.3).
    WhileIdle,
    /// Never: reads are answered by the store, writes go around the cache.
    Never,
}

/// One class of a scheme, and what becomes of its blocks in a cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassEntry {
    /// Its number.
    pub number: Class,
    /// What people call it.
    pub name: String,
    /// 0 (kept longest) to 15.
    pub priority: u8,
    /// Whether a read takes a block into the cache.
    pub reads: Admission,
    /// Whether a write does.
    pub writes: Admission,
    /// The part of the cache that the class may fill, above 0 to 1.
    pub occupancy_max: f64,
}

impl ClassEntry {
    /// A class that is cached whenever it is met, and may fill the cache.
    pub fn new(number: Class, name: &str, priority: u8) -> ClassEntry {
        let (reads, writes) = (Admission::Always, Admission::Always);
        ClassEntry { number, name: name.to_owned(), priority, reads, writes, occupancy_max: 1.0 }
    }
}

/// What the classes are called and how important each is. The default has none: everything counts as unclassified.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheme {
    entries: [Option<ClassEntry>; CLASSES],
}

impl Scheme {
    /// Describes a class; what was said of its number before is forgotten.
    ///
    /// # Panics
    /// If the priority is not below [`PRIORITIES`], or the occupancy is not above 0 and at most 1.
    pub fn set(&mut self, entry: ClassEntry) {
        assert!(entry.priority < PRIORITIES, "priority {} of {}", entry.priority, entry.name);
        assert!(entry.occupancy_max > 0.0 && entry.occupancy_max <= 1.0, "occupancy of {}", entry.name);
        let number = entry.number.0;
        self.entries[usize::from(number)] = Some(entry);
    }

    /// The classes that it describes, by number.
    pub fn entries(&self) -> impl Iterator<Item = &ClassEntry> {
        self.entries.iter().flatten()
    }

    /// The entry for `class`, if the scheme describes it.
    pub fn entry(&self, class: Class) -> Option<&ClassEntry> {
        self.entries[usize::from(class.0)].as_ref()
    }

    /// The entry called `name`.
    pub fn named(&self, name: &str) -> Option<&ClassEntry> {
        self.entries().find(|entry| entry.name == name)
    }

    /// The entry that decides about `class`: its own, or else that of what is unclassified, if there is one.
    pub fn deciding(&self, class: Class) -> Option<&ClassEntry> {
        self.entry(class).or(self.entry(Class::UNCLASSIFIED))
    }

    /// The priority of `class`: 0 is the highest; a class that the scheme leaves out counts as unclassified.
    pub fn priority(&self, class: Class) -> u8 {
        self.deciding(class).map_or(PRIORITY_UNCLASSIFIED, |entry| entry.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_left_out_counts_as_unclassified() {
        let (journal, other) = (Class::JOURNAL, Class::new(31).unwrap());
        let mut scheme = Scheme::default();
        assert_eq!(scheme.priority(journal), PRIORITY_UNCLASSIFIED);
        scheme.set(ClassEntry::new(journal, "journal", 0));
        scheme.set(ClassEntry::new(Class::UNCLASSIFIED, "unclassified", 9));
        assert_eq!([journal, other].map(|class| scheme.priority(class)), [0, 9]);
        assert_eq!(scheme.named("journal").unwrap().number, journal);
        assert_eq!(scheme.entries().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["unclassified", "journal"]);
    }

    #[test]
    fn a_number_that_five_bits_cannot_hold_is_told() {
        assert_eq!(Class::try_from(31).unwrap().number(), 31);
        assert_eq!(Class::try_from(32).unwrap_err().to_string(), "class 32 is out of range, allowed are 0 to 31");
    }
}
