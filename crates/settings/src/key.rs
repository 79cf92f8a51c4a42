//! A key of a section, described once: reading, messages and the page of the configuration take it from here.
//!
//! A [`Key`] is a constant beside the code that reads it. It has a name, a form (type, unit and allowed values), a
//! default, and a sentence of help. Each form reads in its own way ([`forms`]). A [`KeyTable`] lists the keys of one
//! section. A section inside another is a key itself, and its form names its table. So the table of the whole file
//! leads to every key of it.
//!
//! A section that was opened through its table knows the keys of the table and no others. The list in a message on an
//! unknown key is the table. Where tests run, a key that is read and not described, or described and not read, ends
//! the program ([`Section::finish`]).

pub mod forms;

pub use forms::{Boolean, Choice, Integer, IntegerOrWord, NamedTables, Quantity, SubTable, Text, Texts, TextsByName};

use crate::problem::Problem;
use crate::reader::{LineIndex, Section};
use toml::de::DeTable;

/// A key: its name and all that is said of it.
#[derive(Clone, Copy, Debug)]
pub struct Key<F: Form> {
    /// As the file has it.
    pub name: &'static str,
    /// Its type, its unit and what is allowed.
    pub form: F,
    /// What holds where the section has no such key.
    pub absent: Absent<F::Value>,
    /// The help for the key, a sentence of Markdown that begins with a small letter and has no full stop at its end.
    pub help: &'static str,
}

/// What holds where a section has no such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent<V> {
    /// The section must have it. A message says that this is allowed.
    Required(&'static str),
    /// This value holds.
    Value(V),
    /// What holds follows from something else: this says in Markdown what it is.
    Words(&'static str),
}

/// The type of a key's values, and which of them are allowed.
pub trait Form: Sync {
    /// A value that is fixed where a section has no such key.
    type Value: Copy + Sync + 'static;

    /// The type, and the unit where it has one, such as `size`.
    fn kind(&self) -> String;

    /// What is allowed, as messages say it.
    fn allowed(&self) -> String;

    /// `value` as a file has it.
    fn shown(&self, value: Self::Value) -> String;

    /// The keys inside, if the values are tables with keys of their own.
    fn table(&self) -> Option<&'static KeyTable> {
        None
    }
}

impl<F: Form> Key<F> {
    /// Says so if the section must have the key and has not.
    ///
    /// # Panics
    /// If the description says that the key may be left out.
    pub fn require(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) {
        match self.absent {
            Absent::Required(allowed) => section.require(self.name, allowed, problems),
            _ => unreachable!("{} may be left out", self.name),
        }
    }

    /// The value that holds where a section has no such key.
    ///
    /// # Panics
    /// If the description has no such value.
    pub fn default_value(&self) -> F::Value {
        match self.absent {
            Absent::Value(value) => value,
            _ => unreachable!("{} has no fixed default", self.name),
        }
    }
}

/// A [`Key`] of any form.
pub trait Described: Sync {
    /// As the file has it.
    fn name(&self) -> &'static str;

    /// The type, and the unit where it has one, such as `size`.
    fn kind(&self) -> String;

    /// What is allowed, as messages say it.
    fn allowed(&self) -> String;

    /// What holds where the section has no such key: a value as the file has it, or words in Markdown. `None` if the
    /// section must have it.
    fn default(&self) -> Option<Result<String, &'static str>>;

    /// What the key does, in Markdown.
    fn help(&self) -> &'static str;

    /// The keys inside, if the values are tables with keys of their own.
    fn table(&self) -> Option<&'static KeyTable>;
}

impl<F: Form> Described for Key<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> String {
        self.form.kind()
    }

    fn allowed(&self) -> String {
        self.form.allowed()
    }

    fn default(&self) -> Option<Result<String, &'static str>> {
        match self.absent {
            Absent::Required(_) => None,
            Absent::Value(value) => Some(Ok(self.form.shown(value))),
            Absent::Words(words) => Some(Err(words)),
        }
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn table(&self) -> Option<&'static KeyTable> {
        self.form.table()
    }
}

/// The keys of one section, or of the file.
pub struct KeyTable {
    /// The section as a header names it, such as `volume.NAME.nbd`; empty for the file itself.
    pub path: &'static str,
    /// Its keys, in the order of the page.
    pub keys: &'static [&'static dyn Described],
}

impl KeyTable {
    /// A file of which this is the outermost table.
    pub fn root<'t>(&'static self, table: &'t DeTable<'t>, lines: &'t LineIndex) -> Section<'t> {
        self.open(Section::root(table, lines))
    }

    /// `section` with the keys of this table and no others.
    fn open<'t>(&'static self, section: Section<'t>) -> Section<'t> {
        let is_required = |key: &&&dyn Described| key.default().is_none();
        let required = self.keys.iter().filter(is_required).map(|key| key.name());
        section.described(self.keys.iter().map(|key| key.name()).collect(), required.collect())
    }

