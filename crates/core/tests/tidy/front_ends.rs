//! A front end stands in its folders and in one line of the registry; no other file of a crate's `src` names it.
//!
//! A name of the registry that is also a folder of `crates/serve/src` is looked for in the code and in the literals of
//! all crates. The folders of that name, the registry, the lists of modules in `lib.rs`, tests and `testkit` are left
//! out.

use super::exceptions::listed;
use super::lexer::{Kind, pieces};
use super::literals::{entries, value};
use super::tree::{Text, find, house};
use std::collections::{BTreeMap, BTreeSet};

const REGISTRY: &str = "crates/serve/src/registry.rs";

/// Files that name a front end, by its name.
pub type Naming = BTreeMap<String, BTreeSet<String>>;

/// Every file that names a front end and is none of its own.
pub fn naming(texts: &[Text]) -> Naming {
    let registry = find(texts, REGISTRY).unwrap_or("");
    let names = entries(registry, "FRONT_ENDS").iter().map(|entry| value(entry, "name").to_owned()).collect::<Vec<_>>();
    let has_folder =
        |name: &&String| texts.iter().any(|text| text.path.starts_with(&format!("crates/serve/src/{name}/")));
    let names: Vec<&String> = names.iter().filter(has_folder).collect();
    let mut naming = Naming::new();
    for text in texts.iter().filter(|text| is_looked_at(&text.path)) {
        let code = text.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let pieces = pieces(code);
        for name in names.iter().filter(|name| !text.path.split('/').any(|part| part == ***name)) {
            let is_named = pieces.iter().any(|piece| match piece.kind {
                Kind::Code => piece.text.to_lowercase().contains(name.as_str()),
                Kind::Literal => words(piece.text).any(|word| word == name.as_str()),
                Kind::Doc | Kind::Comment => false,
            });
            if is_named {
                naming.entry((*name).clone()).or_default().insert(text.path.clone());
            }
        }
    }
    naming
}

fn is_looked_at(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.ends_with(".rs") && path.split('/').nth(2) == Some("src");
    is_source
        && path != REGISTRY
        && !path.starts_with("crates/testkit/")
        && !path.ends_with("/lib.rs")
        && !path.ends_with("/tests.rs")
        && !path.contains("/tests/")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric())
}

/// Files of `naming` that `allowed` does not have, and the other way round.
fn complaints(allowed: &Naming, naming: &Naming) -> Vec<String> {
    let files = |of: &Naming| {
        let pairs = of.iter().flat_map(|(name, files)| files.iter().map(|file| (name.clone(), file.clone())));
        pairs.collect::<BTreeSet<_>>()
    };
    let (allowed, naming) = (files(allowed), files(naming));
    let new = naming.difference(&allowed);
    let new =
        new.map(|(name, file)| format!("{file} names the front end {name}, allowed in its folders and {REGISTRY}"));
    let mended = allowed.difference(&naming);
    let mended = mended.map(|(name, file)| format!("{file} no longer names {name}: TIDY=shrink shortens the list"));
    new.chain(mended).collect()
}

/// Planted break, seen red: `crates/cli/src/up/mod.rs` has a constant with the text `iscsi`.
#[test]
fn a_front_end_is_named_in_its_folders_and_in_the_registry() {
    let complaints = complaints(&listed().front_ends, &naming(house()));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Planted breaks, seen red: literals are not looked at; a type's name is not.
#[test]
fn a_planted_file_that_names_a_front_end_is_found() {
    let texts = super::tree::planted(&[
        (REGISTRY, "const FRONT_ENDS: &[E] = &[E { name: \"ab\" }, E { name: \"mount\" }];"),
        ("crates/serve/src/ab/mod.rs", "struct Ab;"),
        ("crates/serve/src/lib.rs", "mod ab;"),
        ("crates/cli/src/a.rs", "// Of ab.\nfn x() { y(\"ab.listen\") }"),
        ("crates/cli/src/b.rs", "fn x(ab_listen: u8) {}"),
        (
            "crates/cli/src/c.rs",
            "//! What ab is.\nfn mount() { y(\"tab or AB\") }\n#[cfg(test)]\nmod tests {\n fn ab() {}\n}\n",
        ),
        ("crates/cli/tests/d.rs", "fn ab() {}"),
    ]);
    let found = naming(&texts);
    assert_eq!(format!("{found:?}"), r#"{"ab": {"crates/cli/src/a.rs", "crates/cli/src/b.rs"}}"#);
    assert!(complaints(&found, &found).is_empty());
    let new = complaints(&Naming::new(), &found);
    assert!(new.len() == 2 && new[0].starts_with("crates/cli/src/a.rs names the front end ab"), "{new:?}");
    assert_eq!(complaints(&found, &Naming::new()).len(), 2);
}
