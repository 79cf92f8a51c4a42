//! The value of a field at one moment, as rows read it and as JSON has it.

use plimsoll_core::Span;
use plimsoll_engine::LatencyStatus;
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// The value of a field. Fields of an object stand in the order of their rows, also in what a client has received.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reading {
    /// JSON does not have the field at all.
    Omitted,
    /// `null`.
    #[default]
    Absent,
    /// Yes or no; 1 or 0 for monitoring.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
    /// A list, such as the accounts of a device.
    List(Vec<Reading>),
    /// An object: a subject of some section, or several fields in one.
    Object(Vec<(Cow<'static, str>, Reading)>),
}

impl Reading {
    /// The reading of what has a JSON form of its own, such as a rate.
    pub fn written(value: &impl Serialize) -> Reading {
        serde_json::to_value(value).and_then(serde_json::from_value).unwrap_or_default()
    }

    /// The value that a program wrote so; `None` if it is something else.
    pub fn parsed<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::to_value(self).and_then(serde_json::from_value).ok()
    }

    /// The reading, or no field if it is an empty list.
    pub fn unless_empty(self) -> Reading {
        if self == Reading::List(Vec::new()) { Reading::Omitted } else { self }
    }

    /// What stands at `path`, fields joined by dots; [`Reading::Absent`] if nothing does.
    pub fn at(&self, path: &str) -> &Reading {
        path.split('.').fold(self, |reading, name| match reading {
            Reading::Object(fields) => {
                fields.iter().find(|(field, _)| field == name).map_or(&Reading::Absent, |(_, reading)| reading)
            }
            _ => &Reading::Absent,
        })
    }

    /// The subjects that stand at `path`: those of a list, or an object.
    pub fn subjects(&self, path: &str) -> &[Reading] {
        match self.at(path) {
            Reading::List(subjects) => subjects,
            subject @ Reading::Object(_) => std::slice::from_ref(subject),
            _ => &[],
        }
    }

    /// The items of a list; none if it is something else.
    pub fn items(&self) -> &[Reading] {
        if let Reading::List(items) = self { items } else { &[] }
    }

    /// The object with a field more.
    pub fn with(mut self, field: &'static str, reading: Reading) -> Reading {
        if let Reading::Object(fields) = &mut self {
            fields.push((field.into(), reading));
        }
        self
    }

    /// The number that it is, in the unit of its row; of a list how many there are.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Reading::Flag(flag) => Some(f64::from(u8::from(flag))),
            Reading::Count(count) => Some(count as f64),
            Reading::Real(number) => Some(number),
            Reading::List(ref items) => Some(items.len() as f64),
            _ => None,
        }
    }

    /// The whole number at `path`; 0 if there is none.
    pub fn count(&self, path: &str) -> u64 {
        if let Reading::Count(count) = *self.at(path) { count } else { 0 }
    }

    /// The time at `path`, which is in nanoseconds; none if there is none.
    pub fn span(&self, path: &str) -> Option<Span> {
        if let Reading::Count(nanoseconds) = *self.at(path) { Some(Span::from_nanos(nanoseconds)) } else { None }
    }

    /// The text at `path`; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        if let Reading::Text(text) = self.at(path) { text } else { "" }
    }

    /// Whether the answer at `path` is yes.
    pub fn is(&self, path: &str) -> bool {
        *self.at(path) == Reading::Flag(true)
    }
}

macro_rules! from {
    ($($type:ty, $value:ident => $reading:expr;)*) => {$(
        impl From<$type> for Reading {
            fn from($value: $type) -> Reading {
                $reading
            }
        }
    )*};
}
from! {
    bool, flag => Reading::Flag(flag);
    u8, count => Reading::Count(count.into());
    u32, count => Reading::Count(count.into());
    u64, count => Reading::Count(count);
    usize, count => Reading::Count(count as u64);
    f64, number => Reading::Real(number);
    &String, text => Reading::Text(text.clone());
    String, text => Reading::Text(text);
    &[(u64, u64)], ranges => Reading::List(
        ranges.iter().map(|&(from, to)| Reading::List(vec![from.into(), to.into()])).collect(),
    );
}

