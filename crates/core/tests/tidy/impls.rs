//! All inherent `impl`s of a type stand in the file of the type, or in files of the folder that has the type's name.
//!
//! A type `QueueDepth` of `a/limits.rs` may have inherent `impl`s in `a/limits.rs` and in files below any folder
//! `queue_depth`. Types that a macro makes are left out: the source does not show where they stand.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::krate::{Crate, Target, of_house};
use std::collections::{BTreeMap, BTreeSet};

/// Files with inherent `impl`s out of place, by crate and type.
pub type Strays = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Every inherent `impl` out of place.
pub fn strays(crates: &[Crate]) -> Strays {
    let mut strays = Strays::new();
    for of in crates {
        for (index, module) in of.modules.iter().enumerate() {
            for path in &module.impls {
                let Some(Target::Item(home)) = of.resolve(index, path) else { continue };
                let (name, file) = (path.last().unwrap(), &of.files[module.file]);
                if !of.modules[home].items.contains(name) {
                    continue;
                }
                let folder = snake_case(name);
                let is_in_folder = file.split('/').rev().skip(1).any(|part| part == folder);
                if of.modules[home].file != module.file && !is_in_folder {
                    let types = strays.entry(of.name.clone()).or_default();
                    types.entry(name.clone()).or_default().insert(file.clone());
                }
            }
        }
    }
    strays
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

#[test]
fn inherent_impls_stand_with_their_type() {
    let strays = strays(of_house());
    let counts: Counts = strays
        .iter()
        .map(|(krate, types)| (krate.clone(), types.iter().map(|(name, files)| (name.clone(), files.len())).collect()))
        .collect();
    let complaints = complaints(&listed().impls, &counts, MARGIN);
    assert!(complaints.is_empty(), "{}\n{strays:#?}", complaints.join("\n"));
}

#[test]
fn a_planted_impl_out_of_place_is_found() {
    let texts = super::tree::planted(&[
        ("crates/c/src/lib.rs", "mod a; mod b; mod queue_depth; pub use a::QueueDepth;"),
        ("crates/c/src/a.rs", "pub struct QueueDepth; impl QueueDepth {} pub struct Other<T>; pub trait T {}"),
        ("crates/c/src/b.rs", "use crate::{QueueDepth, a::*}; impl QueueDepth {} impl T for Other<u8> {}"),
        ("crates/c/src/queue_depth/mod.rs", "mod more;"),
        ("crates/c/src/queue_depth/more.rs", "impl crate::QueueDepth {} impl crate::a::Other<u8> {}"),
    ]);
    let found = strays(&super::krate::crates(&texts));
    assert_eq!(format!("{found:?}"), r#"{"c": {"Other": {"queue_depth/more.rs"}, "QueueDepth": {"b.rs"}}}"#);
}