    /// This table and those that its keys lead to, each before what is inside it.
    pub fn with_inner(&'static self) -> Vec<&'static KeyTable> {
        let inner = self.keys.iter().filter_map(|key| key.table()).flat_map(KeyTable::with_inner);
        std::iter::once(self).chain(inner).collect()
    }
}

/// Lists of keys as one, for a table with keys from elsewhere. `N` is how many keys they have together.
///
/// # Panics
/// If `N` is another number, where the table is compiled.
pub const fn joined<const N: usize>(lists: &[&[&'static dyn Described]]) -> [&'static dyn Described; N] {
    let mut keys = [lists[0][0]; N];
    let (mut list, mut count) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            keys[count] = lists[list][at];
            (at, count) = (at + 1, count + 1);
        }
        list += 1;
    }
    assert!(count == N, "a key is missing");
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax;

    const COUNT: Key<Integer> =
        Key { name: "count", form: Integer::new(1..=9, "things"), absent: Absent::Value(3), help: "how many" };
    const NAME: Key<Text> = Key {
        name: "name",
        form: Text::new("name", "a name"),
        absent: Absent::Required("some name"),
        help: "how it is called",
    };
    const INNER: KeyTable = KeyTable { path: "inner", keys: &[&COUNT, &NAME] };
    const SECTION: Key<SubTable> = Key {
        name: "inner",
        form: SubTable { table: &INNER },
        absent: Absent::Words("nothing"),
        help: "what is inside",
    };
    const FILE: KeyTable = KeyTable { path: "", keys: &[&SECTION] };

    /// What `read` makes of the section `inner` of `text`, and the messages.
    fn of<T>(text: &str, read: impl FnOnce(&mut Section<'_>, &mut Vec<Problem>) -> T) -> (Option<T>, Vec<String>) {
        let (lines, mut problems) = (LineIndex::new(text), Vec::new());
        let (table, _) = syntax::parse(text, &lines, &mut problems);
        let mut file = FILE.root(&table, &lines);
        let inner = SECTION.read(&mut file, &mut problems).map(|mut section| {
            let value = read(&mut section, &mut problems);
            section.finish(&mut problems);
            value
        });
        file.finish(&mut problems);
        (inner, problems.iter().map(Problem::to_string).collect())
    }

    fn both(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> (u64, Option<String>) {
        NAME.require(section, problems);
        let name = NAME.text(section, problems).map(str::to_owned);
        (COUNT.read_or_default(section, problems), name)
    }

    #[test]
    fn a_key_is_read_and_reported_by_its_description() {
        assert_eq!(of("inner = { name = \"a\" }", both), (Some((3, Some("a".into()))), vec![]));
        let (value, problems) = of("[inner]\ncount = 10\nnaem = 1\n", both);
        assert_eq!(value, Some((3, None)));
        assert_eq!(
            problems,
            [
                "1: inner.name: got nothing, allowed some name",
                "2: inner.count: got the number 10, allowed 1 to 9",
                "3: inner.naem: got an unknown key, allowed count, name (did you mean \"name\"?)"
            ]
        );
        assert_eq!(of("iner = 1", both).1, ["1: iner: got an unknown key, allowed inner (did you mean \"inner\"?)"]);
    }

    #[test]
    fn a_description_says_what_a_page_needs() {
        let said = |key: &dyn Described| (key.kind(), key.allowed(), key.default());
        assert_eq!(said(&COUNT), ("number (things)".into(), "1 to 9".into(), Some(Ok("3".into()))));
        assert_eq!(said(&NAME), ("name".into(), "a name".into(), None));
        assert_eq!(said(&SECTION).2, Some(Err("nothing")));
        let paths: Vec<_> = FILE.with_inner().iter().map(|table| table.path).collect();
        assert_eq!(paths, ["", "inner"]);
    }

    /// Planted break: each list begins at the first place, and the constant does not compile.
    #[test]
    fn joined_lists_keep_their_order() {
        const KEYS: [&dyn Described; 3] = joined(&[&[&COUNT], &[], &[&NAME, &SECTION]]);
        assert_eq!(KEYS.map(|key| key.name()), ["count", "name", "inner"]);
    }

    /// Planted break, seen red: `finish` compares nothing.
    #[test]
    #[should_panic(expected = "keys of [inner]")]
    fn a_key_that_is_read_and_not_described_is_found() {
        of("inner = { name = \"a\" }", |section, problems| {
            both(section, problems);
            section.boolean("other", problems)
        });
    }

    /// Planted break, seen red: `finish` compares nothing.
    #[test]
    #[should_panic(expected = "keys of [inner]")]
    fn a_key_that_is_described_and_not_read_is_found() {
        of("inner = { name = \"a\" }", |section, problems| NAME.text(section, problems).map(str::to_owned));
    }

    /// Planted break, seen red: `finish` does not look at required keys.
    #[test]
    #[should_panic(expected = "Some(\"inner.name\")")]
    fn a_required_key_that_reading_does_not_require_is_found() {
        of("inner = {}", |section, problems| {
            NAME.text(section, problems).map(str::to_owned);
            COUNT.read(section, problems)
        });
    }
}
