//! Scenario files: reading, varying, checking.
//!
//! The text becomes tables; `--set` changes their keys, and the axes make a table for each combination. Each table is
//! read by itself, so that a value that is wrong in one variant only is found. At last every expression is rehearsed.
//! Every message is one line: `FILE:LINE: KEY: got X, allowed Y`.

mod database;
mod filer;
mod kernel;
pub mod library;
pub mod model;
mod read;
mod setup;
mod several;
mod utilities;
mod variants;
mod words;

pub use model::*;
pub use plimsoll_sim::MachineConfig;
pub use plimsoll_sim::guest::CacheMode;
pub use plimsoll_sim::numa::ThrottleLock;

use crate::expression::{Context, Outcome, RunOf};
use plimsoll_settings::{ConfigurationError, LineIndex, Problem, Section, file, quoted, suggest, syntax};
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A scenario is not longer than this, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no scenario.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] ConfigurationError),
    /// What `--set` asked for is wrong.
    #[error("--set {key}: got {got}, allowed {allowed}")]
    Set {
        /// The key.
        key: String,
        /// What was found.
        got: String,
        /// What would have been right.
        allowed: String,
    },
    /// No scenario has this name.
    #[error("scenario: got {got:?}, allowed the path of a .toml file, or one of {known}{hint}")]
    Unknown {
        /// The name.
        got: String,
        /// Those that there are.
        known: String,
        /// The one that was probably meant.
        hint: String,
    },
}

/// A key that is set from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    key: String,
    value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').unwrap_or_default();
        if key.is_empty() {
            return Err("allowed is KEY=VALUE, such as machine.device=ssd.x25-m".to_owned());
        }
        Ok(Setting { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.key, self.value)
    }
}

/// Reads the scenario called `name`, or in the file of that path.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(name: &str, settings: &[Setting]) -> Result<Scenario, ScenarioError> {
    if let Some((name, text)) = library::find(name) {
        return parse(text, &library::path(name), settings);
    }
    if !name.ends_with(".toml") {
        let known: Vec<&str> = library::names().collect();
        let hint = suggest::hint(name, known.iter().copied());
        return Err(ScenarioError::Unknown { got: name.to_owned(), known: known.join(", "), hint });
    }
    let path = Path::new(name);
    parse(&file::read_text(path, FILE_BYTES_MAX, "at most 1 MiB")?, path, settings)
}

/// Reads a scenario from `text`, which came from `file`.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub fn parse(text: &str, file: &Path, settings: &[Setting]) -> Result<Scenario, ScenarioError> {
    let lines = LineIndex::new(text);
    let mut problems = Vec::new();
    let (mut table, is_usable) = syntax::parse(text, &lines, &mut problems);
    if !is_usable {
        return Err(failed(file, problems, settings));
    }
    for setting in settings {
        apply(&mut table, setting)?;
    }
    let name = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let scenario = read_variants(&table, &lines, settings, &mut problems).map(|scenario| Scenario {
        name,
        file: file.to_owned(),
        ..scenario
    });
    if problems.is_empty()
        && let Some(scenario) = &scenario
    {
        rehearse(scenario, &table, &lines, &mut problems);
    }
    match scenario {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ => Err(failed(file, problems, settings)),
    }
}

fn read_variants(
    table: &DeTable<'_>,
    lines: &LineIndex,
    settings: &[Setting],
    problems: &mut Vec<Problem>,
) -> Option<Scenario> {
    let axes = variants::read(&mut Section::root(table, lines), problems);
    if !problems.is_empty() {
        return None;
    }
    let count = axes.iter().map(|varied| varied.axis.labels.len()).product::<usize>();
    if count > variants::VARIANTS_MAX {
        let place = Section::root(table, lines).finish(&mut Vec::new());
        let allowed = format!("at most {}", variants::VARIANTS_MAX);
        problems.push(place.problem("variant", format!("{count} variants"), allowed));
        return None;
    }
    for varied in &axes {
        let taken = settings.iter().find(|setting| varied.key() == Some(&setting.key));
        if let Some(Setting { key, value }) = taken {
            let name = &varied.axis.name;
            let allowed = format!("variant.{name}.values=[...], because [variant.{name}] varies it");
            problems.push(Problem { line: 1, key: key.clone(), got: quoted(value), allowed });
            return None;
        }
    }
    let mut scenario: Option<Scenario> = None;
    for (labels, table) in variants::combinations(table, &axes) {
        let mut found = Vec::new();
        let read = read::scenario(Section::root(&table, lines), &mut found);
        found.retain(|problem| !problems.contains(problem));
        problems.extend(found);
        if let Some((head, setup)) = read {
            scenario.get_or_insert(head).variants.push(Variant { labels, setup });
        }
    }
    scenario.map(|scenario| Scenario { axes: axes.into_iter().map(|varied| varied.axis).collect(), ..scenario })
}

