//! The tables of keys in `docs/configuration.md` are those of the source.
//!
//! Each section has a generated block on the page, below its own heading. Its rows are made from the descriptions of
//! the keys, which are what reading uses. `TIDY=write cargo test -p plimsoll-cli --lib config::page` renews the blocks.

use super::{profile, sections};
use plimsoll_settings::key::{Described, KeyTable};
use std::path::PathBuf;
use std::{env, fs};

const START: &str = "<!-- generated: configuration/";
const END: &str = "<!-- end -->";

/// Every table: those that the file leads to, and the file that `profile` names.
fn tables() -> Vec<&'static KeyTable> {
    let mut tables = sections::FILE.with_inner();
    tables.push(&profile::TABLE);
    let mut seen: Vec<&str> = Vec::new();
    tables.retain(|table| {
        let is_new = !seen.contains(&table.path);
        seen.push(table.path);
        is_new
    });
    tables
}

/// The name of the block.
fn name(table: &KeyTable) -> &'static str {
    if table.path.is_empty() { "file" } else { table.path }
}

/// How the heading of a section begins: `[volume.NAME.nbd]`. The file itself has none.
fn heading(table: &KeyTable) -> String {
    format!("# `[{}]`", table.path)
}

/// The rows of a block.
fn rows(table: &KeyTable) -> String {
    let mut rows = "| key | type | allowed | default | meaning |\n| --- | --- | --- | --- | --- |\n".to_owned();
    table.keys.iter().for_each(|key| rows.push_str(&row(*key)));
    rows
}

fn row(key: &dyn Described) -> String {
    let allowed = match key.table() {
        Some(inner) => {
            let anchor: String = inner.path.to_lowercase().replace('.', "");
            let link = format!("[`[{}]`](#{anchor})", inner.path);
            key.allowed().replace(&format!("[{}]", inner.path), &link)
        }
        None => as_code(&key.allowed()),
    };
    let default = match key.default() {
        None => "required".to_owned(),
        Some(Ok(value)) => format!("`{value}`"),
        Some(Err(words)) => words.to_owned(),
    };
    let cells = [format!("`{}`", key.name()), key.kind(), allowed, default, key.help().to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// `text` with what stands in quotation marks as code.
fn as_code(text: &str) -> String {
    let parts = text.split('"').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part.to_owned() } else { format!("`\"{part}\"`") }).collect()
}

