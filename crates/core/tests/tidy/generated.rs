//! A block of a page that is made from a source equals it.
//!
//! ```text
//! <!-- generated: schedulers/rules -->
//! ...
//! <!-- end -->
//! ```
//!
//! [`SOURCES`] and `metrics` have the function that makes each block. `TIDY=write cargo test -p plimsoll-core --test
//! tidy generated` writes what the functions make into the pages. Where the source is a value of another crate, a test
//! of that crate compares ([`ELSEWHERE`]).

use super::figures::table;
use super::literals::{entries, value};
use super::tree::{Text, find, house, root};
use std::{env, fs};

const START: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";
const FIGURES: &str = "docs/figures.md";

/// A generated block.
#[derive(Clone, Copy)]
pub struct Source {
    /// The page.
    pub page: &'static str,
    /// The block's name.
    pub name: &'static str,
    /// Makes the block out of the repository's files.
    pub make: fn(&[Text]) -> String,
}

/// Every generated block, besides those of [`metrics`](super::metrics).
const SOURCES: &[Source] = &[
    Source { page: "docs/schedulers/README.md", name: "schedulers/rules", make: rules },
    Source { page: FIGURES, name: "figures/split", make: |texts| table(texts, "split") },
    Source { page: FIGURES, name: "figures/wdt", make: |texts| table(texts, "wdt") },
    Source { page: FIGURES, name: "figures/zygaria", make: |texts| table(texts, "zygaria") },
    Source { page: FIGURES, name: "figures/dss", make: |texts| table(texts, "dss") },
    Source { page: FIGURES, name: "figures/wafl", make: |texts| table(texts, "wafl") },
    Source { page: FIGURES, name: "figures/devices", make: |texts| table(texts, "devices") },
    Source { page: FIGURES, name: "figures/live-zygaria", make: |texts| table(texts, "live-zygaria") },
    Source { page: FIGURES, name: "figures/live-wdt", make: |texts| table(texts, "live-wdt") },
    Source { page: FIGURES, name: "figures/live-split", make: |texts| table(texts, "live-split") },
    Source { page: FIGURES, name: "figures/live-dss", make: |texts| table(texts, "live-dss") },
    Source { page: FIGURES, name: "figures/live-kernel", make: |texts| table(texts, "live-kernel") },
];

/// Blocks that the test of another crate compares, since their source is a value there: how their names begin, and the
/// file with the test.
const ELSEWHERE: &[(&str, &str)] = &[("configuration/", "crates/cli/src/config/page.rs")];

/// The rule of each scheduler, and whether law 6 is its law.
fn rules(texts: &[Text]) -> String {
    let registry = find(texts, "crates/schedulers/src/registry.rs").expect("the registry of schedulers");
    let mut table = "| scheduler | rule | work-conserving |\n| --- | --- | --- |\n".to_owned();
    for entry in entries(registry, "REGISTRY") {
        let (name, summary) = (value(&entry, "name"), value(&entry, "summary"));
        let is_conserving = if value(&entry, "is_work_conserving") == "true" { "yes" } else { "" };
        table.push_str(&format!("| `{name}` | {summary} | {is_conserving} |\n"));
    }
    table
}

/// The page with what the sources make in its blocks, and what is wrong with its markers.
fn renewed(page: &Text, sources: &[Source], texts: &[Text]) -> (String, Vec<String>) {
    let (mut renewed, mut rest, mut complaints) = (String::new(), &*page.text, Vec::new());
    let mut missing: Vec<_> = sources.iter().filter(|source| source.page == page.path).collect();
    while let Some((before, after)) = rest.split_once(START) {
        let Some((name, body)) = after.split_once(" -->\n") else { break };
        let Some((old, behind)) = body.split_once(END) else {
            complaints.push(format!("{}: the block {name} has no {END}", page.path));
            break;
        };
        let index = missing.iter().position(|source| source.name == name);
        let is_elsewhere = |(begin, test): &(&str, &str)| name.starts_with(begin) && find(texts, test).is_some();
        let made = index.map(|index| (missing.remove(index).make)(texts)).unwrap_or_else(|| {
            if !ELSEWHERE.iter().any(is_elsewhere) {
                complaints.push(format!("{}: nothing makes the block {name}", page.path));
            }
            old.to_owned()
        });
        renewed.push_str(&format!("{before}{START}{name} -->\n{made}{END}"));
        rest = behind;
    }
    complaints.extend(missing.iter().map(|source| format!("{}: the block {} is missing", page.path, source.name)));
    (renewed + rest, complaints)
}

fn complaints(texts: &[Text], sources: &[Source], is_writing: bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| find(texts, source.page).is_none()) {
        complaints.push(format!("{} is missing", source.page));
    }
    for page in texts.iter().filter(|text| text.path.ends_with(".md")) {
        let (renewed, wrong) = renewed(page, sources, texts);
        complaints.extend(wrong);
        if renewed != page.text && is_writing {
            fs::write(root().join(&page.path), renewed).unwrap();
        } else if let Some((is, should)) = page.text.lines().zip(renewed.lines()).find(|(is, should)| is != should) {
            complaints.push(format!("{}: differs from its source:\n  is     {is}\n  should {should}", page.path));
        } else if renewed != page.text {
            complaints.push(format!("{}: differs from its source at its end", page.path));
        }
    }
    complaints
}

#[test]
fn generated_blocks_equal_their_sources() {
    let is_writing = env::var_os("TIDY").is_some_and(|what| what == "write");
    let sources = [SOURCES, super::metrics::SOURCES].concat();
    let complaints = complaints(house(), &sources, is_writing);
    assert!(complaints.is_empty(), "{}\nTIDY=write renews them", complaints.join("\n"));
}

#[test]
fn a_planted_page_that_differs_is_found() {
    let sources = || [Source { page: "a.md", name: "x", make: |_| "| 1 |\n".to_owned() }];
    let complaints_of = |page: &str| complaints(&super::tree::planted(&[("a.md", page)]), &sources(), false);
    let good = "# A\n<!-- generated: x -->\n| 1 |\n<!-- end -->\nB\n";
    assert!(complaints_of(good).is_empty());
    let differs = complaints_of(&good.replace('1', "2"));
    assert_eq!(differs, ["a.md: differs from its source:\n  is     | 2 |\n  should | 1 |"]);
    assert_eq!(complaints_of("# A"), ["a.md: the block x is missing"]);
    let twice = good.replace("\nB\n", "\n<!-- generated: y -->\n<!-- end -->\n");
    assert_eq!(complaints_of(&twice), ["a.md: nothing makes the block y"]);
    let elsewhere = twice.replace(": y", ": configuration/y");
    assert_eq!(complaints_of(&elsewhere), ["a.md: nothing makes the block configuration/y"], "without the test");
    let texts = super::tree::planted(&[("a.md", &elsewhere), ("crates/cli/src/config/page.rs", "")]);
    assert!(complaints(&texts, &sources(), false).is_empty());
    assert!(complaints_of("<!-- generated: x -->\n").contains(&"a.md: the block x has no <!-- end -->".to_owned()));
    assert_eq!(complaints(&[], &sources(), false), ["a.md is missing"]);
}