/// Changes a key of the file as `--set` asks.
fn apply<'t>(table: &mut DeTable<'t>, setting: &'t Setting) -> Result<(), ScenarioError> {
    let Setting { key, value } = setting;
    let refuse = |got: String, allowed: String| ScenarioError::Set { key: key.clone(), got, allowed };
    if let Some((parents, _)) = key.rsplit_once('.') {
        let mut inner = Some(&*table);
        let mut path = String::new();
        for part in parents.split('.') {
            let here = inner.expect("it was found");
            inner = here.get(part).and_then(|value| value.get_ref().as_table());
            if inner.is_none() {
                let known: Vec<&str> = here.iter().map(|(key, _)| key.get_ref().as_ref()).collect();
                let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
                let hint = suggest::hint(part, known.iter().copied());
                return Err(refuse(format!("no table {part:?}{place}"), format!("{}{hint}", known.join(", "))));
            }
            path = if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
        }
    }
    // A value that is no TOML is a text: on a command line it needs no second quotes.
    let parsed = DeValue::parse(value).unwrap_or_else(|_| Spanned::new(0..0, DeValue::String(value.as_str().into())));
    variants::put(table, key, parsed);
    Ok(())
}

/// The error; a problem with a key that `--set` gave is that of the command line.
fn failed(file: &Path, mut problems: Vec<Problem>, settings: &[Setting]) -> ScenarioError {
    let is_set = |problem: &&Problem| {
        settings.iter().any(|s| problem.key == s.key || problem.key.starts_with(&format!("{}.", s.key)))
    };
    if let Some(Problem { key, got, allowed, .. }) = problems.iter().find(is_set) {
        return ScenarioError::Set { key: key.clone(), got: got.clone(), allowed: allowed.clone() };
    }
    problems.sort_by_key(|problem| problem.line);
    ConfigurationError { file: file.to_owned(), problems }.into()
}

/// What an expression sees of the variants before they have run: names, and 1 for each figure.
fn rehearsal(scenario: &Scenario) -> Context {
    let runs = scenario.variants.iter().map(|variant| {
        Rc::new(RunOf {
            labels: variant.labels.clone(),
            sources: variant.setup.sources(),
            window: variant.setup.window(),
            outcome: Outcome::Rehearsed,
        })
    });
    Context { runs: Rc::new(runs.collect()), ..Context::default() }
}

fn rehearse(scenario: &Scenario, table: &DeTable<'_>, lines: &LineIndex, problems: &mut Vec<Problem>) {
    const ALLOWED: &str = "an expression as docs/scenarios.md has them";
    let context = rehearsal(scenario);
    let mut check = |path: [&str; 4], result: Result<(), String>| {
        if let Err(got) = result {
            let parts: Vec<&str> = path.into_iter().filter(|part| !part.is_empty()).collect();
            let line = line_of(table, lines, &parts);
            problems.push(Problem { line, key: parts.join("."), got, allowed: ALLOWED.to_owned() });
        }
    };
    for row in &scenario.rows {
        check(["row", &row.name, "measure", ""], row.measure.number(&context).map(|_| ()));
        if let Some(claim) = &row.claim {
            let context = Context { paper: row.paper, ..context.clone() };
            check(["row", &row.name, "claim", ""], claim.bound.number(&context).map(|_| ()));
        }
    }
    for panel in &scenario.panels {
        for series in &panel.series {
            let at = |x: &String| series.y.number(&Context { x: Some(x.clone()), ..context.clone() }).map(|_| ());
            let result = match panel.kind {
                PanelKind::Curve => series.y.points(&context).map(|_| ()),
                PanelKind::Lines | PanelKind::Bars => panel.over.iter().try_for_each(at),
            };
            check(["panel", &panel.name, "series", &series.name], result);
        }
    }
}

/// The line of the key at `path`.
fn line_of(table: &DeTable<'_>, lines: &LineIndex, path: &[&str]) -> usize {
    let (mut table, mut line) = (Some(table), 1);
    for part in path {
        let Some((key, value)) = table.and_then(|table| table.get_key_value(*part)) else { break };
        line = lines.line(if value.get_ref().is_table() { value.span().start } else { key.span().start });
        table = value.get_ref().as_table();
    }
    line
}
