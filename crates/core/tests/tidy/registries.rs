//! Each entry of a registry has its page: a file of its name in a folder, or its name in code on a common page.

use super::literals::{entries, value};
use super::tree::{Text, find, house};
use std::collections::BTreeSet;

enum Pages {
    /// `FOLDER/NAME.md`, and no other page but `README.md`.
    Folder(&'static str),
    /// One page that has each entry's name as the first word of a piece of code.
    Page(&'static str),
    /// The same, on the page that the entry's field of this name names.
    Field(&'static str),
}

struct Registry {
    /// The folder or file that holds it.
    source: &'static str,
    /// The static or constant.
    item: &'static str,
    /// The field with the entry's name.
    field: &'static str,
    pages: Pages,
}

const REGISTRIES: &[Registry] = &[
    Registry {
        source: "crates/schedulers/src/registry.rs",
        item: "REGISTRY",
        field: "name",
        pages: Pages::Folder("docs/schedulers/"),
    },
    Registry {
        source: "crates/cache/src/registry.rs",
        item: "POLICIES",
        field: "name",
        pages: Pages::Page("docs/cache.md"),
    },
    Registry {
        source: "crates/devices/src/registry.rs",
        item: "MODELS",
        field: "name",
        pages: Pages::Page("docs/devices.md"),
    },
    Registry { source: "crates/traces/src/format/", item: "INFO", field: "name", pages: Pages::Page("docs/traces.md") },
    Registry {
        source: "crates/workloads/src/text/heads.rs",
        item: "HEADS",
        field: "0",
        pages: Pages::Page("docs/workloads.md"),
    },
    Registry { source: "crates/serve/src/registry.rs", item: "FRONT_ENDS", field: "name", pages: Pages::Field("page") },
    Registry {
        source: "crates/executor/src/rules.rs",
        item: "ALL",
        field: "0",
        pages: Pages::Page("docs/executor.md"),
    },
    Registry {
        source: "crates/lab/src/host/parts.rs",
        item: "FILE_SYSTEMS",
        field: "0",
        pages: Pages::Page("docs/scenarios.md"),
    },
];

fn complaints(texts: &[Text], registries: &[Registry]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Registry { source, item, field, pages } in registries {
        let sources = texts.iter().filter(|text| text.path.starts_with(source) && text.path.ends_with(".rs"));
        let entries: Vec<_> = sources.flat_map(|text| entries(&text.text, item)).collect();
        let names: BTreeSet<String> = entries.iter().map(|entry| value(entry, field).to_owned()).collect();
        if names.is_empty() {
            complaints.push(format!("{source} has no registry {item}"));
        }
        match pages {
            Pages::Folder(folder) => {
                let pages = texts.iter().filter_map(|text| text.path.strip_prefix(folder)?.strip_suffix(".md"));
                let pages: BTreeSet<String> = pages.filter(|page| *page != "README").map(str::to_owned).collect();
                complaints
                    .extend(names.difference(&pages).map(|name| format!("{source}: {name} lacks {folder}{name}.md")));
                complaints
                    .extend(pages.difference(&names).map(|name| format!("{folder}{name}.md: no entry of {source}")));
            }
            Pages::Page(page) => {
                let text = find(texts, page).unwrap_or("");
                let missing = names.iter().filter(|name| !names_in_code(text).contains(name.as_str()));
                complaints.extend(missing.map(|name| format!("{source}: {page} does not name `{name}`")));
            }
            Pages::Field(of_page) => {
                for entry in &entries {
                    let (name, page) = (value(entry, field), value(entry, of_page));
                    if !names_in_code(find(texts, page).unwrap_or("")).contains(name) {
                        complaints.push(format!("{source}: {page} does not name `{name}`"));
                    }
                }
            }
        }
    }
    complaints
}

/// First words of all code on a page: in backticks, and on each line of a fence.
fn names_in_code(page: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut is_in_fence = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_in_fence = !is_in_fence;
        } else if is_in_fence {
            names.extend(first_word(line));
        } else {
            names.extend(line.split('`').skip(1).step_by(2).filter_map(first_word));
        }
    }
    names
}

fn first_word(code: &str) -> Option<&str> {
    code.split_whitespace().next().map(|word| word.trim_end_matches(','))
}

#[test]
fn every_entry_of_a_registry_has_its_page() {
    let complaints = complaints(house(), REGISTRIES);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_entry_without_a_page_is_found() {
    let registry = |pages| Registry { source: "r.rs", item: "ALL", field: "name", pages };
    let texts = super::tree::planted(&[
        ("r.rs", r#"static ALL: &[E] = &[E { name: "a" }, E { name: "b" }];"#),
        ("docs/r/README.md", ""),
        ("docs/r/a.md", ""),
        ("docs/r/c.md", ""),
        ("docs/r.md", "| `a SIZE` | b |\n```text\nd, 3\n```\nc"),
    ]);
    assert_eq!(names_in_code(find(&texts, "docs/r.md").unwrap()), BTreeSet::from(["a", "d"]));
    let folder = complaints(&texts, &[registry(Pages::Folder("docs/r/"))]);
    assert_eq!(folder, ["r.rs: b lacks docs/r/b.md", "docs/r/c.md: no entry of r.rs"]);
    assert_eq!(complaints(&texts, &[registry(Pages::Page("docs/r.md"))]), ["r.rs: docs/r.md does not name `b`"]);
    let texts = super::tree::planted(&[
        ("r.rs", r#"static ALL: &[E] = &[E { name: "a", page: "docs/a.md" }, E { name: "b", page: "docs/b.md" }];"#),
        ("docs/a.md", "`a = {}` `b`"),
    ]);
    let of_field = complaints(&texts, &[registry(Pages::Field("page"))]);
    assert_eq!(of_field, ["r.rs: docs/b.md does not name `b`"]);
    let gone = Registry { source: "s.rs", ..registry(Pages::Page("docs/r.md")) };
    assert_eq!(complaints(&texts, &[gone]), ["s.rs has no registry ALL"]);
}
