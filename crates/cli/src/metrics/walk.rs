//! Goes through all subjects of an answer, as `/metrics`, charts and tests do.

use super::metric::{Metric, Rows};
use super::reading::Reading;

/// The labels of a subject, those of what it is in first.
pub type Labels = Vec<(&'static str, String)>;

/// Shows `see` each field of `subject` and of what is in it, with the labels that its metrics have. `rows` are those of
/// `subject`; the labels of `outside` come first.
pub fn walk(
    rows: &'static dyn Rows,
    subject: &Reading,
    outside: &Labels,
    see: &mut dyn FnMut(&'static Metric, &Labels, &Reading),
) {
    let labels = [outside.clone(), rows.labels(subject)].concat();
    for metric in rows.metrics() {
        see(metric, &labels, subject.at(metric.field));
        for (number, below) in subject.subjects(metric.field).iter().enumerate() {
            let Some(inside) = metric.inside else { break };
            let number = (!metric.name.is_empty()).then(|| (metric.name, number.to_string()));
            walk(inside, below, &labels.iter().cloned().chain(number).collect(), see);
        }
    }
}
