//! The forms of keys, and how a key of each form is read.
//!
//! Every reader answers `None` both for a missing key and for a wrong value. In the second case it has added the
//! mistake to `problems`.

use super::{Form, Key, KeyTable};
use crate::problem::Problem;
use crate::reader::Section;
use plimsoll_core::units::ParseUnitError;
use plimsoll_core::{ByteCount, Rate, Span};
use std::convert::Infallible;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A text that the caller understands.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    kind: &'static str,
    allowed: &'static str,
}

impl Text {
    /// A text; `kind` is what it is to a reader of the page, such as `path`.
    pub const fn new(kind: &'static str, allowed: &'static str) -> Text {
        Text { kind, allowed }
    }
}

impl Form for Text {
    type Value = &'static str;

    fn kind(&self) -> String {
        self.kind.to_owned()
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn shown(&self, value: &'static str) -> String {
        format!("{value:?}")
    }
}

impl Key<Text> {
    /// The text as it is.
    pub fn text<'t>(&self, section: &mut Section<'t>, problems: &mut Vec<Problem>) -> Option<&'t str> {
        section.text(self.name, self.form.allowed, problems)
    }

    /// The value that `parse` makes of the text. Its error is the allowed values.
    pub fn read<T>(
        &self,
        section: &mut Section<'_>,
        problems: &mut Vec<Problem>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        section.read(self.name, self.form.allowed, problems, parse)
    }
}

/// A text with a unit.
#[derive(Clone, Copy, Debug)]
pub struct Quantity<T: 'static> {
    /// What is allowed, in words.
    pub allowed: &'static str,
    /// Whether that holds.
    pub is_allowed: fn(&T) -> bool,
}

/// What a [`Quantity`] measures.
pub trait Measure: FromStr<Err = ParseUnitError> + 'static {
    /// What the page calls it.
    const NAME: &'static str;
}

impl Measure for ByteCount {
    const NAME: &'static str = "size";
}

impl Measure for Rate {
    const NAME: &'static str = "rate";
}

impl Measure for Span {
    const NAME: &'static str = "time";
}

impl<T: Measure> Form for Quantity<T> {
    type Value = Infallible;

    fn kind(&self) -> String {
        T::NAME.to_owned()
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn shown(&self, value: Infallible) -> String {
        match value {}
    }
}

impl<T: Measure> Key<Quantity<T>> {
    /// The quantity.
    pub fn read(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<T> {
        section.quantity(self.name, self.form.allowed, problems, self.form.is_allowed)
    }
}

/// A whole number.
#[derive(Clone, Copy, Debug)]
pub struct Integer {
    min: u64,
    max: u64,
    unit: &'static str,
}

impl Integer {
    /// A number in `range`; `unit` is what it counts, empty for nothing.
    pub const fn new(range: RangeInclusive<u64>, unit: &'static str) -> Integer {
        Integer { min: *range.start(), max: *range.end(), unit }
    }
}

impl Form for Integer {
    type Value = u64;

    fn kind(&self) -> String {
        if self.unit.is_empty() { "number".to_owned() } else { format!("number ({})", self.unit) }
    }

    fn allowed(&self) -> String {
        format!("{} to {}", self.min, self.max)
    }

