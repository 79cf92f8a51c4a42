//! One row of the table of metrics: a field of the control socket's answers, and its other uses.

use super::reading::Reading;
use plimsoll_core::{ByteCount, Rate, Span};

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
            Unit::Ratio => format!("{:.0} %", value * 100.0),
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
pub struct Metric {
    /// Its name in JSON. A field of an object inside has that object's name before a dot. It never changes: machines
    /// read it.
    pub field: &'static str,
    /// Its name for monitoring, without the `plimsoll_` before it. For a label it is the label's name, and for a list
    /// of subjects the label of their numbers in it. Otherwise it is empty.
    pub name: &'static str,
    /// The part of its family, where the family has several.
    pub part: Option<Part>,
    /// What it is.
    pub kind: MetricKind,
    /// Its unit in JSON.
    pub unit: Unit,
    /// What it means, in half a sentence. Empty for subjects, which have a section.
    pub help: &'static str,
    /// The section of the subjects in it, where it is a list of some, or one.
    pub inside: Option<&'static dyn Rows>,
    /// Where the commands' tables show it.
    pub columns: [Option<Column>; 2],
    /// Why no command shows it, neither in a table nor in a sentence; `None` if one does.
    pub only_json: Option<&'static str>,
}

/// The rows of a section, whatever its subjects are: what a reader of JSON has of it.
pub trait Rows: Sync {
    /// What the rows say of their fields.
    fn metrics(&self) -> Vec<&'static Metric>;
}

/// Why a command need not show a field: another one that it shows says the same.
pub const SAID_BY_ANOTHER: &str = "another field says it";
/// Why a command need not show a field: it stands in the configuration.
pub const A_SETTING: &str = "a setting";
/// Why a command need not show a field: only its course says something.
pub const FOR_GRAPHS: &str = "only its course over time says something";
/// Why a command need not show a field: its place is in a search for a fault.
pub const A_DETAIL: &str = "for the search of a fault";

impl Metric {
    /// What `subject` has of it, as terminals show it.
    pub fn shown(&self, subject: &Reading) -> String {
        self.show(subject.at(self.field))
    }

    /// A value of it as terminals show it.
    pub fn show(&self, value: &Reading) -> String {
        match value {
            Reading::Text(text) => text.clone(),
            Reading::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Reading::Count(count) if self.unit == Unit::None => count.to_string(),
            Reading::List(items) if items.iter().any(|item| matches!(item, Reading::Text(_))) => {
                items.iter().map(|item| self.show(item)).collect::<Vec<_>>().join(", ")
            }
            value => value.number().map_or_else(|| "-".to_owned(), |number| self.unit.shown(number)),
        }
    }
}

/// What a column of a table shows of its row's field.
enum Content {
    /// The value, with its unit.
    Value,
    /// A field of the object that the value is, such as a median.
    Field(&'static str),
    /// What a function makes of the subject.
    Of(fn(&Reading) -> String),
}

/// A column of the table that a command prints.
pub struct Column {
    /// The heading; a `>` before it aligns the column to the right.
    pub heading: &'static str,
    /// The heading of the column before it; `None`: the one of the rows before.
    pub after: Option<&'static str>,
    content: Content,
}

impl Column {
    /// The cell of `subject`, for `metric`, which has the column.
    pub fn cell(&self, metric: &Metric, subject: &Reading) -> String {
        match self.content {
            Content::Value => metric.shown(subject),
            Content::Field(name) => metric.show(subject.at(metric.field).at(name)),
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
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => {$(
        $(#[$doc])*
        pub const fn $name<S>(
            field: &'static str,
            name: &'static str,
            unit: Unit,
            help: &'static str,
            read: fn(&S) -> Reading,
        ) -> MetricRow<S> {
            MetricRow::new(field, name, MetricKind::$kind, unit, help, read)
        }
    )*};
}
kinds! {
    /// A row of a counter.
    counter Counter;
    /// A row of a gauge.
    gauge Gauge;
    /// A row of latencies, which JSON has as an object (docs/control.md, *Latencies*).
    histogram Histogram;
}

/// A row of a text that identifies a subject: the value of the label `name` of all its metrics.
pub const fn label<S>(
    field: &'static str,
    name: &'static str,
    help: &'static str,
    read: fn(&S) -> Reading,
) -> MetricRow<S> {
    MetricRow::new(field, name, MetricKind::Label, Unit::None, help, read)
}

/// A row of what is no metric.
pub const fn plain<S>(field: &'static str, unit: Unit, help: &'static str, read: fn(&S) -> Reading) -> MetricRow<S> {
    MetricRow::new(field, "", MetricKind::Plain, unit, help, read)
}

/// A row of subjects of another section: a list of some, or one.
pub const fn inside<S>(field: &'static str, section: &'static dyn Rows, read: fn(&S) -> Reading) -> MetricRow<S> {
    let row = MetricRow::new(field, "", MetricKind::Plain, Unit::None, "", read);
    MetricRow { metric: Metric { inside: Some(section), ..row.metric }, ..row }
}

impl<S> MetricRow<S> {
    const fn new(
        field: &'static str,
        name: &'static str,
        kind: MetricKind,
        unit: Unit,
        help: &'static str,
        read: fn(&S) -> Reading,
    ) -> MetricRow<S> {
        let columns = [None, None];
        let metric = Metric { field, name, part: None, kind, unit, help, inside: None, columns, only_json: None };
        MetricRow { metric, read }
    }

    /// The row as one of several of its family: `label` is `value` in it, and `help` is of the family.
    pub const fn part(mut self, label: &'static str, value: &'static str, help: &'static str) -> MetricRow<S> {
        self.metric.part = Some(Part { label, value, help });
        self
    }

    /// The row of subjects that have no label: their numbers in the list are the label `name`.
    pub const fn numbered(mut self, name: &'static str) -> MetricRow<S> {
        self.metric.name = name;
        self
    }

    /// The row of a field that no command shows, because of `why`.
    pub const fn only_json(mut self, why: &'static str) -> MetricRow<S> {
        self.metric.only_json = Some(why);
        self
    }

    /// The row with a column that shows the value.
    pub const fn column(self, heading: &'static str) -> MetricRow<S> {
        self.with(heading, Content::Value)
    }

    /// The row with a column that shows what `cell` makes of the subject.
    pub const fn cell(self, heading: &'static str, cell: fn(&Reading) -> String) -> MetricRow<S> {
        self.with(heading, Content::Of(cell))
    }

    /// The row of latencies with a column that shows their median.
    pub const fn median(self, heading: &'static str) -> MetricRow<S> {
        self.with(heading, Content::Field("p50_ns"))
    }

    /// The row of latencies with a column that shows what 99 of 100 keep.
    pub const fn p99(self, heading: &'static str) -> MetricRow<S> {
        self.with(heading, Content::Field("p99_ns"))
    }

    /// The same row, with its first column behind the one with `heading` instead of the row's place in JSON.
    pub const fn after(mut self, heading: &'static str) -> MetricRow<S> {
        match &mut self.metric.columns[0] {
            Some(column) => column.after = Some(heading),
            None => panic!("a row without a column"),
        }
        self
    }

    const fn with(mut self, heading: &'static str, content: Content) -> MetricRow<S> {
        let index = if self.metric.columns[0].is_none() { 0 } else { 1 };
        assert!(self.metric.columns[index].is_none(), "a row has two columns at most");
        self.metric.columns[index] = Some(Column { heading, after: None, content });
        self
    }
}
