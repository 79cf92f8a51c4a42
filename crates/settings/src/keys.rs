//! The keys of a file with their values, so that two versions of it can be compared key by key.

use crate::problem::quoted;
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// Every key that has a value of its own, with its tables before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(BTreeMap<Vec<String>, String>);

impl Keys {
    /// Those of a whole file.
    pub fn of(table: &DeTable<'_>) -> Keys {
        let mut keys = Keys::default();
        keys.collect(table, &mut Vec::new());
        keys
    }

    fn collect(&mut self, table: &DeTable<'_>, path: &mut Vec<String>) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(inner) if !inner.is_empty() => self.collect(inner, path),
                value => drop(self.0.insert(path.clone(), text(value))),
            }
            path.pop();
        }
    }

    /// The keys that one of both has alone, or with another value.
    pub fn differing(&self, other: &Keys) -> Vec<Vec<String>> {
        let is_other = |key: &&Vec<String>| self.0.get(*key) != other.0.get(*key);
        let more = other.0.keys().filter(|key| !self.0.contains_key(*key));
        let mut keys: Vec<Vec<String>> = self.0.keys().filter(is_other).chain(more).cloned().collect();
        keys.sort();
        keys
    }

    /// Whether there is such a section.
    pub fn has(&self, section: &[String]) -> bool {
        self.0.keys().any(|key| key.starts_with(section))
    }

    /// Takes a key over from `other`, where it may be missing.
    pub fn take(&mut self, key: &[String], other: &Keys) {
        match other.0.get(key) {
            Some(value) => drop(self.0.insert(key.to_vec(), value.clone())),
            None => drop(self.0.remove(key)),
        }
    }
}

/// `volume.db.mount.path`.
pub fn dotted(key: &[String]) -> String {
    let is_bare = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let parts = key.iter().map(|part| if is_bare(part) { part.clone() } else { quoted(part) });
    parts.collect::<Vec<_>>().join(".")
}

fn text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is_true) => is_true.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(values) => values.iter().map(|value| text(value.get_ref()) + ",").collect(),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| format!("{:?}={},", key.get_ref(), text(value.get_ref())));
            format!("{{{}}}", entries.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Keys {
        Keys::of(DeTable::parse(text).unwrap().get_ref())
    }

    /// Planted break, seen red: a key that only the second file has is none that differs.
    #[test]
    fn what_differs_is_named_key_by_key() {
        let old =
            keys("[pool.web]\nweight = 5\n[volume.\"a b\"]\nmount = { path = \"/a\", options = [\"x\"] }\nnbd = {}");
        let new = keys(
            "# moved\n[volume.\"a b\"]\nmount = { options = [\"x\", \"y\"], path = \"/a\" }\n[pool.web]\nlimit = 1",
        );
        let named: Vec<String> = old.differing(&new).iter().map(|key| dotted(key)).collect();
        assert_eq!(named, ["pool.web.limit", "pool.web.weight", "volume.\"a b\".mount.options", "volume.\"a b\".nbd"]);
        let mut taken = old.clone();
        old.differing(&new).iter().for_each(|key| taken.take(key, &new));
        assert_eq!(taken, new);
    }
}
