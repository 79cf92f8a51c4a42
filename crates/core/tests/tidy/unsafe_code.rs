//! A crate without `unsafe` forbids it at the head of its library and of its programs.

use super::lexer::{Kind, pieces};
use super::tree::{Text, house};
use std::collections::BTreeMap;

const FORBID: &str = "#![forbid(unsafe_code)]";

fn has_unsafe(text: &Text) -> bool {
    let code = pieces(&text.text).into_iter().filter(|piece| piece.kind == Kind::Code).map(|piece| piece.text);
    code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == "unsafe")
}

fn missing(texts: &[Text]) -> Vec<String> {
    let mut crates: BTreeMap<&str, (bool, Vec<&Text>)> = BTreeMap::new();
    for text in texts.iter().filter(|text| text.path.ends_with(".rs")) {
        let Some((name, file)) = text.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let (is_unsafe, roots) = crates.entry(name).or_default();
        *is_unsafe |= has_unsafe(text);
        if matches!(file, "lib.rs" | "main.rs") {
            roots.push(text);
        }
    }
    let safe = crates.into_values().filter(|(is_unsafe, _)| !is_unsafe).flat_map(|(_, roots)| roots);
    safe.filter(|root| !root.text.lines().any(|line| line == FORBID))
        .map(|root| format!("{} lacks {FORBID}: its crate has no unsafe code", root.path))
        .collect()
}

#[test]
fn a_crate_without_unsafe_code_forbids_it() {
    let missing = missing(house());
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_planted_crate_that_forgot_it_is_found() {
    let texts = super::tree::planted(&[
        ("crates/a/src/lib.rs", "//! unsafe\nconst X: &str = \"unsafe\";"),
        ("crates/b/src/lib.rs", "mod c;"),
        ("crates/b/src/c.rs", "fn f() { unsafe { g() } }"),
        ("crates/d/src/lib.rs", "//! Docs.\n\n#![forbid(unsafe_code)]\n"),
    ]);
    assert_eq!(missing(&texts), [format!("crates/a/src/lib.rs lacks {FORBID}: its crate has no unsafe code")]);
}
