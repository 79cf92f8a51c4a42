use super::accounts::ACCOUNT;
use super::coverage::without_row;
use super::metric::{Metric, MetricKind, Reading, Unit};
use super::section::Section;
use super::volumes::SERVED_VOLUME;
use super::walk::{Labels, Visitor, visit_all};
use crate::control::protocol::{DaemonStatus, TenantCgroupEntry, TenantEntry};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What OpenMetrics keeps for the parts of a family, and units that are not its base units.
const RESERVED: &[&str] = &["total", "count", "sum", "bucket", "created", "info", "min", "avg"];
const NOT_BASE_UNITS: &[&str] = &[
    "ns",
    "us",
    "ms",
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "minutes",
    "percent",
    "units",
    "kib",
    "mib",
    "gib",
];

/// A status of everything that a daemon can have; every number in it is another.
fn sample() -> Value {
    let latency = json!({ "count": 0, "p50_ns": 0, "p99_ns": 0, "p999_ns": 0, "max_ns": 0 });
    let emulation = json!({ "replies": 0, "late_replies": 0, "lateness_ns_bound": 0, "lateness_ns_p99": 0 });
    let allocation = json!({ "reserve": "30%", "limit": "9 runs/s", "weight": 0, "priority": "idle", "deadlines": {} });
    let cache = json!({
        "name": "ssd", "path": "/dev/x", "policy": "lru", "is_strict": true, "semantics": "strict", "dirty_units_max": 0,
        "dirty_age_max_ns": 0, "idle_write_back_ns": 0, "is_working": true, "has_failed": false, "units": 0, "used_units": 0,
        "dirty_units": 0, "free_units": 0, "paced_percent": 0, "waiting_requests": 0, "is_syncer_awake": true,
        "is_cleaning": false, "clean_passes": 0, "cleaned": 0, "writes_around": 0, "commits": 0, "snapshots": 0,
        "damaged_clean": 0, "damaged_dirty": 0, "not_copied": 0, "not_copied_bytes": [[0, 0]], "unreadable": 0,
        "unreadable_bytes": [[0, 0]], "bad_units": 0, "emulation": emulation,
        "classes": [{ "number": 0, "name": "log", "units": 0, "reads": 0, "read_hits": 0, "writes": 0, "write_hits": 0 }],
        "pools": [{ "pool": "web", "units": 0, "units_max": 0 }],
    });
    let account = json!({
        "path": "web/db", "kind": "pool", "allocation": allocation, "requests": 0, "runs": 0, "bytes": 0, "failed": 0,
        "queued": 0, "in_flight": 0, "runs_per_second": 0, "bytes_per_second": 0, "runs_per_second_since_open": 0,
        "bytes_per_second_since_open": 0, "read_latency": latency, "write_latency": latency, "flush_latency": latency,
    });
    let volume = json!({
        "name": "db", "pool": "web/db", "size_bytes": 0, "start_bytes": 0, "is_read_only": false, "front_ends": 0,
        "stored_bytes": 0, "backlog_bytes": 0, "compressed_behind_bytes": 0, "compressed_by_writers_bytes": 0, "cache": cache,
        "read_ahead": { "bytes_max": 0, "memory_bytes": 0, "fetched_bytes": 0, "used_bytes": 0, "wasted_bytes": 0 },
    });
    let thread = json!({
        "turns": 0, "runs": 0, "done": 0, "suspended": 0, "resumed": 0, "preempted": 0, "gave_way": 0, "panicked": 0,
        "busy_ns": 0, "running_since_ns": 0, "running_ns": 0,
    });
    let queue = json!({
        "queue": "low", "depth": 0, "served": 0, "waited_ns": 0, "behind_maintenance_ns": 0, "waited_ns_max": 0,
    });
    json!({
        "version": "1", "process": 0, "configuration": "/etc/plimsoll.toml",
        "executor": { "policy": "combo", "under_way": 0, "threads": [thread], "queues": [queue] },
        "devices": [{
            "device": "disk0", "scheduler": "zygaria", "uptime_ns": 0, "overload_ns": 0, "reserves_kept": 0,
            "emulation": emulation, "requests_under_way": 0, "volumes": [volume], "accounts": [account],
        }],
        "volumes": [{
            "name": "db", "device": "disk0", "path": "web/db", "size_bytes": 0, "start_bytes": 0, "is_read_only": true,
            "content": "memory", "export": "db", "target": "iqn.2026-01.a:db", "block_device": "/dev/x",
            "mount_point": "/mnt", "front_ends": 0,
            "served_as": [{ "kind": "nbd", "name": "db", "address": "unix:/run/nbd.sock" }],
        }],
        "losses": [{ "volume": "db", "registrations": 0, "events": 0, "entries": 0 }],
    })
}

