//! Which fields of an answer have no row in the table of metrics.

use super::metric::{Metric, MetricKind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields of `answer`, a whole answer of the control socket, without a row: their places, each once.
pub fn without_row(answer: &Value) -> Vec<String> {
    let all = super::all();
    let places = all.iter().flat_map(|(places, rows)| places.iter().map(move |place| (*place, rows.as_slice())));
    let mut search = Search { places: places.collect(), missing: Vec::new() };
    let kinds = answer.as_object().into_iter().flatten();
    kinds.for_each(|(kind, value)| search.enter(kind, value));
    search.missing.sort();
    search.missing.dedup();
    search.missing
}

struct Search<'t> {
    places: BTreeMap<&'static str, &'t [&'static Metric]>,
    missing: Vec<String>,
}

impl Search<'_> {
    /// Looks at what is at `place`: an object, or a list of some.
    fn enter(&mut self, place: &str, value: &Value) {
        match value {
            Value::Array(subjects) => {
                let place = format!("{place}[]");
                match self.places.contains_key(place.as_str()) {
                    true => subjects.iter().for_each(|subject| self.subject(&place, subject)),
                    false => self.missing.push(place),
                }
            }
            value => self.subject(place, value),
        }
    }

    fn subject(&mut self, place: &str, value: &Value) {
        match (self.places.get(place), value) {
            (Some(rows), Value::Object(fields)) => self.fields(place, "", rows, fields),
            _ => self.missing.push(place.to_owned()),
        }
    }

    /// Checks the fields of a subject, or of an object in it with `prefix` before its fields' names.
    fn fields(&mut self, place: &str, prefix: &str, rows: &[&Metric], fields: &Map<String, Value>) {
        for (name, value) in fields {
            let (field, below) = (format!("{prefix}{name}"), format!("{place}.{prefix}{name}"));
            let has_rows_inside = rows.iter().any(|row| row.field.starts_with(&format!("{field}.")));
            match (rows.iter().find(|row| row.field == field), value) {
                (Some(row), Value::Object(_)) if row.kind != MetricKind::Histogram && row.kind != MetricKind::Plain => {
                    self.missing.push(below);
                }
                (Some(_), _) => {}
                (None, Value::Object(inside)) if has_rows_inside => {
                    self.fields(place, &format!("{field}."), rows, inside);
                }
                // A part that this daemon does not have.
                (None, Value::Null) if self.places.contains_key(below.as_str()) => {}
                (None, value) => self.enter(&below, value),
            }
        }
    }
}
