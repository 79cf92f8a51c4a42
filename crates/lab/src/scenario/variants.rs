//! What a scenario varies: every combination of its axes is a table of its own, made from the file's before it is read.
//!
//! An axis has values for one key, `key = "machine.scheduler", values = ["noop", "cfq"]`. Or it has values for a place
//! in texts: with `[variant.size] values = ["4KiB", "1MiB"]` each `{size}` in a text of those parts of the file is
//! replaced. Or it has named sets of keys: `[variant.load.set.burst] process.b.workload = "..."`. A value keeps its
//! line, so what is wrong with it is reported where it stands.

use super::model::Axis;
use plimsoll_settings::{Problem, Section};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Combinations of one scenario at the most.
pub(super) const VARIANTS_MAX: usize = 1024;
/// Axes of one scenario at the most.
const AXES_MAX: usize = 8;
/// The parts of a file that may be varied.
pub(super) const VARIED: &[&str] = &[
    "machine", "cache", "guest", "cluster", "account", "process", "utility", "database", "tenant", "writer", "filer",
    "duration", "warm_up",
];
const VALUES: &str = "a list of values, each another, such as [\"noop\", \"cfq\"]";
const SET: &str = "tables of keys: [variant.NAME.set.LABEL]";

/// An axis and what each of its values changes.
pub(super) struct Varied<'t> {
    pub(super) axis: Axis,
    changes: Vec<Change<'t>>,
}

#[derive(Clone)]
enum Change<'t> {
    Key(String, Spanned<DeValue<'t>>),
    Text(String),
    Set(DeTable<'t>),
}

impl Varied<'_> {
    /// The key that it varies, if it is one.
    pub(super) fn key(&self) -> Option<&String> {
        match self.changes.first()? {
            Change::Key(key, _) => Some(key),
            _ => None,
        }
    }
}

/// Reads `[variant.*]`.
pub(super) fn read<'t>(file: &mut Section<'t>, problems: &mut Vec<Problem>) -> Vec<Varied<'t>> {
    let sections = file.named_sections("variant", AXES_MAX, problems);
    sections.into_iter().filter_map(|(name, section)| axis(name, section, problems)).collect()
}

fn axis<'t>(name: String, mut section: Section<'t>, problems: &mut Vec<Problem>) -> Option<Varied<'t>> {
    let before = problems.len();
    let key = section.read("key", KEY, problems, |key| {
        let is_fine = key.split('.').next().is_some_and(|first| VARIED.contains(&first));
        if is_fine { Ok(key.to_owned()) } else { Err(KEY.to_owned()) }
    });
    let values = section.with("values", VALUES, problems, |value| distinct(value.as_array()?));
    let sets = section.with("set", SET, problems, |value| sets(value.as_table()?));
    let place = section.finish(problems);
    let has = |key: &str| place.has(key);
    if has("values") == has("set") || (has("set") && has("key")) {
        problems.push(place.problem("", "neither or both of values and set", "values, with or without key; or set"));
    }
    if problems.len() > before {
        return None;
    }
    let (labels, changes) = match (key, values, sets) {
        (Some(key), Some(values), _) => {
            values.into_iter().map(|(label, value)| (label, Change::Key(key.clone(), value))).unzip()
        }
        (None, Some(values), _) => values.into_iter().map(|(label, _)| (label.clone(), Change::Text(label))).unzip(),
        (_, _, sets) => sets?.into_iter().map(|(label, table)| (label, Change::Set(table))).unzip(),
    };
    Some(Varied { axis: Axis { name, labels }, changes })
}

const KEY: &str = "the dotted name of a key of machine, cache, guest, cluster, account, process, utility, tenant, writer or filer, \
                   duration or warm_up";

