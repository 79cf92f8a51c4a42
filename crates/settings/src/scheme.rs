//! Schemes of classes: what the 32 classes are called, which are kept longest, and which may enter a cache.
//!
//! A scheme is a TOML file with a table `[class.NAME]` for each class. It may include others, those of this repository
//! (`classes/*.toml`, which are built in) by name and a site's own by path. Then it has only the differences and
//! additions:
//!
//! ```toml
//! include = ["ext4", "postgresql"]
//!
//! [class.database-index]   # known from postgresql: only the priority changes
//! priority = 2
//!
//! [class.video]            # new: it needs a number that nobody has, and a priority
//! number = 26
//! priority = 14
//! writes = "never"
//! ```

use crate::problem::{ConfigurationError, Place, Problem, quoted};
use crate::reader::{LineIndex, Section};
use crate::{file, suggest, syntax};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, CLASSES, ClassEntry, PRIORITIES, Scheme};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The schemes of the repository: name and text.
const BUILT_IN: [(&str, &str); 6] = [
    ("ext4", include_str!("../../../classes/ext4.toml")),
    ("hp-ux", include_str!("../../../classes/hp-ux.toml")),
    ("ntfs", include_str!("../../../classes/ntfs.toml")),
    ("postgresql", include_str!("../../../classes/postgresql.toml")),
    ("postgresql-on-ext4", include_str!("../../../classes/postgresql-on-ext4.toml")),
    ("xfs", include_str!("../../../classes/xfs.toml")),
];
const FILE_BYTES_MAX: u64 = 1 << 16;
/// Schemes that one may include.
const INCLUDES_MAX: usize = 8;
/// Files that include one another.
const DEPTH_MAX: usize = 4;
const ADMISSIONS: [(&str, Admission); 3] =
    [("always", Admission::Always), ("while-idle", Admission::WhileIdle), ("never", Admission::Never)];

/// A scheme and what it says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedScheme {
    /// Of a built-in scheme its name, else the path.
    pub name: String,
    /// One line; empty if it says nothing.
    pub summary: String,
    /// The classes.
    pub scheme: Scheme,
}

/// Why there is no scheme.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SchemeError {
    /// Neither a built-in scheme nor a path.
    #[error("classes: got {got}, allowed {allowed}")]
    Name {
        /// What was asked for.
        got: String,
        /// What there is.
        allowed: String,
    },
    /// A file that is wrong.
    #[error(transparent)]
    File(#[from] ConfigurationError),
}

/// The names of the built-in schemes, in order.
pub fn built_in() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The built-in scheme called `name`, or that of the file `name`, which ends in `.toml`.
///
/// # Errors
/// An unknown name, or everything that is wrong with the file, in the order of its lines.
pub fn load(name: &str) -> Result<NamedScheme, SchemeError> {
    match Source::of(name, Path::new("")) {
        Ok(source) => Ok(source.read(1)?),
        Err(allowed) => Err(SchemeError::Name { got: quoted(name), allowed }),
    }
}

/// Reads `text`, which came from `path`; what it includes by path is looked for beside it.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub fn parse(text: &str, path: &Path) -> Result<NamedScheme, ConfigurationError> {
    parse_at(text, path, &path.display().to_string(), 1)
}

/// Where a scheme's text is.
enum Source {
    BuiltIn { name: &'static str, text: &'static str },
    File(PathBuf),
}