/// Gives each number in `value` another one.
fn number(value: &mut Value, next: &mut u8) {
    match value {
        Value::Number(_) => {
            *next = next.checked_add(1).expect("a class's number is a byte");
            *value = (*next).into();
        }
        Value::Array(values) => values.iter_mut().for_each(|value| number(value, next)),
        Value::Object(fields) => fields.values_mut().for_each(|value| number(value, next)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn status() -> DaemonStatus {
    let mut sample = sample();
    number(&mut sample, &mut 0);
    serde_json::from_value(sample).unwrap()
}

fn tenant() -> TenantEntry {
    TenantEntry {
        volume: "db".to_owned(),
        path: "web/db/run#1".to_owned(),
        processes: vec![1, 2, 3],
        held_by: vec!["shim".to_owned(), "freezer".to_owned()],
        not_held: Some("why".to_owned()),
        freezes: 4,
        cgroups: vec![TenantCgroupEntry { directory: "/sys/fs/cgroup/a".to_owned(), freezes: 4, is_late: false }],
    }
}

/// A subject that was visited.
struct Subject {
    /// The first place of its section.
    place: &'static str,
    labels: Labels,
    readings: Vec<(&'static Metric, Reading)>,
}

#[derive(Default)]
struct Subjects(Vec<Subject>);

impl Visitor for Subjects {
    fn visit<S>(&mut self, section: &'static Section<S>, labels: &Labels, subject: &S) {
        let readings = section.rows.iter().map(|row| (&row.metric, (row.read)(subject)));
        let (place, labels) = (section.places[0], labels.clone());
        self.0.push(Subject { place, labels, readings: readings.collect() });
    }
}

fn visited() -> Vec<Subject> {
    let mut subjects = Subjects::default();
    visit_all(&status(), &[tenant()], &mut subjects);
    subjects.0
}

/// The objects at `place` of `answer`.
fn at<'v>(answer: &'v Value, place: &str) -> Vec<&'v Value> {
    place.split('.').fold(vec![answer], |at, step| match step.strip_suffix("[]") {
        Some(step) => at.into_iter().flat_map(|value| value[step].as_array().into_iter().flatten()).collect(),
        None => at.into_iter().map(|value| &value[step]).collect(),
    })
}

/// Planted breaks: a queue's longest wait reads the sum of all; a row names another field; a row of a list names none.
/// All red.
#[test]
fn every_row_reads_the_field_that_it_names() {
    let answer = json!({ "status": status(), "tenants": [tenant()] });
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for Subject { place, readings, .. } in visited() {
        let index = seen.entry(place).or_default();
        let (all, mut subjects) = (super::all(), Vec::new());
        let (places, _) =
            all.iter().find(|(places, _)| places[0] == place).expect("a section that is in none of `all`");
        places.iter().for_each(|place| subjects.extend(at(&answer, place)));
        let subject = subjects[*index];
        *index += 1;
        for (metric, reading) in readings {
            let field = metric.field.split('.').fold(subject, |value, name| &value[name]);
            let read = match reading {
                Reading::Absent if metric.kind == MetricKind::Plain => {
                    assert!(!field.is_null(), "{place}: there is no {}", metric.field);
                    continue;
                }
                Reading::Absent => Value::Null,
                Reading::Flag(flag) => flag.into(),
                // A list counts as many as it has.
                Reading::Count(count) if field.is_array() => {
                    assert_eq!(field.as_array().unwrap().len() as u64, count);
                    continue;
                }
                Reading::Count(count) => count.into(),
                Reading::Real(number) => number.into(),
                Reading::Text(text) => text.into(),
                Reading::Latencies(latencies) => serde_json::to_value(latencies).unwrap(),
            };
            assert_eq!(&read, field, "{place}: {}", metric.field);
        }
    }
    let all: BTreeSet<&str> = super::all().iter().map(|(places, _)| places[0]).collect();
    let lists = BTreeSet::from(["caches[]", "pools[]"]);
    assert_eq!(&all - &seen.keys().copied().collect(), lists, "the rest of them is visited");
}

/// Planted breaks: no row for a thread's `busy_ns`, for `allocation.weight`, for a cache's `bad_units`, for a list. All
/// red.
#[test]
fn every_field_of_an_answer_has_a_row() {
    let status = serde_json::to_value(status()).unwrap();
    let cache = &status["devices"][0]["volumes"][0]["cache"];
    let allocation = &status["devices"][0]["accounts"][0]["allocation"];
    let answer = json!({
        "caches": [{ "volume": "db", "device": "disk0", "cache": cache }],
        "pools": [{ "device": "disk0", "path": "web", "is_volume": false, "allocation": allocation }],
        "volumes": status["volumes"], "tenants": [tenant()], "status": status,
    });
    assert_eq!(without_row(&answer), Vec::<String>::new());
    let with = |pointer: &str, value: Value| {
        let mut answer = answer.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        answer.pointer_mut(parent).unwrap()[name] = value;
        without_row(&answer)
    };
    assert_eq!(with("/status/devices/0/new", 1.into()), ["status.devices[].new"]);
    assert_eq!(with("/status/devices/0/new", Value::Null), ["status.devices[].new"]);
    assert_eq!(with("/status/executor/threads/0/new", true.into()), ["status.executor.threads[].new"]);
    let of_allocation = with("/status/devices/0/accounts/0/allocation/new", 1.into());
    assert_eq!(of_allocation, ["status.devices[].accounts[].allocation.new"]);
    assert_eq!(with("/caches/0/cache/new", json!({ "count": 1 })), ["caches[].cache.new"]);
    assert_eq!(with("/pools/0/new", json!([1])), ["pools[].new[]"]);
    assert_eq!(with("/pools/0/new", json!([])), ["pools[].new[]"]);
    assert_eq!(with("/tenants/0/processes", json!({ "new": 1 })), ["tenants[].processes"]);
    assert_eq!(with("/news", json!({ "new": 1 })), ["news"]);
}

/// Planted breaks: a counter without `_total`, a name in nanoseconds, a name with a capital letter, a gauge that ends
/// in `_count`, a row of a family without a part. All red.
#[test]
fn names_are_as_openmetrics_asks() {
    let all = super::all();
    let metrics = all.iter().flat_map(|(_, rows)| rows.iter().copied());
    let mut families: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
    for metric in metrics.filter(|metric| metric.kind != MetricKind::Plain) {
        assert_eq!(complaint(metric), None, "{}", metric.name);
        if metric.kind != MetricKind::Label {
            families.entry(metric.name.trim_end_matches("_total")).or_default().push(metric);
        }
    }
    for (name, rows) in families.into_iter().filter(|(_, rows)| rows.len() > 1) {
        let part = |row: &Metric| row.part.expect("rows of one family are parts of it");
        let values: BTreeSet<&str> = rows.iter().map(|row| part(row).value).collect();
        assert_eq!(values.len(), rows.len(), "{name}: each part has its own value");
        let alike: Vec<_> =
            rows.iter().map(|row| (row.name, row.kind, row.unit, part(row).label, part(row).help)).collect();
        assert!(alike.iter().all(|row| *row == alike[0]), "{name}: parts differ in more than their value");
    }
}

/// What OpenMetrics does not allow in the name of `metric`.
fn complaint(metric: &Metric) -> Option<String> {
    let words: Vec<&str> = metric.name.split('_').collect();
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !words.iter().all(is_word) || !metric.name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("is not in snake_case".to_owned());
    }
    let stem = match (metric.name.strip_suffix("_total"), metric.kind) {
        (Some(stem), MetricKind::Counter) => stem,
        (None, MetricKind::Counter) => return Some("is a counter and does not end in _total".to_owned()),
        (_, MetricKind::Histogram) if metric.unit != Unit::Nanoseconds => return Some("is no time".to_owned()),
        _ => metric.name,
    };
    if RESERVED.iter().any(|word| stem.ends_with(&format!("_{word}"))) {
        return Some("ends in a word that OpenMetrics keeps".to_owned());
    }
    if let Some(unit) = words.iter().find(|word| NOT_BASE_UNITS.contains(word)) {
        return Some(format!("has {unit}, which is no base unit"));
    }
    (!stem.ends_with(metric.unit.base())).then(|| format!("does not have its unit, {}, last", metric.unit.base()))
}

#[test]
fn planted_names_are_refused() {
    let of = |name, kind, unit| complaint(&Metric { field: "", name, part: None, kind, unit, help: "" });
    let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
    assert_eq!(of("busy_seconds_total", counter, Unit::Nanoseconds), None);
    assert_eq!(of("dirty_bytes", gauge, Unit::Blocks), None);
    for (name, kind, unit) in [
        ("Busy_seconds_total", counter, Unit::Nanoseconds),
        ("busy__seconds_total", counter, Unit::Nanoseconds),
        ("busy_seconds", counter, Unit::Nanoseconds),
        ("busy_total", counter, Unit::Nanoseconds),
        ("busy_ns_total", counter, Unit::None),
        ("busy_seconds_total", gauge, Unit::Nanoseconds),
        ("requests_count", gauge, Unit::None),
        ("dirty_units", gauge, Unit::None),
        ("paced_percent", gauge, Unit::Percent),
        ("latency_ratio", MetricKind::Histogram, Unit::Ratio),
    ] {
        assert!(of(name, kind, unit).is_some(), "{name}");
    }
    assert_eq!(Unit::Nanoseconds.in_base(2.5e9), 2.5);
    assert_eq!(Unit::Blocks.in_base(2.0), 8192.0);
    assert_eq!(Unit::Percent.in_base(40.0), 0.4);
}

/// What monitoring collects. Planted break: subjects have no labels, red.
#[test]
fn no_two_samples_have_the_same_name_and_labels() {
    let mut samples = BTreeSet::new();
    for Subject { labels, readings, .. } in visited() {
        let metrics = readings.iter().filter(|(metric, _)| {
            matches!(metric.kind, MetricKind::Counter | MetricKind::Gauge | MetricKind::Histogram)
        });
        for (metric, _) in metrics {
            let part = metric.part.map(|part| (part.label, part.value.to_owned()));
            let labels: Vec<_> = labels.iter().cloned().chain(part).collect();
            let names: BTreeSet<&str> = labels.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), labels.len(), "{}: a label stands there twice: {labels:?}", metric.name);
            assert!(samples.insert((metric.name, labels.clone())), "{}{labels:?} is there twice", metric.name);
        }
    }
    let of = |name: &str, labels: &[(&'static str, &str)]| {
        samples.contains(&(name, labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()))
    };
    assert!(of("account_requests_total", &[("device", "disk0"), ("account", "web/db")]));
    let read = [("device", "disk0"), ("account", "web/db"), ("operation", "read")];
    assert!(of("request_duration_seconds", &read));
    assert!(of("cache_dirty_bytes", &[("device", "disk0"), ("volume", "db"), ("cache", "ssd")]));
    assert!(of("lost_total", &[("volume", "db"), ("kind", "event")]));
    assert!(of("tenant_processes", &[("volume", "db"), ("account", "web/db/run#1")]));
    assert!(of("executor_busy_seconds_total", &[("thread", "0")]));
}

