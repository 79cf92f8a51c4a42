//! The sections of several machines: `[guest.*]`, and `[cluster]` with `[writer.*]`.

use super::kernel::{kernel, scheduler};
use super::model::*;
use super::words::{NAME, SPAN, VOLUME, is_volume};
use plimsoll_core::{ByteCount, Rate, Span};
use plimsoll_settings::{Place, Problem, Section, quoted, suggest};
use plimsoll_sim::cluster::ClusterConfig;
use plimsoll_sim::guest::CacheMode;
use plimsoll_sim::network::NetworkConfig;

const GUESTS_MAX: usize = 100;
const NODES_MAX: u64 = 1000;
const WRITERS_MAX: usize = 1000;
const THREADS_MAX: u64 = 10_000;
/// A block has at most this, so that its file fits anywhere. Bytes.
const BLOCK_BYTES_MAX: u64 = 16 << 30;
/// HDFS `dfs.client-write-packet-size`.
const PACKET_BYTES_DEFAULT: u64 = 64 << 10;
/// Gigabit Ethernet, bytes a second.
const NETWORK_BYTES_PER_SECOND_DEFAULT: f64 = 125e6;
/// From card to card through one switch of a machine room: ping times are about 0.2 ms there and back.
const LATENCY_DEFAULT: Span = Span::from_micros(100);
/// HDFS `dfs.replication`.
const REPLICATION_DEFAULT: u64 = 3;
const CACHES: &[&str] = &["writeback", "none"];

/// Reads `[guest.*]`: the names of all guests, and those of which nothing is wrong.
pub(super) fn guests(
    file: &mut Section<'_>,
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> (Vec<String>, Vec<GuestSetup>) {
    let sections = file.named_sections("guest", GUESTS_MAX, problems);
    let names = sections.iter().map(|(name, _)| name.clone()).collect();
    (names, sections.into_iter().filter_map(|(name, section)| guest(name, section, users, problems)).collect())
}

fn guest(
    name: String,
    mut section: Section<'_>,
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Option<GuestSetup> {
    section.require("disk", VOLUME, problems);
    let account = section.text("account", NAME, problems).unwrap_or(&name).to_owned();
    let disk = section.quantity("disk", VOLUME, problems, is_volume);
    let cache = match section.choice("cache", CACHES, problems) {
        Some("none") => CacheMode::None,
        _ => CacheMode::Writeback,
    };
    let scheduler = scheduler(&mut section, problems).unwrap_or("noop");
    let file_system = section.choice("file_system", crate::host::parts::FILE_SYSTEMS, problems).unwrap_or("ext4");
    let config = kernel(&mut section, problems);
    users.push((section.finish(problems), account.clone()));
    Some(GuestSetup { name, account, disk_bytes: disk?.0, cache, scheduler, file_system, config })
}

/// Checks what a process says that runs in the guest called `guest`; `known` are the names of all guests.
pub(super) fn check_guest(guest: &str, known: &[String], place: &Place, problems: &mut Vec<Problem>) {
    if !known.iter().any(|name| name == guest) {
        let hint = suggest::hint(guest, known.iter().map(String::as_str));
        let known = if known.is_empty() { "none: there is none".to_owned() } else { known.join(", ") };
        problems.push(place.problem("guest", quoted(guest), format!("{known}{hint}")));
    }
    for key in ["account", "threads"].into_iter().filter(|key| place.has(key)) {
        problems.push(place.problem(key, "an account inside a guest", "the guest's own: [guest.NAME] account"));
    }
}

/// Reads `[cluster]`.
pub(super) fn cluster(file: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<ClusterSetup> {
    const BLOCK: &str = "a multiple of 4KiB up to 16GiB";
    const PACKET: &str = "a multiple of 4KiB, at most a block";
    const NETWORK: &str = "a rate in bytes, such as \"125MB/s\"";
    let mut section = file.section("cluster", problems)?;
    for (key, allowed) in [("nodes", "1 to 1000"), ("block", BLOCK)] {
        section.require(key, allowed, problems);
    }
    let is_pages = |size: &ByteCount| size.0 > 0 && size.0.is_multiple_of(4096);
    let nodes = section.integer("nodes", 1..=NODES_MAX, problems);
    let nodes_max = nodes.unwrap_or(NODES_MAX);
    let replication = section.integer("replication", 1..=nodes_max, problems);
    let block =
        section.quantity("block", BLOCK, problems, |size: &ByteCount| is_pages(size) && size.0 <= BLOCK_BYTES_MAX);
    let bytes_max = block.unwrap_or(ByteCount(BLOCK_BYTES_MAX));
    let packet = section.quantity("packet", PACKET, problems, |size| is_pages(size) && *size <= bytes_max);
    let network = section.quantity(
        "network",
        NETWORK,
        problems,
        |rate| matches!(rate, Rate::BytesPerSecond(bytes) if *bytes >= 1.0),
    );
    let latency = section.quantity("latency", SPAN, problems, |_: &Span| true);
    section.finish(problems);
    let bytes_per_second = match network {
        Some(Rate::BytesPerSecond(bytes)) => bytes,
        _ => NETWORK_BYTES_PER_SECOND_DEFAULT,
    };
    let block_bytes = block?.0;
    let config = ClusterConfig {
        replication: replication.unwrap_or(REPLICATION_DEFAULT.min(nodes_max)) as usize,
        block_bytes,
        packet_bytes: packet.map_or(PACKET_BYTES_DEFAULT.min(block_bytes), |size| size.0),
        network: NetworkConfig {
            bytes_per_second: bytes_per_second as u64,
            latency: latency.unwrap_or(LATENCY_DEFAULT),
        },
    };
    Some(ClusterSetup { nodes: nodes? as usize, config })
}

/// Reads `[writer.*]`.
pub(super) fn writers(
    file: &mut Section<'_>,
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Vec<WriterSetup> {
    let sections = file.named_sections("writer", WRITERS_MAX, problems);
    let writer = |(name, mut section): (String, Section<'_>)| {
        let account = section.text("account", NAME, problems).unwrap_or(&name).to_owned();
        let threads = section.integer("threads", 1..=THREADS_MAX, problems).unwrap_or(1) as u32;
        users.push((section.finish(problems), account.clone()));
        WriterSetup { name, account, threads }
    };
    sections.into_iter().map(writer).collect()
}
