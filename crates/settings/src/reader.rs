//! Reads one table of the file key by key. A key that is not asked for is an unknown key.
//!
//! Every getter answers `None` both for a missing key and for a wrong value. In the second case it has added the
//! mistake to `problems`. So the caller continues, and one run finds all errors of a file.

use crate::problem::{Place, Problem, quoted};
use crate::suggest;
use plimsoll_core::units::ParseUnitError;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Characters of a name at the most.
const NAME_BYTES_MAX: usize = 64;

/// Turns a byte offset into a line.
pub struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    /// O(bytes of `text`).
    pub fn new(text: &str) -> LineIndex {
        let breaks = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        LineIndex { starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// The line, from 1, that holds the byte at `offset`. O(log lines).
    pub fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset)
    }
}

/// A table that is being read.
pub struct Section<'t> {
    table: &'t DeTable<'t>,
    lines: &'t LineIndex,
    place: Place,
    known: Vec<&'static str>,
    description: Option<Description>,
}

/// The keys that a section has by its description.
struct Description {
    keys: BTreeSet<&'static str>,
    required: BTreeSet<&'static str>,
}

impl<'t> Section<'t> {
    /// The file itself.
    pub fn root(table: &'t DeTable<'t>, lines: &'t LineIndex) -> Section<'t> {
        Section::new(table, lines, String::new(), 1)
    }

    fn new(table: &'t DeTable<'t>, lines: &'t LineIndex, path: String, line: usize) -> Section<'t> {
        let keys = table.iter().map(|(key, value)| {
            // A table's own line is that of its header; any other value is found where its key stands.
            let offset = if value.get_ref().is_table() { value.span().start } else { key.span().start };
            (key.get_ref().to_string(), lines.line(offset))
        });
        Section {
            table,
            lines,
            place: Place { path, line, keys: keys.collect(), wrong: BTreeSet::new() },
            known: Vec::new(),
            description: None,
        }
    }

    /// The section with these keys and no others. It must have those in `required`, and reading asks for them.
    pub(crate) fn described(self, keys: BTreeSet<&'static str>, required: BTreeSet<&'static str>) -> Section<'t> {
        Section { description: Some(Description { keys, required }), ..self }
    }

    /// The section's place in the file.
    pub fn place(&self) -> &Place {
        &self.place
    }

    fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.table.get(key)
    }

    fn wrong<T>(
        &mut self,
        key: &str,
        got: String,
        allowed: impl std::fmt::Display,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        problems.push(self.place.problem(key, got, allowed));
        self.place.not_understood(key);
        None
    }

    /// Takes note that what `key` says was not understood; a caller that reports it says so.
    pub fn not_understood(&mut self, key: &str) {
        self.place.not_understood(key);
    }

    /// A text; `allowed` says which.
    pub fn text(&mut self, key: &'static str, allowed: &str, problems: &mut Vec<Problem>) -> Option<&'t str> {
        match self.value(key)?.get_ref() {
            DeValue::String(text) => Some(text),
            other => self.wrong(key, describe(other), allowed, problems),
        }
    }

    /// A text that `read` parses. Its error is the allowed values.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        problems: &mut Vec<Problem>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(key, allowed, problems)?;
        read(text).map_or_else(|allowed| self.wrong(key, quoted(text), allowed, problems), Some)
    }

    /// A text with a unit that satisfies `is_allowed`; `allowed` says in words what that is.
    pub fn quantity<T: FromStr<Err = ParseUnitError>>(
        &mut self,
        key: &'static str,
        allowed: &str,
        problems: &mut Vec<Problem>,
        is_allowed: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        self.read(key, allowed, problems, |text| {
            let value: T = text.parse().map_err(|error: ParseUnitError| error.expected().to_owned())?;
            if is_allowed(&value) { Ok(value) } else { Err(allowed.to_owned()) }
        })
    }