/// Planted breaks: a median shows what 99 of 100 keep; latencies of no requests are 0. Both red.
#[test]
fn tables_have_the_columns_of_the_rows() {
    let mut status = status();
    let account = &mut status.devices[0].accounts[0];
    account.flush_latency = plimsoll_engine::LatencyStatus::default();
    let table = ACCOUNT.table(status.devices[0].accounts.iter()).to_string();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
    let heading = [
        "account",
        "kind",
        "reserve",
        "limit",
        "runs/s",
        "rate",
        "queued",
        "at device",
        "read p50",
        "read p99",
        "write p50",
        "write p99",
        "flush p99",
        "failed",
    ];
    let cells = |line: &[&str]| line.iter().map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(cells(&lines[0]), heading);
    let account = &status.devices[0].accounts[0];
    let shown = cells(&lines[1]);
    assert_eq!(shown[..4], ["web/db", "pool", "30%", "9 runs/s"], "{table}");
    assert_eq!(
        shown[6..9],
        [account.queued.to_string(), account.in_flight.to_string(), format!("{} ns", account.read_latency.p50_ns)]
    );
    assert_eq!(
        shown[9..],
        [
            format!("{} ns", account.read_latency.p99_ns),
            format!("{} ns", account.write_latency.p50_ns),
            format!("{} ns", account.write_latency.p99_ns),
            "-".to_owned(),
            account.failed.to_string(),
        ]
    );
    let volumes = SERVED_VOLUME.table(&status.volumes).to_string();
    assert!(volumes.starts_with("volume  account  device   size"), "{volumes}");
    assert!(volumes.contains("memory, read-only  NBD export \"db\" on unix:/run/nbd.sock"), "{volumes}");
}