impl Source {
    /// What `name` means in a file of `folder`; where it means nothing, what would.
    fn of(name: &str, folder: &Path) -> Result<Source, String> {
        if let Some(&(name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Ok(Source::BuiltIn { name, text });
        }
        if Path::new(name).extension().is_some_and(|end| end == "toml") {
            return Ok(Source::File(folder.join(name)));
        }
        let names = built_in().collect::<Vec<_>>().join(", ");
        Err(format!("{names}, or the path of a .toml file{}", suggest::hint(name, built_in())))
    }

    fn read(&self, depth: usize) -> Result<NamedScheme, ConfigurationError> {
        match self {
            Source::BuiltIn { name, text } => parse_at(text, Path::new(&format!("classes/{name}.toml")), name, depth),
            Source::File(path) => {
                let text = file::read_text(path, FILE_BYTES_MAX, "at most 64 KiB")?;
                parse_at(&text, path, &path.display().to_string(), depth)
            }
        }
    }
}

fn parse_at(text: &str, path: &Path, name: &str, depth: usize) -> Result<NamedScheme, ConfigurationError> {
    let (lines, mut problems) = (LineIndex::new(text), Vec::new());
    let (table, is_usable) = syntax::parse(text, &lines, &mut problems);
    let (mut scheme, mut summary) = (Scheme::default(), String::new());
    if is_usable {
        let mut root = Section::root(&table, &lines);
        summary = root.text("summary", "one line of text", &mut problems).unwrap_or_default().to_owned();
        include(&mut root, path, depth, &mut scheme, &mut problems)?;
        let inherited = scheme.clone();
        for (name, section) in root.named_sections("class", CLASSES, &mut problems) {
            class(&name, section, &inherited, &mut scheme, &mut problems);
        }
        let place = root.finish(&mut problems);
        if problems.is_empty() && scheme.entries().next().is_none() {
            problems.push(place.problem("class", "nothing", "at least one class: [class.NAME]"));
        }
    }
    problems.sort_by_key(|problem| problem.line);
    match problems.is_empty() {
        true => Ok(NamedScheme { name: name.to_owned(), summary, scheme }),
        false => Err(ConfigurationError { file: path.into(), problems }),
    }
}

/// Takes over what the file includes, in the order in which it names them. What is wrong in an included file is an
/// error of that file.
fn include(
    root: &mut Section<'_>,
    path: &Path,
    depth: usize,
    scheme: &mut Scheme,
    problems: &mut Vec<Problem>,
) -> Result<(), ConfigurationError> {
    const LIST: &str = "a list of schemes, such as [\"ext4\", \"mine.toml\"]";
    let Some(names) = root.texts("include", LIST, problems) else { return Ok(()) };
    let place = root.place();
    if names.len() > INCLUDES_MAX {
        problems.push(place.problem("include", format!("{} schemes", names.len()), format!("at most {INCLUDES_MAX}")));
        return Ok(());
    }
    if depth == DEPTH_MAX && !names.is_empty() {
        let allowed = format!("at most {DEPTH_MAX} files that include one another");
        problems.push(place.problem("include", "one file more", allowed));
        return Ok(());
    }
    for (line, name) in names {
        let source = match Source::of(name, path.parent().unwrap_or(Path::new(""))) {
            Ok(source) => source,
            Err(allowed) => {
                problems.push(Problem { line, ..place.problem("include", quoted(name), allowed) });
                continue;
            }
        };
        for entry in source.read(depth + 1)?.scheme.entries() {
            match clash(scheme, &entry.name, entry.number) {
                Some(other) => {
                    let got = format!("{} of {name} with number {}", entry.name, entry.number.number());
                    let allowed = format!("what does not differ from {} with number {}", other.0, other.1);
                    problems.push(Problem { line, ..place.problem("include", got, allowed) });
                }
                None => scheme.set(entry.clone()),
            }
        }
    }
    Ok(())
}

/// The class that has the same number with another name, or the same name with another number: its name and number.
fn clash(scheme: &Scheme, name: &str, number: Class) -> Option<(String, u8)> {
    let same_number = scheme.entry(number).filter(|other| other.name != name);
    let same_name = scheme.named(name).filter(|other| other.number != number);
    same_number.or(same_name).map(|other| (other.name.clone(), other.number.number()))
}

/// Reads one class into `scheme`. Of an `inherited` class, what the section leaves out stays as it is.
fn class(name: &str, mut section: Section<'_>, inherited: &Scheme, scheme: &mut Scheme, problems: &mut Vec<Problem>) {
    let before = problems.len();
    let number = section.integer("number", 0..=CLASSES as u64 - 1, problems).map(|number| number as u8);
    let priority = section.integer("priority", 0..=u64::from(PRIORITIES) - 1, problems).map(|priority| priority as u8);
    let [reads, writes] = ["reads", "writes"].map(|key| admission(&mut section, key, problems));
    let occupancy_max = section.with("occupancy_max", "a part of the cache such as \"20%\"", problems, |value| {
        let percent: f64 = value.as_str()?.strip_suffix('%')?.trim().parse().ok()?;
        // Of the smallest numbers a hundredth is nothing.
        Some(percent / 100.0).filter(|part| *part > 0.0 && *part <= 1.0)
    });
    let known = inherited.named(name).cloned();
    if known.is_none() {
        section.require("number", "a number of 0 to 31", problems);
        section.require("priority", "0 (kept longest) to 15", problems);
    }
    let place = section.finish(problems);
    if problems.len() > before {
        return;
    }
    let known_number = known.as_ref().map(|known| known.number.number());
    let Some(class) = number.or(known_number).and_then(Class::new) else { return };
    if let Some(problem) = number_problem(&place, name, class, scheme, known_number) {
        problems.push(problem);
        return;
    }
    let mut entry = known.unwrap_or_else(|| ClassEntry::new(class, name, 0));
    entry.priority = priority.unwrap_or(entry.priority);
    entry.reads = reads.unwrap_or(entry.reads);
    entry.writes = writes.unwrap_or(entry.writes);
    entry.occupancy_max = occupancy_max.unwrap_or(entry.occupancy_max);
    scheme.set(entry);
}

fn number_problem(place: &Place, name: &str, class: Class, scheme: &Scheme, known: Option<u8>) -> Option<Problem> {
    let number = class.number();
    if let Some(known) = known.filter(|&known| known != number) {
        return Some(place.problem("number", number, format!("{known}, as in what is included, or nothing")));
    }
    let other = scheme.entry(class).filter(|other| other.name != name)?;
    Some(place.problem("number", number, format!("a number that {} does not have", other.name)))
}

fn admission(section: &mut Section<'_>, key: &'static str, problems: &mut Vec<Problem>) -> Option<Admission> {
    let word = section.choice(key, &ADMISSIONS.map(|(word, _)| word), problems)?;
    ADMISSIONS.iter().find(|(known, _)| *known == word).map(|(_, admission)| *admission)
}

#[cfg(test)]
#[path = "scheme_tests.rs"]
mod tests;
