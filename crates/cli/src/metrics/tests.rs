mod golden;
mod shown;
mod states;

use super::ANSWERS;
use super::accounts::{ACCOUNT, POOL};
use super::caches::{CACHE, CACHE_CLASS, CACHE_POOL, CACHED_VOLUME};
use super::coverage::without_row;
use super::devices::{DAEMON, DEVICE};
use super::emulation::EMULATION;
use super::executor::{EXECUTOR, QUEUE, SERVICE_THREAD};
use super::metric::{Metric, MetricKind, Rows, Unit, plain};
use super::reading::Reading;
use super::section::Section;
use super::tenants::{LOSS, TENANT, TENANT_CGROUP};
use super::volumes::{READ_AHEAD, SERVED_VOLUME, VOLUME, WAY};
use super::walk::walk;
use plimsoll_executor::Queue;
use serde_json::{Value, json};
use states::everything;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

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

/// All rows of the table, by place, such as `status.devices.volumes.name`.
fn rows() -> BTreeMap<String, &'static Metric> {
    let mut rows = BTreeMap::new();
    let mut sections: Vec<(String, &dyn Rows)> =
        ANSWERS.iter().map(|(answer, rows)| ((*answer).to_owned(), *rows)).collect();
    while let Some((place, section)) = sections.pop() {
        for metric in section.metrics() {
            let below = format!("{place}.{}", metric.field);
            sections.extend(metric.inside.map(|inside| (below.clone(), inside)));
            rows.insert(below, metric);
        }
    }
    rows
}

/// Fields of a status that are other fields in JSON, and fields of JSON that are worked out.
const TRANSLATED: &[&str] = &["writes", "figures", "kind", "queue", "under_way", "running_ns", "priority"];

/// Whether `said`, what a status says of itself for debugging, has `value` in `field`.
fn has(said: &str, field: &str, value: &str) -> bool {
    let starts = [format!("{field}: {value}"), format!("{field}: Some({value}"), format!("{field}: Span({value}")];
    let times = [format!("{field}: Some(Time({value}")];
    let mut starts = starts.iter().chain(&times);
    starts.any(|start| said.split(start.as_str()).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())))
}

/// Complains of rows of `section` that do not read what `subject` has in the field that they name, and of fields of
/// `subject` without a row.
fn complaints<S: Debug>(section: &'static Section<S>, subject: &S) -> (*const Metric, Vec<String>) {
    let (said, mut complaints) = (format!("{subject:?}"), Vec::new());
    for row in section.rows {
        let name = row.metric.field.rsplit('.').next().unwrap_or_default();
        let value = match (row.read)(subject) {
            Reading::Flag(flag) => flag.to_string(),
            Reading::Count(count) => count.to_string(),
            Reading::Real(number) => format!("{number:?}"),
            Reading::Text(text) if !row.metric.field.starts_with("allocation.") => format!("{text:?}"),
            latencies @ Reading::Object(_) if row.metric.kind == MetricKind::Histogram => {
                format!("LatencyStatus {{ count: {}, p50_ns: {}", latencies.count("count"), latencies.count("p50_ns"))
            }
            _ => continue,
        };
        if !TRANSLATED.contains(&name) && ![name, &name.replace("_ns", "")].iter().any(|name| has(&said, name, &value))
        {
            complaints.push(format!("{} is {value}, and not in {said}", row.metric.field));
        }
    }
    for line in format!("{subject:#?}").lines() {
        let name = line.strip_prefix("    ").and_then(|line| line.split_once(':')).map_or("", |(name, _)| name);
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && !TRANSLATED.contains(&name);
        let of_it = |row: &str| row.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if is_name && !section.rows.iter().any(|row| of_it(row.metric.field)) {
            complaints.push(format!("{name} has no row"));
        }
    }
    (&raw const section.rows[0].metric, complaints)
}

/// Planted breaks: a queue's longest wait reads the sum of all; a row names another field; a row of a list names none;
/// no row for a cache's `bad_units`. All red.
#[test]
fn every_row_reads_the_field_that_it_names_and_every_field_of_a_status_has_a_row() {
    let states::State { status, pools, caches, tenants, .. } = everything();
    let executor = status.executor.as_ref().unwrap();
    let (device, volume) = (&status.devices[0], &status.devices[0].volumes[0]);
    let cache = volume.cache.as_ref().unwrap();
    let (sections, complaints): (BTreeSet<_>, Vec<_>) = [
        complaints(&DAEMON, &status),
        complaints(&EXECUTOR, executor),
        complaints(&SERVICE_THREAD, &(executor.figures.threads[1], executor.figures.at)),
        complaints(&QUEUE, &(Queue::Low, executor.figures.queues[1])),
        complaints(&DEVICE, &status.devices[1]),
        complaints(&EMULATION, device.emulation.as_ref().unwrap()),
        complaints(&VOLUME, volume),
        complaints(&READ_AHEAD, volume.read_ahead.as_ref().unwrap()),
        complaints(&SERVED_VOLUME, &status.volumes[2]),
        complaints(&WAY, &status.volumes[0].served_as[0]),
        complaints(&CACHED_VOLUME, &caches[0]),
        complaints(&CACHE, cache),
        complaints(&CACHE_CLASS, &cache.classes[0]),
        complaints(&CACHE_POOL, &cache.pools[0]),
        complaints(&ACCOUNT, &device.accounts[1]),
        complaints(&POOL, &pools[1]),
        complaints(&LOSS, &status.losses[0]),
        complaints(&TENANT, &tenants[0]),
        complaints(&TENANT_CGROUP, &tenants[0].cgroups[0]),
    ]
    .into_iter()
    .unzip();
    assert_eq!(complaints.concat(), Vec::<String>::new());
    let inside = rows().into_values().filter_map(|metric| metric.inside);
    let all = inside.chain(ANSWERS.iter().map(|(_, rows)| *rows));
    assert_eq!(all.map(|rows| std::ptr::from_ref(rows.metrics()[0])).collect::<BTreeSet<_>>(), sections);
}