    /// One of several words.
    pub fn choice(
        &mut self,
        key: &'static str,
        choices: &[&'static str],
        problems: &mut Vec<Problem>,
    ) -> Option<&'static str> {
        let allowed = choices.iter().map(|choice| format!("{choice:?}")).collect::<Vec<_>>().join(", ");
        self.read(key, &allowed, problems, |text| {
            let found = choices.iter().find(|&&choice| choice == text).copied();
            found.ok_or_else(|| format!("{allowed}{}", suggest::hint(text, choices.iter().copied())))
        })
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<bool> {
        match self.value(key)?.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            other => self.wrong(key, describe(other), "true or false", problems),
        }
    }

    /// A whole number in `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        problems: &mut Vec<Problem>,
    ) -> Option<u64> {
        let value = self.value(key)?.get_ref();
        let number = whole_number(value).filter(|number| range.contains(number));
        number.or_else(|| self.wrong(key, describe(value), format!("{} to {}", range.start(), range.end()), problems))
    }

    /// A number that is not negative.
    pub fn number(&mut self, key: &'static str, allowed: &str, problems: &mut Vec<Problem>) -> Option<f64> {
        let value = self.value(key)?.get_ref();
        float(value).filter(|number| *number >= 0.0).or_else(|| self.wrong(key, describe(value), allowed, problems))
    }

    /// A value that `read` understands; where it does not, `allowed` says what would have been right.
    pub fn with<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        problems: &mut Vec<Problem>,
        read: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?.get_ref();
        read(value).or_else(|| self.wrong(key, describe(value), allowed, problems))
    }

    /// A whole number in `range`, or `word`, which answers `Some(None)`.
    pub fn integer_or_word(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        word: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Option<u64>> {
        let value = self.value(key)?.get_ref();
        if value.as_str() == Some(word) {
            return Some(None);
        }
        let number = whole_number(value).filter(|number| range.contains(number));
        let allowed = format!("{} to {} or {word:?}", range.start(), range.end());
        number.map(Some).or_else(|| self.wrong(key, describe(value), allowed, problems))
    }

    /// A list of texts, each with its line.
    pub fn texts(
        &mut self,
        key: &'static str,
        allowed: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Vec<(usize, &'t str)>> {
        let value = self.value(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            return self.wrong(key, describe(value.get_ref()), allowed, problems);
        };
        let mut texts = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::String(text) => texts.push((self.lines.line(item.span().start), &**text)),
                other => return self.wrong(key, format!("a list with {}", describe(other)), allowed, problems),
            }
        }
        Some(texts)
    }

    /// A table of texts by names that the file chooses, each with its line, in the order of the file; as
    /// [`read`](Self::read) for each.
    pub fn read_each<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        problems: &mut Vec<Problem>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<(usize, String, T)> {
        let Some(section) = self.section(key, problems) else { return Vec::new() };
        let mut entries: Vec<_> = section.table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut values = Vec::new();
        for (name, value) in entries {
            let (line, name) = (self.lines.line(name.span().start), name.get_ref().as_ref());
            let read = match value.get_ref() {
                DeValue::String(text) => read(text).map_err(|allowed| (quoted(text), allowed)),
                other => Err((describe(other), allowed.to_owned())),
            };
            match read {
                Ok(value) => values.push((line, name.to_owned(), value)),
                Err((got, allowed)) => {
                    problems.push(section.place.problem(name, got, allowed));
                    self.place.not_understood(key);
                }
            }
        }
        values
    }

    /// A table inside this one.
    pub fn section(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<Section<'t>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(table) => {
                let line = self.place.line_of(key);
                Some(Section::new(table, self.lines, self.place.dotted(key), line))
            }
            other => self.wrong(key, describe(other), format!("a table: [{}]", self.place.dotted(key)), problems),
        }
    }

    /// The tables inside `key`, such as each `[pool.NAME]`, in the order of the file. Those with a name that cannot be
    /// are left out, and so are those beyond `count_max`.
    pub fn named_sections(
        &mut self,
        key: &'static str,
        count_max: usize,
        problems: &mut Vec<Problem>,
    ) -> Vec<(String, Section<'t>)> {
        let Some(parent) = self.section(key, problems) else { return Vec::new() };
        let mut entries: Vec<_> = parent.table.iter().collect();
        entries.sort_by_key(|(name, value)| (name.span().start, value.span().start));
        if entries.len() > count_max {
            let (name, _) = entries[count_max];
            problems.push(Problem {
                line: self.lines.line(name.span().start),
                ..parent.place.problem("", format!("{} tables", entries.len()), format!("at most {count_max}"))
            });
            entries.truncate(count_max);
        }
        let mut sections = Vec::new();
        for (name, value) in entries {
            let name = name.get_ref().as_ref();
            if let Some(allowed) = name_problem(name) {
                problems.push(parent.place.problem(name, format!("the name {}", quoted(name)), allowed));
                continue;
            }
            match value.get_ref() {
                DeValue::Table(table) => {
                    let (path, line) = (parent.place.dotted(name), parent.place.line_of(name));
                    sections.push((name.to_owned(), Section::new(table, self.lines, path, line)));
                }
                other => {
                    let allowed = format!("a table: [{}]", parent.place.dotted(name));
                    problems.push(parent.place.problem(name, describe(other), allowed));
                }
            }
        }
        sections
    }

    /// Says so if `key` is missing.
    pub fn require(&mut self, key: &str, allowed: &str, problems: &mut Vec<Problem>) {
        if !self.place.has(key) {
            problems.push(self.place.problem(key, "nothing", allowed));
            self.place.not_understood(key);
        }
    }

    /// Ends reading: keys that were not asked for are unknown.
    ///
    /// # Panics
    /// Where tests run, if the section was opened through its [table](crate::key::KeyTable) and reading asked for other
    /// keys than the table describes.
    pub fn finish(self, problems: &mut Vec<Problem>) -> Place {
        let mut known = self.known.iter().copied().collect::<BTreeSet<_>>();
        if let Some(Description { keys, required }) = self.description {
            let (place, at) = (&self.place, self.place.dotted(""));
            debug_assert_eq!(known, keys, "keys of [{at}]: those that are read, and those that are described");
            let is_missed = |key: &&&str| !place.has(key) && place.is_understood(key);
            let missed = required.iter().find(is_missed).map(|key| place.dotted(key));
            debug_assert_eq!(missed, None, "a required key that reading does not require");
            known = keys;
        }
        for (key, _) in self.table.iter().filter(|(key, _)| !known.contains(key.get_ref().as_ref())) {
            let list = known.iter().copied().collect::<Vec<_>>().join(", ");
            let key = key.get_ref().as_ref();
            let hint = suggest::hint(key, known.iter().copied());
            problems.push(self.place.problem(key, "an unknown key", format!("{list}{hint}")));
        }
        self.place
    }
}