fn distinct<'t>(values: &[Spanned<DeValue<'t>>]) -> Option<Vec<(String, Spanned<DeValue<'t>>)>> {
    let mut found: Vec<(String, Spanned<DeValue<'t>>)> = Vec::new();
    for value in values {
        let label = label(value.get_ref())?;
        if found.iter().any(|(other, _)| *other == label) {
            return None;
        }
        found.push((label, value.clone()));
    }
    (!found.is_empty()).then_some(found)
}

fn label(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}

fn sets<'t>(table: &DeTable<'t>) -> Option<Vec<(String, DeTable<'t>)>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, value)| (name.span().start, value.span().start));
    let is_varied = |set: &DeTable<'_>| set.iter().all(|(key, _)| VARIED.contains(&key.get_ref().as_ref()));
    let sets = entries.into_iter().map(|(name, value)| {
        let set = value.get_ref().as_table().filter(|set| is_varied(set))?;
        Some((name.get_ref().to_string(), set.clone()))
    });
    sets.collect::<Option<Vec<_>>>().filter(|sets| !sets.is_empty())
}

/// Every combination with its table, the last axis fastest.
pub(super) fn combinations<'t>(table: &DeTable<'t>, axes: &[Varied<'t>]) -> Vec<(Vec<(String, String)>, DeTable<'t>)> {
    let mut combinations = vec![(Vec::new(), table.clone())];
    for varied in axes {
        let extended = combinations.iter().flat_map(|(labels, table)| {
            varied.axis.labels.iter().zip(&varied.changes).map(move |(label, change)| {
                let mut labels: Vec<(String, String)> = labels.clone();
                labels.push((varied.axis.name.clone(), label.clone()));
                (labels, change.apply(&varied.axis.name, table))
            })
        });
        combinations = extended.collect();
    }
    combinations
}

impl<'t> Change<'t> {
    fn apply(&self, axis: &str, table: &DeTable<'t>) -> DeTable<'t> {
        let mut table = table.clone();
        match self {
            Change::Key(key, value) => put(&mut table, key, value.clone()),
            Change::Text(text) => {
                let place = format!("{{{axis}}}");
                let varied = table.iter_mut().filter(|(key, _)| VARIED.contains(&key.get_ref().as_ref()));
                varied.for_each(|(_, value)| replace(value.get_mut(), &place, text));
            }
            Change::Set(set) => merge(&mut table, set),
        }
        table
    }
}

/// Replaces `place` in every text of `value`.
fn replace(value: &mut DeValue<'_>, place: &str, text: &str) {
    match value {
        DeValue::String(found) if found.contains(place) => *found = Cow::Owned(found.replace(place, text)),
        DeValue::Array(items) => items.iter_mut().for_each(|item| replace(item.get_mut(), place, text)),
        DeValue::Table(table) => table.iter_mut().for_each(|(_, value)| replace(value.get_mut(), place, text)),
        _ => {}
    }
}

/// Sets the key with the dotted name `path`, which then stands where `value` stands.
pub(super) fn put<'t>(table: &mut DeTable<'t>, path: &str, value: Spanned<DeValue<'t>>) {
    let name = |name: &str| Spanned::new(value.span(), Cow::Owned(name.to_owned()));
    match path.split_once('.') {
        None => {
            table.remove(path);
            table.insert(name(path), value);
        }
        Some((first, rest)) => {
            if !table.get(first).is_some_and(|inner| inner.get_ref().is_table()) {
                table.remove(first);
                table.insert(name(first), Spanned::new(value.span(), DeValue::Table(DeTable::new())));
            }
            if let Some(DeValue::Table(inner)) = table.get_mut(first).map(Spanned::get_mut) {
                put(inner, rest, value);
            }
        }
    }
}

fn merge<'t>(table: &mut DeTable<'t>, set: &DeTable<'t>) {
    for (key, value) in set {
        match (table.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Table(inner)), DeValue::Table(changes)) => merge(inner, changes),
            _ => {
                table.remove(key.get_ref().as_ref());
                table.insert(key.clone(), value.clone());
            }
        }
    }
}