/// Rows make the answer, so fields without one are planted in it. Planted breaks: lists are not looked into, red; while
/// serde made answers, no row for a thread's `busy_ns`, for `allocation.weight`, for a cache's `bad_units`, for a list,
/// all red.
#[test]
fn every_field_of_an_answer_has_a_row() {
    let states::Answers { status, pools, volumes, caches, tenants } = everything().answers();
    let answer = json!({ "status": status, "pools": pools, "volumes": volumes, "caches": caches, "tenants": tenants });
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
    let mut families: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
    let once: BTreeMap<_, _> = rows().into_values().map(|metric| (std::ptr::from_ref(metric), metric)).collect();
    for metric in once.into_values().filter(|metric| metric.kind != MetricKind::Plain) {
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
    let of =
        |name, kind, unit| complaint(&Metric { name, kind, ..plain::<()>("", unit, "", |()| Reading::Absent).metric });
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
    let mut see = |metric: &'static Metric, labels: &super::walk::Labels, _: &Reading| {
        if matches!(metric.kind, MetricKind::Counter | MetricKind::Gauge | MetricKind::Histogram) {
            let part = metric.part.map(|part| (part.label, part.value.to_owned()));
            let labels: Vec<_> = labels.iter().cloned().chain(part).collect();
            let names: BTreeSet<&str> = labels.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), labels.len(), "{}: a label stands there twice: {labels:?}", metric.name);
            assert!(samples.insert((metric.name, labels.clone())), "{}{labels:?} is there twice", metric.name);
        }
    };
    let states::Answers { status, tenants, .. } = everything().answers();
    walk(&DAEMON, &status, &Vec::new(), &mut see);
    tenants.items().iter().for_each(|tenant| walk(&TENANT, tenant, &Vec::new(), &mut see));
    let of = |name: &str, labels: &[(&'static str, &str)]| {
        samples.contains(&(name, labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()))
    };
    assert!(of("account_requests_total", &[("device", "disk0"), ("account", "web/db")]));
    let read = [("device", "disk0"), ("account", "web/db"), ("operation", "read")];
    assert!(of("request_duration_seconds", &read));
    assert!(of("cache_dirty_bytes", &[("device", "disk0"), ("volume", "db"), ("cache", "ssd")]));
    assert!(of("lost_total", &[("volume", "slow"), ("kind", "event")]));
    assert!(of("tenant_processes", &[("volume", "slow"), ("account", "web/slow/run#1")]));
    assert!(of("executor_busy_seconds_total", &[("thread", "0")]));
}

/// Planted breaks: a row without help; a row of a counter of nanoseconds that names no unit. Both red.
#[test]
fn every_row_has_its_help_and_the_unit_that_its_field_ends_with() {
    let ends: &[(&str, Unit)] = &[
        ("_ns", Unit::Nanoseconds),
        ("_bytes", Unit::Bytes),
        ("units", Unit::Blocks),
        ("_percent", Unit::Percent),
        ("runs_per_second", Unit::RunsPerSecond),
        ("bytes_per_second", Unit::BytesPerSecond),
    ];
    let unit_of = |field: &str| {
        let parts = ["_max", "_p99", "_bound", "_since_open"];
        let stem = parts.iter().fold(field, |field, part| field.strip_suffix(part).unwrap_or(field));
        ends.iter().find(|(end, _)| stem.ends_with(end)).map(|(_, unit)| *unit)
    };
    let is_wrong = |metric: &Metric| {
        metric.help.is_empty() != metric.inside.is_some()
            || unit_of(metric.field).is_some_and(|unit| unit != metric.unit)
    };
    let wrong = rows().into_iter().filter(|(_, metric)| is_wrong(metric)).map(|(place, _)| place);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Planted breaks: a median shows what 99 of 100 keep; latencies of no requests are 0. Both red.
#[test]
fn tables_have_the_columns_of_the_rows() {
    let mut status = everything().status;
    let account = &mut status.devices[0].accounts[1];
    account.flush_latency = plimsoll_engine::LatencyStatus::default();
    let accounts = [ACCOUNT.object(account)];
    let table = (&ACCOUNT as &dyn Rows).table(&accounts).to_string();
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
    let account = &status.devices[0].accounts[1];
    let time = |nanoseconds| plimsoll_core::Span::from_nanos(nanoseconds).to_string();
    let shown = cells(&lines[1]);
    assert_eq!(shown[..4], ["web", "pool", "10.1 MB/s", "20 MB/s"], "{table}");
    assert_eq!(
        shown[6..9],
        [account.queued.to_string(), account.in_flight.to_string(), time(account.read_latency.p50_ns)]
    );
    assert_eq!(
        shown[9..],
        [
            time(account.read_latency.p99_ns),
            time(account.write_latency.p50_ns),
            time(account.write_latency.p99_ns),
            "-".to_owned(),
            account.failed.to_string(),
        ]
    );
    let volumes = super::text::volumes(&SERVED_VOLUME.list(&status.volumes));
    assert!(volumes.starts_with("volume  account   device      size"), "{volumes}");
    assert!(volumes.contains("memory, compressed          NBD export \"db\" on unix:/run/nbd.sock"), "{volumes}");
}