/// The page with the blocks of `tables`, and what is wrong with its markers.
fn renewed(page: &str, tables: &[&'static KeyTable]) -> (String, Vec<String>) {
    let (mut renewed, mut rest, mut complaints) = (String::new(), page, Vec::new());
    let mut missing: Vec<&KeyTable> = tables.to_vec();
    while let Some((before, after)) = rest.split_once(START) {
        let Some((block, body)) = after.split_once(" -->\n") else { break };
        let Some((old, behind)) = body.split_once(END) else {
            complaints.push(format!("the block {block} has no {END}"));
            break;
        };
        renewed.push_str(before);
        let made = match missing.iter().position(|table| name(table) == block) {
            None => {
                complaints.push(format!("no section makes the block {block}"));
                old.to_owned()
            }
            Some(index) => {
                let table = missing.remove(index);
                let last = renewed.lines().rfind(|line| line.starts_with('#')).unwrap_or_default();
                if !table.path.is_empty() && !last.ends_with(&heading(table)) {
                    complaints.push(format!("the block {block} stands below {last:?}, allowed {:?}", heading(table)));
                }
                rows(table)
            }
        };
        renewed.push_str(&format!("{START}{block} -->\n{made}{END}"));
        rest = behind;
    }
    complaints.extend(missing.iter().map(|table| format!("the block {} is missing", name(table))));
    (renewed + rest, complaints)
}

/// What differs between the page and the source.
fn complaints(page: &str, tables: &[&'static KeyTable]) -> Vec<String> {
    let (renewed, mut complaints) = renewed(page, tables);
    let mut lines = page.lines().zip(renewed.lines());
    if let Some((is, should)) = lines.find(|(is, should)| is != should) {
        complaints.push(format!("the page differs from the source:\n  is     {is}\n  should {should}"));
    } else if renewed != page {
        complaints.push("the page differs from the source at its end".to_owned());
    }
    complaints
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Planted breaks, seen red: a key of `[daemon]` is described and has no row; a bound of a key changes in the source
/// alone; a row changes on the page alone.
#[test]
fn the_page_has_the_keys_of_the_source() {
    let file = folder("../../docs/configuration.md");
    let page = fs::read_to_string(&file).unwrap();
    let is_writing = env::var_os("TIDY").is_some_and(|what| what == "write");
    if is_writing {
        fs::write(&file, renewed(&page, &tables()).0).unwrap();
    }
    let page = fs::read_to_string(&file).unwrap();
    let complaints = complaints(&page, &tables());
    assert!(complaints.is_empty(), "docs/configuration.md: {}\nTIDY=write renews it", complaints.join("\n"));
}

#[test]
fn a_planted_page_that_differs_is_found() {
    let tables = || profile::TABLE.with_inner();
    let heading = "## `[profile]`\n\n";
    let good = format!("{heading}{START}profile -->\n{}{END}\nmore\n", rows(&profile::TABLE));
    assert!(complaints(&good, &tables()).is_empty());
    let without = good.lines().filter(|line| !line.starts_with("| `sequential` ")).map(|line| format!("{line}\n"));
    let complaint = complaints(&without.collect::<String>(), &tables());
    assert!(complaint[0].contains("should | `sequential` | rate |"), "{complaint:?}");
    let complaint = complaints(&good.replace("1 to 1024", "1 to 2048"), &tables());
    assert!(complaint[0].contains("is     | `outstanding_max`"), "{complaint:?}");
    assert_eq!(complaints("", &tables()), ["the block profile is missing"]);
    assert_eq!(complaints(&format!("{good}{START}y -->\n{END}"), &tables()), ["no section makes the block y"]);
    assert!(complaints(&format!("{heading}{START}profile -->\n"), &tables())[0].ends_with("has no <!-- end -->"));
    let complaint = complaints(&good.replace(heading, "## Others\n"), &tables());
    assert_eq!(complaint, ["the block profile stands below \"## Others\", allowed \"# `[profile]`\""]);
}

/// Whether a value stands below `value` at `path`, of which `NAME` is any name: `pool.NAME.weight`.
fn stands_at(value: &toml::Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let Some(table) = value.as_table() else { return false };
    match *first {
        "NAME" => table.values().any(|inner| stands_at(inner, rest)),
        name => table.get(name).is_some_and(|inner| stands_at(inner, rest)),
    }
}

/// The same anywhere in `value`: `[deadlines]` stands in several sections.
fn stands_in(value: &toml::Value, path: &[&str]) -> bool {
    let inner = value.as_table().into_iter().flat_map(|table| table.values());
    stands_at(value, path) || inner.into_iter().any(|inner| stands_in(inner, path))
}

/// A good configuration has each key in its own section, so that each section is read where tests run. A profile is a
/// second file, which tests make where they need it.
///
/// Planted break: a key `options` of `[pool.NAME]`, which only `[volume.NAME.mount]` has in a file, red.
#[test]
fn a_good_file_has_each_key() {
    let paths = fs::read_dir(folder("tests/good")).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "toml"));
    let good: Vec<toml::Value> =
        paths.map(|path| toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()).collect();
    for table in sections::FILE.with_inner() {
        for key in table.keys.iter().filter(|key| key.name() != profile::TABLE.path) {
            let path: Vec<&str> = table.path.split('.').filter(|part| !part.is_empty()).chain([key.name()]).collect();
            let is_section = sections::FILE.keys.iter().any(|section| Some(&section.name()) == path.first());
            let is_at: fn(&toml::Value, &[&str]) -> bool = if is_section { stands_at } else { stands_in };
            let is_there = good.iter().any(|file| is_at(file, &path));
            assert!(is_there, "{}.{} is in no file of tests/good", table.path, key.name());
        }
    }
}

#[test]
fn texts_become_code() {
    assert_eq!(as_code("\"zstd\", or more"), "`\"zstd\"`, or more");
    assert_eq!(as_code("an absolute path, not \"/\""), "an absolute path, not `\"/\"`");
}
