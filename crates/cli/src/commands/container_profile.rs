//! `plimsoll container-profile`: the seccomp profile with which a container joins as a tenant.

use super::print_json;
use crate::arguments::ContainerProfileArguments;
use crate::outcome::{Failure, Outcome};
use plimsoll_gates::Filter;
use plimsoll_gates::filter::Merged;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;

/// What stands for stdin.
const STDIN: &str = "-";

pub(super) fn run(arguments: &ContainerProfileArguments) -> Outcome {
    let ContainerProfileArguments { listener, metadata, merge } = arguments;
    let Some(path) = merge else { return print_json(&Filter::default().oci_profile(listener, metadata)) };
    let refused = |problem: &dyn std::fmt::Display| Failure::BadInput(format!("{}: {problem}", path.display()));
    let text = read(path).map_err(|error| refused(&error))?;
    let mut value: Value = serde_json::from_str(&text).map_err(|error| refused(&error))?;
    let Some(place) = profile_of(&mut value) else {
        return Err(refused(&"linux is no object, allowed is a bundle's config.json or a seccomp profile"));
    };
    if place.is_null() {
        *place = Filter::default().oci_profile(listener, metadata);
        return print_json(&value);
    }
    let merged = Filter::default().merged_profile(place.take(), listener, metadata).map_err(|error| refused(&error))?;
    let Merged { profile, not_notified } = merged;
    *place = profile;
    if !not_notified.is_empty() {
        let names = not_notified.join(", ");
        let _ = writeln!(
            std::io::stderr(),
            "not held: {names}: the profile logs, traces or refuses them on conditions, and that stays as it is"
        );
    }
    print_json(&value)
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if path == Path::new(STDIN) {
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    }
}

/// The profile in the configuration of a bundle, or all of the value.
fn profile_of(value: &mut Value) -> Option<&mut Value> {
    if value.get("ociVersion").is_none() && value.get("linux").is_none() {
        return Some(value);
    }
    let linux = value.as_object_mut()?.entry("linux").or_insert_with(|| Value::Object(serde_json::Map::new()));
    Some(linux.as_object_mut()?.entry("seccomp").or_insert(Value::Null))
}