/// What names of devices, pools and volumes must be, if `name` is not. They become parts of paths and of file names.
pub fn name_problem(name: &str) -> Option<String> {
    let is_fine = (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    (!is_fine)
        .then(|| format!("1 to {NAME_BYTES_MAX} letters, digits, \"-\", \"_\" and \".\", not starting with \".\""))
}

/// `text` as a name: `-` stands for what a name cannot have, and what is too long is cut off. Of nothing comes nothing.
pub fn name_like(text: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name: String =
        text.chars().map(|letter| if allowed(letter) { letter } else { '-' }).take(NAME_BYTES_MAX).collect();
    name.strip_prefix('.').map(|rest| format!("-{rest}")).unwrap_or(name)
}

fn whole_number(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A number, whole or not; `None` for anything else and for what is not finite.
pub fn float(value: &DeValue<'_>) -> Option<f64> {
    let number = match value {
        DeValue::Integer(_) => whole_number(value)? as f64,
        DeValue::Float(float) => float.as_str().replace('_', "").parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A value as a message repeats it.
pub fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => format!("the number {}", shortened(&number.to_string())),
        DeValue::Float(number) => format!("the number {}", shortened(&number.to_string())),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn shortened(number: &str) -> String {
    const DIGITS_MAX: usize = 40;
    if number.len() <= DIGITS_MAX { number.to_owned() } else { format!("{}...", &number[..DIGITS_MAX]) }
}
