//! Rows of volumes: their sizes, what serves them, what is read ahead in them.

use super::metric::{MetricRow, Unit, counter, gauge, label, plain};
use super::section::Section;
use crate::control::doors::in_words;
use crate::control::protocol::{ServedAs, VolumeEntry};
use plimsoll_engine::{ReadAheadStatus, VolumeStatus};

/// The volumes of a device.
pub static VOLUME: Section<VolumeStatus> = Section { places: &["status.devices[].volumes[]"], rows: VOLUME_ROWS };

const VOLUME_ROWS: &[MetricRow<VolumeStatus>] = &[
    label("name", "volume", "the volume's name", |volume| (&volume.name).into()),
    plain("pool", Unit::None, "the path of its account", |volume| (&volume.pool).into()),
    gauge("size_bytes", "volume_size_bytes", Unit::Bytes, "its size", |volume| volume.size_bytes.into()),
    gauge("start_bytes", "volume_start_bytes", Unit::Bytes, "its first byte on the device", |volume| {
        volume.start_bytes.into()
    }),
    gauge("is_read_only", "volume_read_only", Unit::None, "no client may write to it", |volume| {
        volume.is_read_only.into()
    }),
    gauge("front_ends", "volume_front_ends", Unit::None, "connections and mounts now", |volume| {
        volume.front_ends.into()
    }),
    gauge(
        "stored_bytes",
        "volume_stored_bytes",
        Unit::Bytes,
        "memory that its content takes; `null` where it is not compressed, as the three fields below",
        |volume| volume.stored_bytes.into(),
    ),
    gauge(
        "backlog_bytes",
        "volume_backlog_bytes",
        Unit::Bytes,
        "bytes of it that were written and are not compressed yet",
        |volume| volume.backlog_bytes.into(),
    ),
    counter(
        "compressed_behind_bytes",
        "volume_compressed_behind_bytes_total",
        Unit::Bytes,
        "bytes that service threads compressed after the write was answered, since the start",
        |volume| volume.compressed_behind_bytes.into(),
    ),
    counter(
        "compressed_by_writers_bytes",
        "volume_compressed_by_writers_bytes_total",
        Unit::Bytes,
        "bytes that clients' writes compressed themselves because [too much was left](executor.md#in-the-engine), \
         since the start: where it grows, the service threads do not keep up",
        |volume| volume.compressed_by_writers_bytes.into(),
    ),
];

/// What is read ahead in a volume.
pub static READ_AHEAD: Section<ReadAheadStatus> =
    Section { places: &["status.devices[].volumes[].read_ahead"], rows: READ_AHEAD_ROWS };

const READ_AHEAD_ROWS: &[MetricRow<ReadAheadStatus>] = &[
    gauge(
        "bytes_max",
        "read_ahead_window_max_bytes",
        Unit::Bytes,
        "the setting: bytes ahead of a stream, at most",
        |ahead| ahead.bytes_max.into(),
    ),
    gauge(
        "memory_bytes",
        "read_ahead_memory_bytes",
        Unit::Bytes,
        "memory that its sessions have for reading ahead, \
                                                                   at most",
        |ahead| ahead.memory_bytes.into(),
    ),
    counter("fetched_bytes", "read_ahead_fetched_bytes_total", Unit::Bytes, "bytes that were read ahead", |ahead| {
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
pub static SERVED_VOLUME: Section<VolumeEntry> =
    Section { places: &["status.volumes[]", "volumes[]"], rows: SERVED_VOLUME_ROWS };

const SERVED_VOLUME_ROWS: &[MetricRow<VolumeEntry>] = &[
    plain("name", Unit::None, "the volume's name", |volume: &VolumeEntry| (&volume.name).into()).column("volume"),
    plain("path", Unit::None, "the path of its account", |volume: &VolumeEntry| (&volume.path).into())
        .column("account"),
    plain("device", Unit::None, "its device", |volume: &VolumeEntry| (&volume.device).into()).column("device"),
    plain("size_bytes", Unit::Bytes, "its size", |volume: &VolumeEntry| volume.size_bytes.into()).column(">size"),
    plain("start_bytes", Unit::Bytes, "its first byte on the device", |volume: &VolumeEntry| volume.start_bytes.into())
        .column(">start"),
    plain(
        "content",
        Unit::None,
        "where its content is: a path, one with `, encrypted` behind it, `memory` or `memory, compressed`",
        |volume: &VolumeEntry| (&volume.content).into(),
    )
    .cell("content", |volume| format!("{}{}", volume.content, if volume.is_read_only { ", read-only" } else { "" })),
    plain("is_read_only", Unit::None, "no client may write to it", |volume| volume.is_read_only.into()),
    plain(
        "export",
        Unit::None,
        "its NBD export; `null` where it has none, as the three fields below",
        |volume: &VolumeEntry| volume.export.as_ref().into(),
    )
    .cell("served as", |volume| in_words(&volume.served_as)),
    plain("target", Unit::None, "the name of its iSCSI target", |volume| volume.target.as_ref().into()),
    plain("block_device", Unit::None, "its block device", |volume| {
        volume.block_device.as_ref().map(|path| path.to_string_lossy().into_owned()).into()
    }),
    plain("mount_point", Unit::None, "where it is mounted", |volume| {
        volume.mount_point.as_ref().map(|path| path.to_string_lossy().into_owned()).into()
    }),
    plain("front_ends", Unit::None, "connections and mounts now", |volume: &VolumeEntry| volume.front_ends.into())
        .column(">users"),
];

/// The ways to a volume.
pub static WAY: Section<ServedAs> =
    Section { places: &["status.volumes[].served_as[]", "volumes[].served_as[]"], rows: WAY_ROWS };

const WAY_ROWS: &[MetricRow<ServedAs>] = &[
    plain("kind", Unit::None, "the front end: `nbd`, `iscsi` or `mount`", |way| (&way.kind).into()),
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
