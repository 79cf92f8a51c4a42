//! A section of the table of metrics: the rows of one kind of subject.

use super::metric::{Column, Metric, MetricKind, MetricRow, Rows};
use super::reading::Reading;
use crate::table::Table;
use std::borrow::Borrow;

/// The rows of one kind of subject, in the order in which JSON and pages have them.
pub struct Section<S: 'static> {
    /// Its rows.
    pub rows: &'static [MetricRow<S>],
}

impl<S> Section<S> {
    /// `subject` as JSON has it.
    pub fn object(&self, subject: &S) -> Reading {
        let mut fields: Vec<(_, Reading)> = Vec::with_capacity(self.rows.len());
        for MetricRow { metric, read } in self.rows {
            let reading = read(subject);
            match (metric.field.split_once('.'), fields.last_mut()) {
                _ if reading == Reading::Omitted => {}
                (None, _) => fields.push((metric.field.into(), reading)),
                (Some((object, field)), Some((name, Reading::Object(inside)))) if name == object => {
                    inside.push((field.into(), reading));
                }
                (Some((object, field)), _) => {
                    fields.push((object.into(), Reading::Object(vec![(field.into(), reading)])));
                }
            }
        }
        Reading::Object(fields)
    }

    /// The list of `subjects` as JSON has it.
    pub fn list(&self, subjects: impl IntoIterator<Item: Borrow<S>>) -> Reading {
        Reading::List(subjects.into_iter().map(|subject| self.object(subject.borrow())).collect())
    }
}

impl<S> Rows for Section<S> {
    fn metrics(&self) -> Vec<&'static Metric> {
        self.rows.iter().map(|row| &row.metric).collect()
    }
}

impl dyn Rows + '_ {
    /// The row of `field`.
    pub fn find(&self, field: &str) -> Option<&'static Metric> {
        self.metrics().into_iter().find(|metric| metric.field == field)
    }

    /// The labels that tell `subject` from others of its kind.
    pub fn labels(&self, subject: &Reading) -> Vec<(&'static str, String)> {
        let labels = self.metrics().into_iter().filter(|metric| metric.kind == MetricKind::Label);
        labels.map(|metric| (metric.name, metric.shown(subject))).collect()
    }

    /// The columns that the rows have, in the order of tables.
    fn columns(&self) -> Vec<(&'static Metric, &'static Column)> {
        let all = self.metrics().into_iter();
        let all = all.flat_map(|metric| metric.columns.iter().flatten().map(move |column| (metric, column)));
        let (moved, mut columns): (Vec<_>, Vec<_>) = all.partition(|(_, column)| column.after.is_some());
        for (metric, column) in moved {
            let before =
                columns.iter().position(|(_, other)| Some(other.heading.trim_start_matches('>')) == column.after);
            columns.insert(before.map_or(columns.len(), |index| index + 1), (metric, column));
        }
        columns
    }

    /// A table for a terminal: a line for each subject, with the columns that the rows have.
    pub fn table<'s>(&self, subjects: impl IntoIterator<Item = &'s Reading>) -> Table {
        self.table_in([], subjects.into_iter().map(|subject| ([], subject)))
    }

    /// The same with columns before those of the rows, for what the subjects are in.
    pub fn table_in<'s, const N: usize>(
        &self,
        headings: [&'static str; N],
        subjects: impl IntoIterator<Item = ([String; N], &'s Reading)>,
    ) -> Table {
        let columns = self.columns();
        let of_rows = columns.iter().map(|(_, column)| column.heading);
        let mut table = Table::new(&headings.into_iter().chain(of_rows).collect::<Vec<_>>());
        for (first, subject) in subjects {
            let cells = columns.iter().map(|(metric, column)| column.cell(metric, subject));
            table.row(first.into_iter().chain(cells).collect::<Vec<String>>());
        }
        table
    }
}
