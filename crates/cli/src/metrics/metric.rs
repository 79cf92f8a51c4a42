//! One row of the table of metrics: a field of the control socket's answers, and its other uses.

use plimsoll_core::{ByteCount, Rate, Span};
use plimsoll_engine::LatencyStatus;

/// What a field is. The first three are metrics, which monitoring collects over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum since the start: it only grows.
    Counter,
    /// A value of now: it goes up and down.
    Gauge,
    /// How many requests took how long.
    Histogram,
    /// A text that tells one subject from another, such as an account's path.
    Label,
    /// Anything else: a text, a list, a setting, or a number that is a metric in another row.
    Plain,
}

/// The unit of a field as JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or no number.
    None,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Blocks of 4,096 bytes.
    Blocks,
    /// Per cent, 0 to 100.
    Percent,
    /// A part, 0 to 1.
    Ratio,
    /// Runs per second.
    RunsPerSecond,
    /// Bytes per second.
    BytesPerSecond,
}

impl Unit {
    /// The end of a metric's name: the base unit that OpenMetrics asks for. Empty for counts.
    pub fn base(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Nanoseconds => "seconds",
            Unit::Bytes | Unit::Blocks => "bytes",
            Unit::Percent | Unit::Ratio => "ratio",
            Unit::RunsPerSecond => "runs_per_second",
            Unit::BytesPerSecond => "bytes_per_second",
        }
    }

    /// `value`, which is in this unit, in its base unit.
    pub fn in_base(self, value: f64) -> f64 {
        match self {
            Unit::Nanoseconds => value / 1e9,
            Unit::Blocks => value * 4096.0,
            Unit::Percent => value / 100.0,
            Unit::None | Unit::Bytes | Unit::Ratio | Unit::RunsPerSecond | Unit::BytesPerSecond => value,
        }
    }

    /// A number in this unit as terminals show it.
    fn shown(self, value: f64) -> String {
        match self {
            Unit::Nanoseconds => Span::from_nanos(value as u64).to_string(),
            Unit::Bytes | Unit::Blocks => ByteCount(self.in_base(value) as u64).to_string(),
            Unit::Percent => format!("{value} %"),
            Unit::Ratio => format!("{:.1} %", value * 100.0),
            Unit::RunsPerSecond => format!("{value:.1}"),
            Unit::BytesPerSecond => Rate::BytesPerSecond(value).to_string(),
            Unit::None => value.to_string(),
        }
    }
}

/// One of several rows of a family of metrics: they share a name, and a label distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The label.
    pub label: &'static str,
    /// Its value in this row.
    pub value: &'static str,
    /// What the family is; the row's own help is of this part.
    pub help: &'static str,
}

/// What a row says of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in JSON. A field of an object inside has that object's name before a dot. It never changes: machines
    /// read it.
    pub field: &'static str,
    /// Its name for monitoring, without the prefix `plimsoll_`; of a label the label's name; otherwise empty.
    pub name: &'static str,
    /// The part of its family, where the family has several.
    pub part: Option<Part>,
    /// What it is.
    pub kind: MetricKind,
    /// Its unit in JSON.
    pub unit: Unit,
    /// What it means, in half a sentence.
    pub help: &'static str,
}

/// The value of a field at one moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// There is none: `null`, or no field at all.
    Absent,
    /// Yes or no; 1 or 0 for monitoring.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
    /// How many requests took how long.
    Latencies(LatencyStatus),
}

impl Reading {
    /// The number that it is, in the unit of its row.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Reading::Flag(flag) => Some(f64::from(u8::from(flag))),
            Reading::Count(count) => Some(count as f64),
            Reading::Real(number) => Some(number),
            Reading::Absent | Reading::Text(_) | Reading::Latencies(_) => None,
        }
    }
}

impl From<bool> for Reading {
    fn from(flag: bool) -> Reading {
        Reading::Flag(flag)
    }
}

impl From<u8> for Reading {
    fn from(count: u8) -> Reading {
        Reading::Count(count.into())
    }
}

impl From<u32> for Reading {
    fn from(count: u32) -> Reading {
        Reading::Count(count.into())
    }
}

impl From<u64> for Reading {
    fn from(count: u64) -> Reading {
        Reading::Count(count)
    }
}

impl From<usize> for Reading {
    fn from(count: usize) -> Reading {
        Reading::Count(count as u64)
    }
}

impl From<f64> for Reading {
    fn from(number: f64) -> Reading {
        Reading::Real(number)
    }
}

impl From<&String> for Reading {
    fn from(text: &String) -> Reading {
        Reading::Text(text.clone())
    }
}

impl From<String> for Reading {
    fn from(text: String) -> Reading {
        Reading::Text(text)
    }
}

impl From<LatencyStatus> for Reading {
    fn from(latencies: LatencyStatus) -> Reading {
        Reading::Latencies(latencies)
    }
}

impl<T: Into<Reading>> From<Option<T>> for Reading {
    fn from(reading: Option<T>) -> Reading {
        reading.map_or(Reading::Absent, Into::into)
    }
}

/// What a column of a table shows of its row's field.
enum Content<S> {
    /// The value, with its unit.
    Value,
    /// Half of the latencies are at most that.
    Median,
    /// 99 of 100 latencies are at most that.
    P99,
    /// What a function makes of the subject.
    Of(fn(&S) -> String),
}

