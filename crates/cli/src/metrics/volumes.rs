//! Rows of volumes: their sizes, what serves them, what is read ahead in them.

use super::caches::CACHE;
use super::metric::{
    A_DETAIL, A_SETTING, FOR_GRAPHS, MetricRow, SAID_BY_ANOTHER, Unit, counter, gauge, inside, label, plain,
};
use super::section::Section;
use crate::control::doors::in_words;
use crate::control::protocol::{ServedAs, VolumeEntry};
use plimsoll_engine::{ReadAheadStatus, VolumeStatus};

/// The volumes of a device.
pub static VOLUME: Section<VolumeStatus> = Section { rows: VOLUME_ROWS };

const VOLUME_ROWS: &[MetricRow<VolumeStatus>] = &[
    label("name", "volume", "the volume's name", |volume: &VolumeStatus| (&volume.name).into()),
    plain("pool", Unit::None, "the path of its account", |volume: &VolumeStatus| (&volume.pool).into())
        .only_json(SAID_BY_ANOTHER),
    gauge("size_bytes", "volume_size_bytes", Unit::Bytes, "its size", |volume: &VolumeStatus| volume.size_bytes.into())
        .only_json(SAID_BY_ANOTHER),
    gauge(
        "start_bytes",
        "volume_start_bytes",
        Unit::Bytes,
        "its first byte on the device",
        |volume: &VolumeStatus| volume.start_bytes.into(),
    )
    .only_json(SAID_BY_ANOTHER),
    gauge("is_read_only", "volume_read_only", Unit::None, "no client may write to it", |volume: &VolumeStatus| {
        volume.is_read_only.into()
    })
    .only_json(SAID_BY_ANOTHER),
    gauge("front_ends", "volume_front_ends", Unit::None, "connections and mounts now", |volume: &VolumeStatus| {
        volume.front_ends.into()
    })
    .only_json(SAID_BY_ANOTHER),
    gauge(
        "stored_bytes",
        "volume_stored_bytes",
        Unit::Bytes,
        "what its content takes; `null` where it is not compressed, as the three fields below",
        |volume: &VolumeStatus| volume.stored_bytes.into(),
    )
    .only_json(FOR_GRAPHS),
    gauge(
        "backlog_bytes",
        "volume_backlog_bytes",
        Unit::Bytes,
        "how much of it was written and is not compressed yet",
        |volume: &VolumeStatus| volume.backlog_bytes.into(),
    )
    .only_json(FOR_GRAPHS),
    counter(
        "compressed_behind_bytes",
        "volume_compressed_behind_bytes_total",
        Unit::Bytes,
        "what was compressed after its write was answered, since the start",
        |volume: &VolumeStatus| volume.compressed_behind_bytes.into(),
    )
    .only_json(FOR_GRAPHS),
    counter(
        "compressed_by_writers_bytes",
        "volume_compressed_by_writers_bytes_total",
        Unit::Bytes,
        "what clients' writes had to compress themselves because [too much was left](executor.md#in-the-engine), since the \
         start: where it grows, the service threads do not keep up",
        |volume: &VolumeStatus| volume.compressed_by_writers_bytes.into(),
    )
    .only_json(FOR_GRAPHS),
    inside("cache", &CACHE, |volume: &VolumeStatus| volume.cache.as_ref().map(|cache| CACHE.object(cache)).into()),
    inside("read_ahead", &READ_AHEAD, |volume: &VolumeStatus| {
        volume.read_ahead.map(|ahead| READ_AHEAD.object(&ahead)).into()
    }),
];

/// What is read ahead in a volume.
pub static READ_AHEAD: Section<ReadAheadStatus> = Section { rows: READ_AHEAD_ROWS };

