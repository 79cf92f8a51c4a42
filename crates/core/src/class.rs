//! What a block means to the software above: its class.
//!
//! Five bits travel with each request (Differentiated Storage Services, section 3). What a class is called and how
//! important it is are *data*: a [`Scheme`] is read from a file, so that a site can bring its own.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Number of classes that five bits can name.
pub const CLASSES: usize = 32;
/// Number of priority levels; 0 is the highest.
pub const PRIORITIES: u8 = 16;
/// The scheme that is built in: ext3/ext4 and PostgreSQL (Differentiated Storage Services, tables 2 and 4).
const EXT4_POSTGRESQL: &str = include_str!("../schemes/ext4-postgresql.toml");

/// The class of a request, 0 to 31; 0 means unclassified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Class(u8);

impl Class {
    /// Nobody said what the block is.
    pub const UNCLASSIFIED: Class = Class(0);

    /// A journal's blocks (Differentiated Storage Services, table 2).
    pub const JOURNAL: Class = Class(7);

    /// Whether it is metadata in its place (the same table): superblock to directories.
    pub const fn is_metadata(self) -> bool {
        matches!(self.0, 1..=6)
    }

    /// The class numbered `number`, if it is below 32.
    pub const fn new(number: u8) -> Option<Class> {
        if (number as usize) < CLASSES { Some(Class(number)) } else { None }
    }

    /// Its number, 0 to 31.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl From<Class> for u8 {
    fn from(class: Class) -> u8 {
        class.0
    }
}

impl TryFrom<u8> for Class {
    type Error = SchemeError;
    fn try_from(number: u8) -> Result<Class, SchemeError> {
        Class::new(number).ok_or(SchemeError::Class { number })
    }
}

/// Why a scheme cannot be used.
#[derive(Debug, Error)]
pub enum SchemeError {
    /// Not TOML, or not of the expected shape; the text names line and column.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A class that five bits cannot name.
    #[error("class {number} is out of range, allowed are 0 to 31")]
    Class {
        /// What was written.
        number: u8,
    },
    /// A priority beyond the lowest.
    #[error("class {class} ({name}) has priority {priority}, allowed are 0 (highest) to 15")]
    Priority {
        /// Class number.
        class: u8,
        /// Class name.
        name: String,
        /// What was written.
        priority: u8,
    },
    /// One class described twice.
    #[error("class {class} is named twice: {first:?} and {second:?}")]
    Twice {
        /// Class number.
        class: u8,
        /// The name that came first.
        first: String,
        /// The name that came second.
        second: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemeFile {
    name: String,
    class: Vec<ClassEntry>,
}

/// One class of a scheme.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassEntry {
    /// Its number.
    pub number: Class,
    /// What people call it.
    pub name: String,
    /// 0 (kept longest, served first) to 15.
    pub priority: u8,
}

/// Names and priorities of the classes.
#[derive(Clone, Debug)]
pub struct Scheme {
    name: String,
    entries: [Option<ClassEntry>; CLASSES],
}

impl Scheme {
    /// The scheme for ext3/ext4 and PostgreSQL.
    pub fn ext4_postgresql() -> Scheme {
        Scheme::from_toml(EXT4_POSTGRESQL).expect("the built-in scheme is tested")
    }

    /// Reads a scheme: a `name` and `[[class]]` tables with `number`, `name` and `priority`.
    pub fn from_toml(text: &str) -> Result<Scheme, SchemeError> {
        let file: SchemeFile = toml::from_str(text)?;
        let mut entries: [Option<ClassEntry>; CLASSES] = [const { None }; CLASSES];
        for entry in file.class {
            let class = entry.number.0;
            if entry.priority >= PRIORITIES {
                return Err(SchemeError::Priority { class, name: entry.name, priority: entry.priority });
            }
            if let Some(first) = &entries[class as usize] {
                return Err(SchemeError::Twice { class, first: first.name.clone(), second: entry.name });
            }
            entries[class as usize] = Some(entry);
        }
        Ok(Scheme { name: file.name, entries })
    }

    /// What the scheme is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entry for `class`, if the scheme describes it.
    pub fn entry(&self, class: Class) -> Option<&ClassEntry> {
        self.entries[class.0 as usize].as_ref()
    }

    /// The priority of `class`: 0 is the highest; a class that the scheme leaves out counts as unclassified.
    pub fn priority(&self, class: Class) -> u8 {
        self.entry(class).or(self.entry(Class::UNCLASSIFIED)).map_or(PRIORITIES - 1, |entry| entry.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_scheme_orders_classes_as_the_paper_does() {
        let scheme = Scheme::ext4_postgresql();
        let priority = |number| scheme.priority(Class::new(number).unwrap());
        assert!((1..=7).all(|metadata| priority(metadata) == 0));
        assert_eq!((8..=18).map(priority).collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
        assert_eq!(priority(0), 12);
        assert_eq!(scheme.entry(Class::new(7).unwrap()).unwrap().name, "journal");
        assert_eq!(priority(31), priority(0), "a class left out counts as unclassified");
    }

    #[test]
    fn broken_schemes_say_what_is_wrong() {
        let of = |body: &str| Scheme::from_toml(&format!("name = \"x\"\n{body}")).unwrap_err().to_string();
        let class = |number, priority| format!("[[class]]\nnumber = {number}\nname = \"n\"\npriority = {priority}\n");
        assert!(of(&class(32, 0)).contains("class 32 is out of range, allowed are 0 to 31"));
        assert_eq!(of(&class(3, 16)), "class 3 (n) has priority 16, allowed are 0 (highest) to 15");
        assert_eq!(of(&(class(3, 1) + &class(3, 2))), "class 3 is named twice: \"n\" and \"n\"");
        assert!(of("[[class]]\nnumber = 1\nname = \"n\"\n").contains("missing field `priority`"));
    }
}
