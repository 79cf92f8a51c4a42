//! Heads: what a workload is.

use super::words::{SIZE_MAX, Words, WorkloadError};
use crate::design::Design;
use crate::generators::access::{Access, Pattern};
use crate::generators::create::Create;
use crate::generators::database::Database;
use crate::generators::file_pool::{FilePool, Server};
use crate::generators::sfs2014::{Kind, Sfs2014};
use crate::generators::spc1::Spc1;
use crate::generators::spin::Spin;
use crate::generators::stream::Stream;
use crate::generators::tpcb::TpcB;
use crate::generators::tpch::{QUERIES, TpcH};
use crate::thread::THREADS_MAX;
use plimsoll_core::Span;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one call at most: larger ones are what a system call would cut short.
const CALL_MAX: u64 = 1 << 30;
/// Bytes of an appended file before it is cut to nothing, unless the text says. Ours: bounds the disk space of long
/// runs.
const APPEND_SIZE: u64 = 1 << 30;
/// Bytes of one call that overwrites memory, unless the text says: a page.
const OVERWRITE_BLOCK: u64 = 4096;
/// From checkpoint to checkpoint, unless the text says (split-level paper, section 7.1.2).
const CHECKPOINT_INTERVAL: Span = Span::from_secs(30);
/// Files of a pool, directories, transactions, and units of scale and load at most. Ours: beyond them is a slip of
/// the pen.
const FILES_MAX: u64 = 1 << 36;
const TRANSACTIONS_MAX: u64 = 1 << 50;
const SCALE_MAX: u64 = 100_000;
const SPC1_LOAD_MAX: u64 = 100_000;

/// A head, and the additions that it takes.
pub(super) struct Head {
    pub(super) design: Arc<dyn Design>,
    pub(super) additions: &'static [&'static str],
}

const READS: &[&str] = &["at", "poisson", "bursts", "think", "depth", "threads", "direct", "start", "stop"];
const WRITES: &[&str] =
    &["fsync", "fdatasync", "at", "poisson", "bursts", "think", "depth", "threads", "direct", "start", "stop"];
const FILES: &[&str] = &["fsync", "fdatasync", "at", "poisson", "bursts", "think", "threads", "start", "stop"];

const HEADS: [&str; 15] = [
    "read",
    "write",
    "mix",
    "append",
    "create",
    "overwrite",
    "stream",
    "spin",
    "spc1",
    "sfs2014",
    "fileserver",
    "mail",
    "tpcb",
    "tpch",
    "database",
];

/// Reads a head.
pub(super) fn read(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    match words.one_of(&HEADS)? {
        "read" => access(words, 100, READS),
        "write" => access(words, 0, WRITES),
        "mix" => {
            let percent = words.percent()?;
            words.expect("reads")?;
            access(words, percent, READS)
        }
        "append" => append(words),
        "create" => {
            let is_sized = !words.is_at_end() && words.peek().text != ",";
            let bytes = if is_sized { words.size(0..=SIZE_MAX)? } else { 0 };
            Ok(head(Create { bytes }, FILES))
        }
        "overwrite" => overwrite(words),
        "stream" => stream(words),
        "spin" => Ok(head(Spin, &["threads", "start", "stop"])),
        "spc1" => {
            words.expect("load")?;
            let load = words.number(1..=SPC1_LOAD_MAX)? as u32;
            words.expect("on")?;
            let capacity = words.size(Spc1::CAPACITY_MIN..=SIZE_MAX)?;
            Ok(head(Spc1 { load, capacity }, &["depth", "direct", "start", "stop"]))
        }
        "sfs2014" => sfs2014(words),
        "fileserver" => file_pool(words, Server::File),
        "mail" => file_pool(words, Server::Mail),
        "tpcb" => tpcb(words),
        "tpch" => tpch(words),
        _ => database(words),
    }
}

