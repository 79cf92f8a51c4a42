//! A struct has at most 20 fields.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::krate::{Crate, of_house};

const FIELDS_MAX: usize = 20;

/// Structs with more fields, by crate.
pub fn wide(crates: &[Crate]) -> Counts {
    let mut wide = Counts::new();
    for of in crates {
        for (name, fields) in of.modules.iter().flat_map(|module| &module.structs) {
            if *fields > FIELDS_MAX {
                wide.entry(of.name.clone()).or_default().insert(name.clone(), *fields);
            }
        }
    }
    wide
}

#[test]
fn a_struct_has_at_most_twenty_fields() {
    let complaints = complaints(&listed().fields, &wide(of_house()), MARGIN);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_wide_struct_is_found() {
    let fields = |count: usize| (0..count).map(|index| format!("f{index}: u32,")).collect::<String>();
    let source = format!(
        "struct Fine {{ {} }} mod inner {{ struct Wide {{ {} }} }} #[cfg(test)] struct Test {{ {} }}",
        fields(20),
        fields(21),
        fields(22)
    );
    let crates = super::krate::crates(&super::tree::planted(&[("crates/c/src/lib.rs", &source)]));
    assert_eq!(format!("{:?}", wide(&crates)), r#"{"c": {"Wide": 21}}"#);
}