    fn shown(&self, value: u64) -> String {
        value.to_string()
    }
}

impl Key<Integer> {
    /// The number.
    pub fn read(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<u64> {
        section.integer(self.name, self.form.min..=self.form.max, problems)
    }

    /// The number, or [`default_value`](Key::default_value).
    pub fn read_or_default(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> u64 {
        self.read(section, problems).unwrap_or_else(|| self.default_value())
    }
}

/// A whole number, or a word, which is `None`.
#[derive(Clone, Copy, Debug)]
pub struct IntegerOrWord {
    min: u64,
    max: u64,
    word: &'static str,
}

impl IntegerOrWord {
    /// A number in `range`, or `word`.
    pub const fn new(range: RangeInclusive<u64>, word: &'static str) -> IntegerOrWord {
        IntegerOrWord { min: *range.start(), max: *range.end(), word }
    }
}

impl Form for IntegerOrWord {
    type Value = Option<u64>;

    fn kind(&self) -> String {
        "number or word".to_owned()
    }

    fn allowed(&self) -> String {
        format!("{} to {} or {:?}", self.min, self.max, self.word)
    }

    fn shown(&self, value: Option<u64>) -> String {
        value.map_or_else(|| format!("{:?}", self.word), |number| number.to_string())
    }
}

impl Key<IntegerOrWord> {
    /// The number or the word.
    pub fn read(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<Option<u64>> {
        section.integer_or_word(self.name, self.form.min..=self.form.max, self.form.word, problems)
    }

    /// The number or the word, or [`default_value`](Key::default_value).
    pub fn read_or_default(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<u64> {
        self.read(section, problems).unwrap_or_else(|| self.default_value())
    }
}

/// `true` or `false`.
#[derive(Clone, Copy, Debug)]
pub struct Boolean;

impl Form for Boolean {
    type Value = bool;

    fn kind(&self) -> String {
        "boolean".to_owned()
    }

    fn allowed(&self) -> String {
        "true or false".to_owned()
    }

    fn shown(&self, value: bool) -> String {
        value.to_string()
    }
}

impl Key<Boolean> {
    /// Which of both.
    pub fn read(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<bool> {
        section.boolean(self.name, problems)
    }

    /// Which of both, or [`default_value`](Key::default_value).
    pub fn read_or_default(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> bool {
        self.read(section, problems).unwrap_or_else(|| self.default_value())
    }
}

/// One of several words.
#[derive(Clone, Copy)]
pub struct Choice {
    words: fn() -> Vec<&'static str>,
    summary: Option<&'static str>,
}

impl Choice {
    /// One of `words`; the page lists them.
    pub const fn of(words: fn() -> Vec<&'static str>) -> Choice {
        Choice { words, summary: None }
    }

    /// One of `words`; the page says `summary` instead of a long list.
    pub const fn summarized(words: fn() -> Vec<&'static str>, summary: &'static str) -> Choice {
        Choice { words, summary: Some(summary) }
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Choice").field(&(self.words)()).finish()
    }
}

impl Form for Choice {
    type Value = &'static str;

    fn kind(&self) -> String {
        "word".to_owned()
    }

    fn allowed(&self) -> String {
        let quoted = || (self.words)().iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        self.summary.map_or_else(quoted, str::to_owned)
    }

    fn shown(&self, value: &'static str) -> String {
        format!("{value:?}")
    }
}

impl Key<Choice> {
    /// The word.
    pub fn read(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<&'static str> {
        section.choice(self.name, &(self.form.words)(), problems)
    }

    /// The word, or [`default_value`](Key::default_value).
    pub fn read_or_default(&self, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> &'static str {
        self.read(section, problems).unwrap_or_else(|| self.default_value())
    }
}

/// A list of texts.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    /// What is allowed, in words.
    pub allowed: &'static str,
}

impl Form for Texts {
    type Value = Infallible;

    fn kind(&self) -> String {
        "list of texts".to_owned()
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn shown(&self, value: Infallible) -> String {
        match value {}
    }
}

impl Key<Texts> {
    /// The texts, each with its line.
    pub fn read<'t>(&self, section: &mut Section<'t>, problems: &mut Vec<Problem>) -> Option<Vec<(usize, &'t str)>> {
        section.texts(self.name, self.form.allowed, problems)
    }
}

/// A table of texts by names that the file chooses.
#[derive(Clone, Copy, Debug)]
pub struct TextsByName {
    /// What each text may be, in words.
    pub allowed: &'static str,
}

impl Form for TextsByName {
    type Value = Infallible;

    fn kind(&self) -> String {
        "table of texts by name".to_owned()
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn shown(&self, value: Infallible) -> String {
        match value {}
    }
}

impl Key<TextsByName> {
    /// What `parse` makes of each text, with its line and its name, in the order of the file.
    pub fn read<T>(
        &self,
        section: &mut Section<'_>,
        problems: &mut Vec<Problem>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<(usize, String, T)> {
        section.read_each(self.name, self.form.allowed, problems, parse)
    }
}

/// A table with keys of its own.
#[derive(Clone, Copy)]
pub struct SubTable {
    /// The keys.
    pub table: &'static KeyTable,
}

impl Form for SubTable {
    type Value = Infallible;

    fn kind(&self) -> String {
        "table".to_owned()
    }

    fn allowed(&self) -> String {
        format!("[{}]", self.table.path)
    }

    fn shown(&self, value: Infallible) -> String {
        match value {}
    }

    fn table(&self) -> Option<&'static KeyTable> {
        Some(self.table)
    }
}

impl Key<SubTable> {
    /// The table, to be read through its own keys.
    pub fn read<'t>(&self, section: &mut Section<'t>, problems: &mut Vec<Problem>) -> Option<Section<'t>> {
        section.section(self.name, problems).map(|inner| self.form.table.open(inner))
    }
}

/// Tables by names that the file chooses, all with the same keys.
#[derive(Clone, Copy)]
pub struct NamedTables {
    /// The keys of each.
    pub table: &'static KeyTable,
    /// Tables at the most.
    pub count_max: usize,
}

impl Form for NamedTables {
    type Value = Infallible;

    fn kind(&self) -> String {
        "tables by name".to_owned()
    }

    fn allowed(&self) -> String {
        format!("at most {} tables [{}]", self.count_max, self.table.path)
    }

    fn shown(&self, value: Infallible) -> String {
        match value {}
    }

    fn table(&self) -> Option<&'static KeyTable> {
        Some(self.table)
    }
}

impl Key<NamedTables> {
    /// The tables and their names, each to be read through its own keys. Those with a name that cannot be are left out,
    /// and so are those beyond the most.
    pub fn read<'t>(&self, section: &mut Section<'t>, problems: &mut Vec<Problem>) -> Vec<(String, Section<'t>)> {
        let sections = section.named_sections(self.name, self.form.count_max, problems);
        sections.into_iter().map(|(name, section)| (name, self.form.table.open(section))).collect()
    }
}
