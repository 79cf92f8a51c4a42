//! Which fields of an answer have no row in the table of metrics.

use super::ANSWERS;
use super::metric::{MetricKind, Rows};
use serde_json::{Map, Value};

/// Fields of `answer`, a whole answer of the control socket, without a row: their places, each once.
pub fn without_row(answer: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for (kind, value) in answer.as_object().into_iter().flatten() {
        let rows = ANSWERS.iter().find(|(name, _)| name == kind).map(|(_, rows)| *rows);
        enter(kind, rows, value, &mut missing);
    }
    missing.sort();
    missing.dedup();
    missing
}

/// Looks at what is at `place`: an object, or a list of some.
fn enter(place: &str, rows: Option<&dyn Rows>, value: &Value, missing: &mut Vec<String>) {
    match (rows, value) {
        (Some(rows), Value::Array(subjects)) => {
            subjects.iter().for_each(|subject| enter(&format!("{place}[]"), Some(rows), subject, missing));
        }
        (Some(rows), Value::Object(fields)) => look(place, "", rows, fields, missing),
        (None, Value::Array(_)) => missing.push(format!("{place}[]")),
        _ => missing.push(place.to_owned()),
    }
}

/// Looks at the fields of a subject, or of an object in it with `prefix` before the names of its fields.
fn look(place: &str, prefix: &str, rows: &dyn Rows, fields: &Map<String, Value>, missing: &mut Vec<String>) {
    for (name, value) in fields {
        let (field, below) = (format!("{prefix}{name}"), format!("{place}.{prefix}{name}"));
        let is_prefix = || rows.metrics().iter().any(|metric| metric.field.starts_with(&format!("{field}.")));
        match (rows.find(&field), value) {
            // A part that this daemon does not have.
            (Some(metric), Value::Null) if metric.inside.is_some() => {}
            (Some(metric), value) if metric.inside.is_some() => enter(&below, metric.inside, value, missing),
            (Some(metric), Value::Object(_)) if !matches!(metric.kind, MetricKind::Histogram | MetricKind::Plain) => {
                missing.push(below);
            }
            (Some(_), _) => {}
            (None, Value::Object(inside)) if is_prefix() => look(place, &format!("{field}."), rows, inside, missing),
            (None, value) => enter(&below, None, value, missing),
        }
    }
}