impl From<LatencyStatus> for Reading {
    /// `null` where there was no request.
    fn from(LatencyStatus { count, p50_ns, p99_ns, p999_ns, max_ns }: LatencyStatus) -> Reading {
        let latencies = [("p50_ns", p50_ns), ("p99_ns", p99_ns), ("p999_ns", p999_ns), ("max_ns", max_ns)];
        let latencies = latencies.map(|(name, latency)| (name.into(), (count > 0).then_some(latency).into()));
        Reading::Object([("count".into(), count.into())].into_iter().chain(latencies).collect())
    }
}

impl<T: Into<Reading>> From<Option<T>> for Reading {
    fn from(reading: Option<T>) -> Reading {
        reading.map_or(Reading::Absent, Into::into)
    }
}

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Reading::Omitted | Reading::Absent => out.serialize_unit(),
            Reading::Flag(flag) => out.serialize_bool(*flag),
            Reading::Count(count) => out.serialize_u64(*count),
            Reading::Real(number) => out.serialize_f64(*number),
            Reading::Text(text) => out.serialize_str(text),
            Reading::List(items) => out.collect_seq(items),
            Reading::Object(fields) => out.collect_map(fields.iter().map(|(name, reading)| (name, reading))),
        }
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Reading, D::Error> {
        input.deserialize_any(AnyReading)
    }
}

struct AnyReading;

macro_rules! visits {
    ($($visit:ident, $value:ident: $type:ty => $reading:expr;)*) => {$(
        fn $visit<E>(self, $value: $type) -> Result<Reading, E> {
            Ok($reading)
        }
    )*};
}

impl<'de> Visitor<'de> for AnyReading {
    type Value = Reading;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON")
    }

    visits! {
        visit_bool, flag: bool => Reading::Flag(flag);
        visit_u64, count: u64 => Reading::Count(count);
        visit_i64, number: i64 => Reading::Real(number as f64);
        visit_f64, number: f64 => Reading::Real(number);
        visit_str, text: &str => Reading::Text(text.to_owned());
    }

    fn visit_unit<E>(self) -> Result<Reading, E> {
        Ok(Reading::Absent)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Reading, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Reading::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Reading, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, reading)) = object.next_entry::<String, Reading>()? {
            fields.push((name.into(), reading));
        }
        Ok(Reading::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Planted break that was seen red: 0, as it was.
    /// Promise: lab-null.
    #[test]
    fn json_has_null_for_latencies_of_no_requests() {
        let json = |latencies: LatencyStatus| serde_json::to_value(Reading::from(latencies)).unwrap();
        let nothing = json!({ "count": 0, "p50_ns": null, "p99_ns": null, "p999_ns": null, "max_ns": null });
        assert_eq!(json(LatencyStatus::default()), nothing);
        let one = LatencyStatus { count: 1, p50_ns: 0, p99_ns: 3, p999_ns: 3, max_ns: 3 };
        let json = json(one);
        assert_eq!((&json["p50_ns"], &json["max_ns"]), (&0.into(), &3.into()), "a latency of 0 is one");
        assert_eq!(serde_json::from_value::<Reading>(json).unwrap().count("p99_ns"), 3);
        let nothing: Reading = serde_json::from_value(json!({ "count": 0 })).unwrap();
        assert_eq!((nothing.at("p50_ns"), nothing.at("count.p50_ns")), (&Reading::Absent, &Reading::Absent));
    }

    fn readings() -> impl Strategy<Value = Reading> {
        let leaf = prop_oneof![
            Just(Reading::Absent),
            any::<bool>().prop_map(Reading::Flag),
            any::<u64>().prop_map(Reading::Count),
            (-1e9f64..1e9).prop_map(|number| Reading::Real(number.trunc() / 8.0)),
            any::<String>().prop_map(Reading::Text),
        ];
        leaf.prop_recursive(4, 40, 6, |inside| {
            let fields = prop::collection::vec((any::<String>().prop_map(Cow::from), inside.clone()), 0..6);
            prop_oneof![prop::collection::vec(inside, 0..6).prop_map(Reading::List), fields.prop_map(Reading::Object)]
        })
    }

    proptest! {
        /// Planted break: fields are read into a map that sorts them, red.
        #[test]
        fn what_is_written_is_read_in_the_same_order(reading in readings()) {
            let written = serde_json::to_string(&reading).unwrap();
            let read: Reading = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), written);
            prop_assert_eq!(read, reading);
        }
    }
}
