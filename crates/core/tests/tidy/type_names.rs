//! A crate gives a type's name once: to a struct, an enum, a union, a trait or a type alias.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::krate::{Crate, of_house};
use std::collections::BTreeMap;

/// Names that a crate gives more than once, and how often.
pub fn repeated(crates: &[Crate]) -> Counts {
    let mut repeated = Counts::new();
    for of in crates {
        let mut counts = BTreeMap::new();
        for name in of.modules.iter().flat_map(|module| &module.types) {
            *counts.entry(name.clone()).or_insert(0) += 1;
        }
        counts.retain(|_, count| *count > 1);
        if !counts.is_empty() {
            repeated.insert(of.name.clone(), counts);
        }
    }
    repeated
}

#[test]
fn a_crate_gives_a_type_name_once() {
    let complaints = complaints(&listed().type_names, &repeated(of_house()), MARGIN);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_second_type_of_a_name_is_found() {
    let texts = super::tree::planted(&[
        ("crates/c/src/lib.rs", "mod a; struct X; enum Y {} #[cfg(test)] struct Y;"),
        ("crates/c/src/a.rs", "type X = u32; fn f() { struct Y; }"),
        ("crates/d/src/lib.rs", "struct X;"),
    ]);
    assert_eq!(format!("{:?}", repeated(&super::krate::crates(&texts))), r#"{"c": {"X": 2}}"#);
}
