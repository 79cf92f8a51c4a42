//! A section of the table of metrics: the rows of one kind of subject, and their place in answers.

use super::metric::{Metric, MetricKind, MetricRow, Reading};
use crate::table::Table;

/// The rows of one kind of subject, in the order of pages and commands.
pub struct Section<S: 'static> {
    /// Where answers of the control socket have such subjects, such as `status.devices[].accounts[]`.
    pub places: &'static [&'static str],
    /// Its rows.
    pub rows: &'static [MetricRow<S>],
}

impl<S> Section<S> {
    /// What the rows say of their fields.
    pub fn metrics(&self) -> Vec<&'static Metric> {
        self.rows.iter().map(|row| &row.metric).collect()
    }

    /// The labels that tell `subject` from others of its kind.
    pub fn labels(&self, subject: &S) -> Vec<(&'static str, String)> {
        let labels = self.rows.iter().filter(|row| row.metric.kind == MetricKind::Label);
        labels
            .filter_map(|row| match (row.read)(subject) {
                Reading::Text(text) => Some((row.metric.name, text)),
                Reading::Absent => None,
                _ => Some((row.metric.name, row.shown(subject))),
            })
            .collect()
    }

    /// A table for a terminal: a line for each subject, with the rows' columns.
    pub fn table<'s>(&self, subjects: impl IntoIterator<Item = &'s S>) -> Table {
        self.table_in([], subjects.into_iter().map(|subject| ([], subject)))
    }

    /// The same with columns before those of the rows, for what the subjects are in.
    pub fn table_in<'s, const N: usize>(
        &self,
        headings: [&'static str; N],
        subjects: impl IntoIterator<Item = ([String; N], &'s S)>,
    ) -> Table
    where
        S: 's,
    {
        let columns = || self.rows.iter().flat_map(|row| row.columns.iter().flatten().map(move |column| (row, column)));
        let headings: Vec<&str> = headings.into_iter().chain(columns().map(|(_, column)| column.heading)).collect();
        let mut table = Table::new(&headings);
        for (first, subject) in subjects {
            let cells = columns().map(|(row, column)| column.cell(row, subject));
            table.row(first.into_iter().chain(cells).collect::<Vec<String>>());
        }
        table
    }
}