fn head(design: impl Design + 'static, additions: &'static [&'static str]) -> Head {
    Head { design: Arc::new(design), additions }
}

/// `read | write`: where, how much, and of which file.
fn access(words: &mut Words<'_>, read_percent: u32, additions: &'static [&'static str]) -> Result<Head, WorkloadError> {
    let kind = words.one_of(&["sequential", "random", "runs"])?;
    let (pattern, block) = match kind {
        "sequential" => (Pattern::Sequential, words.size(1..=CALL_MAX)?),
        "random" => (Pattern::Random, words.size(1..=CALL_MAX)?),
        _ => {
            words.expect("of")?;
            let run = words.peek();
            let bytes = words.size(1..=SIZE_MAX)?;
            words.expect("by")?;
            let block = words.size(1..=CALL_MAX.min(bytes))?;
            if !bytes.is_multiple_of(block) {
                return Err(run.error("a run that is a multiple of its calls"));
            }
            (Pattern::Runs { bytes }, block)
        }
    };
    words.expect("in")?;
    let is_own = words.has("own");
    let is_empty = read_percent == 0 && words.has("empty");
    let name = words.name()?;
    let least = if let Pattern::Runs { bytes } = pattern { bytes } else { block };
    let size = words.size(least..=SIZE_MAX)?;
    let region = region(words, size, least)?;
    Ok(head(Access { read_percent, pattern, block, name, is_own, is_empty, size, region }, additions))
}

/// `[from SIZE to SIZE]`: a part of a file of `size` bytes, at least `least` bytes long.
fn region(words: &mut Words<'_>, size: u64, least: u64) -> Result<Range<u64>, WorkloadError> {
    if !words.has("from") {
        return Ok(0..size);
    }
    let start = words.size(0..=size - least)?;
    words.expect("to")?;
    Ok(start..words.size(start + least..=size)?)
}

fn append(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    let block = words.size(1..=CALL_MAX)?;
    let (name, size) = match words.has("to") {
        true => (words.name()?, words.size(block..=SIZE_MAX)?),
        false => ("log".to_owned(), APPEND_SIZE),
    };
    let pattern = Pattern::Append;
    let (is_own, is_empty, region) = (true, true, 0..size);
    Ok(head(Access { read_percent: 0, pattern, block, name, is_own, is_empty, size, region }, FILES))
}

fn overwrite(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    let size = words.size(OVERWRITE_BLOCK..=SIZE_MAX)?;
    words.expect("in")?;
    words.expect("memory")?;
    let block = if words.has("by") { words.size(1..=CALL_MAX.min(size))? } else { OVERWRITE_BLOCK };
    let (pattern, name) = (Pattern::Sequential, "memory".to_owned());
    let (is_own, is_empty, region) = (true, false, 0..size);
    let access = Access { read_percent: 0, pattern, block, name, is_own, is_empty, size, region };
    Ok(head(access, &["think", "threads", "start", "stop"]))
}

fn stream(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    let bytes_per_second = words.stream_rate()?;
    words.expect("by")?;
    let block = words.size(1..=CALL_MAX)?;
    let is_read = words.one_of(&["from", "to"])? == "from";
    let (name, size) = (words.name()?, words.size(block..=SIZE_MAX)?);
    let stream = Stream { is_read, bytes_per_second, block, name, size };
    Ok(head(stream, &["threads", "direct", "start", "stop"]))
}

fn sfs2014(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    let kind = match words.one_of(&["database", "swbuild", "vda", "vdi"])? {
        "database" => Kind::Database,
        "swbuild" => Kind::Build,
        "vda" => Kind::Video,
        _ => Kind::Desktop,
    };
    words.expect("load")?;
    let load = words.number(1..=u64::from(THREADS_MAX / kind.threads_per_load()))? as u32;
    Ok(head(Sfs2014 { kind, load }, &["start", "stop"]))
}

fn file_pool(words: &mut Words<'_>, server: Server) -> Result<Head, WorkloadError> {
    let mut pool = FilePool::of_the_paper(server);
    if words.has("files") {
        pool.files = words.number(1..=FILES_MAX)?;
    }
    if words.has("directories") {
        pool.directories = words.number(1..=FILES_MAX)?;
    }
    if words.has("transactions") {
        pool.transactions = words.number(1..=TRANSACTIONS_MAX)?;
    }
    if words.has("by") {
        pool.block = words.size(1..=CALL_MAX)?;
    }
    Ok(head(pool, FILES))
}

fn tpcb(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    words.expect("clients")?;
    // Two threads more are the log's writer and the checkpointer.
    let clients = words.number(1..=u64::from(THREADS_MAX) - 2)? as u32;
    words.expect("scale")?;
    let scale = words.number(1..=SCALE_MAX)?;
    let mut checkpoint = CHECKPOINT_INTERVAL;
    if words.has("checkpoint") {
        words.expect("every")?;
        checkpoint = words.span(Span::from_millis(1))?;
    }
    Ok(head(TpcB { clients, scale, checkpoint }, &["at", "poisson", "bursts", "think", "start", "stop"]))
}

fn tpch(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    words.expect("query")?;
    let mut queries = Vec::new();
    while queries.is_empty() || words.peek().text != "scale" {
        let word = words.read();
        let query = word.text.parse().ok().filter(|query| QUERIES.contains(query));
        queries.push(query.ok_or_else(|| {
            let more = if queries.is_empty() { "" } else { ", or scale" };
            word.error(format!("the number of a query, 2, 17, 18 or 19{more}"))
        })?);
    }
    words.expect("scale")?;
    let scale = words.number(1..=SCALE_MAX)?;
    let has_all_indexes = words.has("indexes");
    if has_all_indexes {
        words.expect("dbt3")?;
    }
    Ok(head(TpcH { queries, scale, has_all_indexes }, &["start", "stop"]))
}

fn database(words: &mut Words<'_>) -> Result<Head, WorkloadError> {
    let (name, size) = (words.name()?, words.size(Database::SIZE_MIN..=SIZE_MAX)?);
    for keyword in ["checkpoint", "every"] {
        words.expect(keyword)?;
    }
    let checkpoint = words.number(1..=FILES_MAX)?;
    words.expect("buffers")?;
    Ok(head(Database { name, size, checkpoint }, &["at", "poisson", "bursts", "think", "start", "stop"]))
}
