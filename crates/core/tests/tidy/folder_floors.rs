//! Inside a crate that has floors, a folder needs lower floors only.
//!
//! A floor holds folders and files directly below `src`. A crate's root (`lib.rs`) conducts all of them and has no
//! floor.

use super::krate::{Crate, of_house};
use std::collections::BTreeMap;

/// Crates with floors inside, and the floor of each folder or file directly below their `src`, without `.rs`.
const FLOORS: &[(&str, &[(&str, u32)])] = &[];

fn complaints(crates: &[Crate], floors: &[(&str, &[(&str, u32)])]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, floors) in floors {
        let Some(of) = crates.iter().find(|of| of.name == *name) else {
            complaints.push(format!("{name} has floors and is no crate"));
            continue;
        };
        let floors: BTreeMap<&str, u32> = floors.iter().copied().collect();
        let rooms: Vec<&str> = of.files.iter().map(|file| room(file)).collect();
        for room in rooms.iter().filter(|room| !floors.contains_key(*room) && !is_root(room)) {
            complaints.push(format!("{name}: {room} has no floor"));
        }
        for room in floors.keys().filter(|room| !rooms.contains(room)) {
            complaints.push(format!("{name}: {room} has a floor and is gone"));
        }
        for ((from, to), path) in of.needs() {
            let (above, below) = (rooms[from], rooms[to]);
            let (Some(high), Some(low)) = (floors.get(above), floors.get(below)) else { continue };
            if above != below && low >= high {
                let (from, to) = (&of.files[from], &of.files[to]);
                complaints.push(format!("{name}: {from} (floor {high}) may not need {to} (floor {low}): {path}"));
            }
        }
    }
    complaints.sort();
    complaints
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

fn is_root(room: &str) -> bool {
    matches!(room, "lib" | "main" | "bin")
}

#[test]
fn folders_need_lower_floors_only() {
    let complaints = complaints(of_house(), FLOORS);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_need_upwards_is_found() {
    let texts = super::tree::planted(&[
        ("crates/c/src/lib.rs", "mod low; mod high; mod same; fn f() { low::f() }"),
        ("crates/c/src/low/mod.rs", "mod part; pub fn f() {}"),
        ("crates/c/src/low/part.rs", "use super::f; use crate::high::High;"),
        ("crates/c/src/high.rs", "pub struct High; use crate::low::f; use crate::same::Same;"),
        ("crates/c/src/same.rs", "pub struct Same;"),
    ]);
    let crates = super::krate::crates(&texts);
    let up = "c: low/part.rs (floor 0) may not need high.rs (floor 1): crate::high::High";
    assert_eq!(complaints(&crates, &[("c", &[("low", 0), ("high", 1), ("same", 0)])]), [up]);
    assert_eq!(
        complaints(&crates, &[("c", &[("low", 0), ("high", 1), ("same", 1)])]),
        ["c: high.rs (floor 1) may not need same.rs (floor 1): crate::same::Same", up]
    );
    let unknown = complaints(&crates, &[("c", &[("low", 0), ("high", 1), ("gone", 0)]), ("d", &[])]);
    let expected = ["c: gone has a floor and is gone", up, "c: same has no floor", "d has floors and is no crate"];
    assert_eq!(unknown, expected);
}
