//! The tables of fields on docs/control.md are made from the table of metrics (`crates/cli/src/metrics`).

use super::generated::Source;
use super::literals::{Entry, entries, value};
use super::tree::{Text, find, house};

const FOLDER: &str = "crates/cli/src/metrics/";
const STATUSES_OF_DAEMONS: &str = "crates/cli/src/control/protocol.rs";

/// The block of each section of the table of metrics.
pub const SOURCES: &[Source] = &[
    block("metrics/daemon", |texts| fields(texts, "devices.rs", "DAEMON_ROWS")),
    block("metrics/executor", |texts| fields(texts, "executor.rs", "EXECUTOR_ROWS")),
    block("metrics/service_thread", |texts| fields(texts, "executor.rs", "SERVICE_THREAD_ROWS")),
    block("metrics/queue", |texts| fields(texts, "executor.rs", "QUEUE_ROWS")),
    block("metrics/device", |texts| fields(texts, "devices.rs", "DEVICE_ROWS")),
    block("metrics/emulation", |texts| fields(texts, "emulation.rs", "EMULATION_ROWS")),
    block("metrics/volume", |texts| fields(texts, "volumes.rs", "VOLUME_ROWS")),
    block("metrics/read_ahead", |texts| fields(texts, "volumes.rs", "READ_AHEAD_ROWS")),
    block("metrics/served_volume", |texts| fields(texts, "volumes.rs", "SERVED_VOLUME_ROWS")),
    block("metrics/way", |texts| fields(texts, "volumes.rs", "WAY_ROWS")),
    block("metrics/cached_volume", |texts| fields(texts, "caches.rs", "CACHED_VOLUME_ROWS")),
    block("metrics/cache", |texts| fields(texts, "caches.rs", "CACHE_ROWS")),
    block("metrics/cache_class", |texts| fields(texts, "caches.rs", "CACHE_CLASS_ROWS")),
    block("metrics/cache_pool", |texts| fields(texts, "caches.rs", "CACHE_POOL_ROWS")),
    block("metrics/account", |texts| fields(texts, "accounts.rs", "ACCOUNT_ROWS")),
    block("metrics/pool", |texts| fields(texts, "accounts.rs", "POOL_ROWS")),
    block("metrics/loss", |texts| fields(texts, "tenants.rs", "LOSS_ROWS")),
    block("metrics/tenant", |texts| fields(texts, "tenants.rs", "TENANT_ROWS")),
    block("metrics/tenant_cgroup", |texts| fields(texts, "tenants.rs", "TENANT_CGROUP_ROWS")),
];

const fn block(name: &'static str, make: fn(&[Text]) -> String) -> Source {
    Source { page: "docs/control.md", name, make }
}

/// A table of the rows of `section`: field, kind, unit, columns of commands, meaning.
fn fields(texts: &[Text], file: &str, section: &str) -> String {
    let source = find(texts, &format!("{FOLDER}{file}")).unwrap_or_else(|| panic!("{FOLDER}{file} is missing"));
    let mut rows = entries(source, section);
    // Subjects of another section, which has its own table.
    rows.retain(|row| value(row, "call") != "inside" || !columns(row).is_empty());
    let has_columns = rows.iter().any(|row| !columns(row).is_empty());
    let (heading, line) = if has_columns { ("column | ", "--- | ") } else { ("", "") };
    let mut table = format!("| field | kind | unit | {heading}meaning |\n| --- | --- | --- | {line}--- |\n");
    for row in &rows {
        let (kind, unit, help) = match value(row, "call") {
            "label" => ("", "", value(row, "2")),
            "inside" => ("", "", "an entry for each way, as below"),
            "plain" => ("", unit(value(row, "1")), value(row, "2")),
            kind => (kind, unit(value(row, "2")), value(row, "3")),
        };
        let column = if has_columns { format!("{} | ", columns(row)) } else { String::new() };
        table.push_str(&format!("| `{}` | {kind} | {unit} | {column}{help} |\n", value(row, "0")));
    }
    table
}

/// The headings under which commands show a row.
fn columns(row: &Entry) -> String {
    let methods = ["column", "cell", "median", "p99"];
    let headings = row.iter().filter(|(name, _)| methods.contains(&name.as_str()));
    headings.map(|(_, heading)| heading.trim_start_matches('>')).collect::<Vec<_>>().join(", ")
}