/// A column of the table that a command prints.
pub struct Column<S> {
    /// The heading; a `>` before it aligns the column to the right.
    pub heading: &'static str,
    content: Content<S>,
}

impl<S> Column<S> {
    /// The cell of `subject`, for `row`, which has the column.
    pub fn cell(&self, row: &MetricRow<S>, subject: &S) -> String {
        let latency = |of: fn(&LatencyStatus) -> u64| match (row.read)(subject) {
            Reading::Latencies(latencies) if latencies.count > 0 => Unit::Nanoseconds.shown(of(&latencies) as f64),
            _ => "-".to_owned(),
        };
        match self.content {
            Content::Value => row.shown(subject),
            Content::Median => latency(|latencies| latencies.p50_ns),
            Content::P99 => latency(|latencies| latencies.p99_ns),
            Content::Of(cell) => cell(subject),
        }
    }
}

/// A row of the table of metrics: a field of `S`, a status of an account, a volume and so on.
pub struct MetricRow<S: 'static> {
    /// What it says of the field.
    pub metric: Metric,
    /// How the value is read.
    pub read: fn(&S) -> Reading,
    /// Where the commands' tables show it.
    pub columns: [Option<Column<S>>; 2],
}

/// A row of a counter.
pub const fn counter<S>(
    field: &'static str,
    name: &'static str,
    unit: Unit,
    help: &'static str,
    read: fn(&S) -> Reading,
) -> MetricRow<S> {
    MetricRow::new(Metric { field, name, part: None, kind: MetricKind::Counter, unit, help }, read)
}

/// A row of a gauge.
pub const fn gauge<S>(
    field: &'static str,
    name: &'static str,
    unit: Unit,
    help: &'static str,
    read: fn(&S) -> Reading,
) -> MetricRow<S> {
    MetricRow::new(Metric { field, name, part: None, kind: MetricKind::Gauge, unit, help }, read)
}

/// A row of latencies, which JSON has as an object (docs/control.md, *Latencies*).
pub const fn histogram<S>(
    field: &'static str,
    name: &'static str,
    unit: Unit,
    help: &'static str,
    read: fn(&S) -> Reading,
) -> MetricRow<S> {
    MetricRow::new(Metric { field, name, part: None, kind: MetricKind::Histogram, unit, help }, read)
}

/// A row of a text that identifies a subject: the value of the label `name` of all its metrics.
pub const fn label<S>(
    field: &'static str,
    name: &'static str,
    help: &'static str,
    read: fn(&S) -> Reading,
) -> MetricRow<S> {
    MetricRow::new(Metric { field, name, part: None, kind: MetricKind::Label, unit: Unit::None, help }, read)
}

/// A row of what is no metric.
pub const fn plain<S>(field: &'static str, unit: Unit, help: &'static str, read: fn(&S) -> Reading) -> MetricRow<S> {
    MetricRow::new(Metric { field, name: "", part: None, kind: MetricKind::Plain, unit, help }, read)
}

/// A row of a list or an object, which only JSON has.
pub const fn json_only<S>(field: &'static str, unit: Unit, help: &'static str) -> MetricRow<S> {
    plain(field, unit, help, |_| Reading::Absent)
}

impl<S> MetricRow<S> {
    const fn new(metric: Metric, read: fn(&S) -> Reading) -> MetricRow<S> {
        MetricRow { metric, read, columns: [None, None] }
    }

    /// The row as one of its family: `label` has the value `value`, and `help` is the family's.
    pub const fn part(self, label: &'static str, value: &'static str, help: &'static str) -> MetricRow<S> {
        let metric = Metric { part: Some(Part { label, value, help }), ..self.metric };
        MetricRow { metric, ..self }
    }

    /// The row with a column that shows the value.
    pub const fn column(self, heading: &'static str) -> MetricRow<S> {
        self.with(heading, Content::Value)
    }

    /// The row with a column that shows what `cell` makes of the subject.
    pub const fn cell(self, heading: &'static str, cell: fn(&S) -> String) -> MetricRow<S> {
        self.with(heading, Content::Of(cell))
    }

    /// The row of latencies with a column that shows their median.
    pub const fn median(self, heading: &'static str) -> MetricRow<S> {
        self.with(heading, Content::Median)
    }

    /// The row of latencies with a column that shows what 99 of 100 keep.
    pub const fn p99(self, heading: &'static str) -> MetricRow<S> {
        self.with(heading, Content::P99)
    }

    const fn with(mut self, heading: &'static str, content: Content<S>) -> MetricRow<S> {
        let index = if self.columns[0].is_none() { 0 } else { 1 };
        assert!(self.columns[index].is_none(), "a row has two columns at most");
        self.columns[index] = Some(Column { heading, content });
        self
    }

    /// The value of `subject` as terminals show it.
    pub fn shown(&self, subject: &S) -> String {
        match (self.read)(subject) {
            Reading::Absent | Reading::Latencies(_) => "-".to_owned(),
            Reading::Text(text) => text,
            Reading::Flag(flag) => if flag { "yes" } else { "no" }.to_owned(),
            Reading::Count(count) if self.metric.unit == Unit::None => count.to_string(),
            Reading::Count(count) => self.metric.unit.shown(count as f64),
            Reading::Real(number) => self.metric.unit.shown(number),
        }
    }
}
