//! A crate depends on lower floors only (`ARCHITECTURE.md`).

use super::tree::{Text, house};
use std::collections::BTreeMap;

/// Every crate and the floor that it is on.
const FLOORS: &[(&str, u32)] = &[
    ("core", 0),
    ("linux", 0),
    ("classes", 1),
    ("settings", 1),
    ("schedulers", 1),
    ("devices", 1),
    ("cache", 1),
    ("executor", 1),
    ("traces", 1),
    ("workloads", 1),
    ("protocols", 1),
    ("classifiers", 2),
    ("sim", 2),
    ("engine", 2),
    ("gates", 2),
    ("tags", 2),
    ("agent", 3),
    ("serve", 3),
    ("testkit", 4),
    ("lab", 4),
    ("cli", 5),
];

fn complaints(texts: &[Text], floors: &[(&str, u32)]) -> Vec<String> {
    let floors: BTreeMap<_, _> = floors.iter().copied().collect();
    let mut complaints = Vec::new();
    for text in texts {
        let Some(name) = text.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some(floor) = floors.get(name) else {
            complaints.push(format!("{name} has no floor: name it in ARCHITECTURE.md and here"));
            continue;
        };
        let manifest: toml::Table = text.text.parse().unwrap_or_else(|error| panic!("{}: {error}", text.path));
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        for below in dependencies.into_iter().flat_map(|table| table.keys()) {
            let Some(below) = below.strip_prefix("plimsoll-") else { continue };
            if floors.get(below).is_none_or(|below| below >= floor) {
                complaints.push(format!("{name} (floor {floor}) may not depend on {below} ({:?})", floors.get(below)));
            }
        }
    }
    complaints
}

#[test]
fn crates_depend_on_lower_floors_only() {
    let complaints = complaints(house(), FLOORS);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_dependency_upwards_is_found() {
    let texts = super::tree::planted(&[
        ("crates/a/Cargo.toml", "[dependencies]\nplimsoll-b.workspace = true\nserde = \"1\""),
        ("crates/b/Cargo.toml", "[dependencies]\nplimsoll-a.workspace = true"),
        ("crates/c/Cargo.toml", ""),
    ]);
    let found = complaints(&texts, &[("a", 0), ("b", 1)]);
    assert_eq!(
        found,
        ["a (floor 0) may not depend on b (Some(1))", "c has no floor: name it in ARCHITECTURE.md and here"]
    );
}