/// A unit as pages write it.
fn unit(name: &str) -> &'static str {
    match name {
        "None" => "",
        "Nanoseconds" => "ns",
        "Bytes" => "bytes",
        "Blocks" => "4 KiB",
        "Percent" => "%",
        "Ratio" => "0 to 1",
        "RunsPerSecond" => "runs/s",
        "BytesPerSecond" => "bytes/s",
        other => panic!("{other} is no unit"),
    }
}

/// Sections without a block.
fn without_block(texts: &[Text]) -> Vec<String> {
    let mut missing = Vec::new();
    for text in texts.iter().filter(|text| text.path.starts_with(FOLDER)) {
        let sections = text.text.lines().filter_map(|line| line.strip_prefix("const ")?.split_once("_ROWS: "));
        let names = sections.map(|(section, _)| format!("metrics/{}", section.to_lowercase()));
        missing.extend(names.filter(|name| !SOURCES.iter().any(|source| source.name == name)));
    }
    missing
}

/// Statuses that the table reads and that serde could write past it.
fn written_past_the_table(texts: &[Text]) -> Vec<&str> {
    let is_status = |path: &str| path.starts_with("crates/engine/src/status") || path == STATUSES_OF_DAEMONS;
    let mut written = Vec::new();
    for text in texts.iter().filter(|text| is_status(&text.path)) {
        for derived in text.text.split("#[derive(").skip(1) {
            let (traits, item) = derived.split_once(")]").unwrap_or_default();
            let name = item.split_once("pub struct ").and_then(|(_, item)| item.split([' ', '(', '<']).next());
            written.extend(
                name.filter(|name| {
                    traits.contains("Serialize") && (name.ends_with("Status") || name.ends_with("Entry"))
                }),
            );
        }
    }
    written
}

/// JSON of a status is made from rows: a field that serde writes besides could do without one. Planted break: volumes
/// derive `Serialize`, red.
#[test]
fn no_status_is_written_past_the_table_of_metrics() {
    assert_eq!(written_past_the_table(house()), [""; 0]);
    let source = "#[derive(Clone, Serialize)]\npub struct NewStatus {}\n#[derive(Serialize)]\npub struct Change {}\n";
    let planted = super::tree::planted(&[("crates/engine/src/status/new.rs", source)]);
    assert_eq!(written_past_the_table(&planted), ["NewStatus"]);
}

#[test]
fn every_section_of_the_table_of_metrics_has_its_block() {
    assert_eq!(without_block(house()), Vec::<String>::new());
    let planted = super::tree::planted(&[("crates/cli/src/metrics/a.rs", "const NEW_ROWS: &[MetricRow<New>] = &[];")]);
    assert_eq!(without_block(&planted), ["metrics/new"]);
}

#[test]
fn a_planted_row_is_on_the_page_with_its_unit_and_its_columns() {
    let source = r#"
        const A_ROWS: &[MetricRow<A>] = &[
            label("name", "volume", "its name", |a: &A| (&a.name).into()).column("volume"),
            gauge("size_bytes", "size_bytes", Unit::Bytes, "its size", |a| a.size.into()).column(">size").cell("x", x),
            plain("list", Unit::None, "its list", |a| a.list()).only_json(WHY),
            inside("below", &B, |a| B.list(&a.below)),
        ];
        const B_ROWS: &[MetricRow<B>] = &[counter("busy_ns", "busy_seconds_total", Unit::Nanoseconds, "work", |b| b.busy.into())];
    "#;
    let planted = super::tree::planted(&[("crates/cli/src/metrics/a.rs", source)]);
    let expected = "| field | kind | unit | column | meaning |\n| --- | --- | --- | --- | --- |\n\
                    | `name` |  |  | volume | its name |\n| `size_bytes` | gauge | bytes | size, x | its size |\n\
                    | `list` |  |  |  | its list |\n";
    assert_eq!(fields(&planted, "a.rs", "A_ROWS"), expected);
    let expected =
        "| field | kind | unit | meaning |\n| --- | --- | --- | --- |\n| `busy_ns` | counter | ns | work |\n";
    assert_eq!(fields(&planted, "a.rs", "B_ROWS"), expected);
}