const READ_AHEAD_ROWS: &[MetricRow<ReadAheadStatus>] = &[
    gauge(
        "bytes_max",
        "read_ahead_window_max_bytes",
        Unit::Bytes,
        "the setting: at most so far ahead of a stream",
        |ahead: &ReadAheadStatus| ahead.bytes_max.into(),
    )
    .only_json(A_SETTING),
    gauge(
        "memory_bytes",
        "read_ahead_memory_bytes",
        Unit::Bytes,
        "what sessions have for it at the most",
        |ahead: &ReadAheadStatus| ahead.memory_bytes.into(),
    )
    .only_json(A_DETAIL),
    counter("fetched_bytes", "read_ahead_fetched_bytes_total", Unit::Bytes, "what was read ahead", |ahead| {
        ahead.fetched_bytes.into()
    }),
    counter(
        "used_bytes",
        "read_ahead_used_bytes_total",
        Unit::Bytes,
        "bytes of reads that were answered out of it",
        |ahead| ahead.used_bytes.into(),
    ),
    counter(
        "wasted_bytes",
        "read_ahead_wasted_bytes_total",
        Unit::Bytes,
        "bytes that were read ahead and dropped \
                                                                           unread",
        |ahead| ahead.wasted_bytes.into(),
    ),
];

/// The volumes, as `volume_list` and `status` have them: what serves each.
pub static SERVED_VOLUME: Section<VolumeEntry> = Section { rows: SERVED_VOLUME_ROWS };

const SERVED_VOLUME_ROWS: &[MetricRow<VolumeEntry>] = &[
    plain("name", Unit::None, "the volume's name", |volume: &VolumeEntry| (&volume.name).into()).column("volume"),
    plain("device", Unit::None, "its device", |volume: &VolumeEntry| (&volume.device).into())
        .column("device")
        .after("account"),
    plain("path", Unit::None, "the path of its account", |volume: &VolumeEntry| (&volume.path).into())
        .column("account"),
    plain("size_bytes", Unit::Bytes, "its size", |volume: &VolumeEntry| volume.size_bytes.into()).column(">size"),
    plain("start_bytes", Unit::Bytes, "its first byte on the device", |volume: &VolumeEntry| volume.start_bytes.into())
        .column(">start"),
    plain("is_read_only", Unit::None, "no client may write to it", |volume| volume.is_read_only.into()),
    plain(
        "content",
        Unit::None,
        "where its content is: a path, one with `, encrypted` behind it, `memory` or `memory, compressed`",
        |volume: &VolumeEntry| (&volume.content).into(),
    )
    .cell("content", |volume| {
        format!("{}{}", volume.text("content"), if volume.is("is_read_only") { ", read-only" } else { "" })
    }),
    plain(
        "export",
        Unit::None,
        "its NBD export; `null` where it has none, as the three fields below",
        |volume: &VolumeEntry| volume.export.as_ref().into(),
    )
    .only_json(SAID_BY_ANOTHER),
    plain("target", Unit::None, "the name of its iSCSI target", |volume: &VolumeEntry| volume.target.as_ref().into())
        .only_json(SAID_BY_ANOTHER),
    plain("block_device", Unit::None, "its block device", |volume: &VolumeEntry| {
        volume.block_device.as_ref().map(|path| path.to_string_lossy().into_owned()).into()
    })
    .only_json(SAID_BY_ANOTHER),
    plain("mount_point", Unit::None, "where it is mounted", |volume: &VolumeEntry| {
        volume.mount_point.as_ref().map(|path| path.to_string_lossy().into_owned()).into()
    })
    .only_json(SAID_BY_ANOTHER),
    inside("served_as", &WAY, |volume: &VolumeEntry| WAY.list(&volume.served_as))
        .cell("served as", |volume| in_words(&volume.at("served_as").parsed::<Vec<ServedAs>>().unwrap_or_default())),
    plain("front_ends", Unit::None, "connections and mounts now", |volume: &VolumeEntry| volume.front_ends.into())
        .column(">users"),
];

/// The ways to a volume.
pub static WAY: Section<ServedAs> = Section { rows: WAY_ROWS };

const WAY_ROWS: &[MetricRow<ServedAs>] = &[
    plain("kind", Unit::None, "the front end, by the name of its table in a volume", |way| (&way.kind).into()),
    plain(
        "name",
        Unit::None,
        "the export, the target, or the mount point; of a mount without a file system the block device",
        |way| (&way.name).into(),
    ),
    plain(
        "address",
        Unit::None,
        "as in `listen` of the front end, with the port that was picked; of a mount the block device",
        |way| (&way.address).into(),
    ),
];
