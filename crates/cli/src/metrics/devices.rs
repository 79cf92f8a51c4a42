//! Rows of the daemon and its devices.

use super::metric::{MetricRow, Unit, counter, gauge, label, plain};
use super::section::Section;
use crate::control::protocol::DaemonStatus;
use plimsoll_engine::{EmulationStatus, EngineStatus};

/// The daemon.
pub static DAEMON: Section<DaemonStatus> = Section { places: &["status"], rows: DAEMON_ROWS };

const DAEMON_ROWS: &[MetricRow<DaemonStatus>] = &[
    plain("version", Unit::None, "the daemon's version", |daemon| (&daemon.version).into()),
    plain("process", Unit::None, "the number of its process", |daemon| daemon.process.into()),
    plain("configuration", Unit::None, "the file that it was started with", |daemon| {
        daemon.configuration.to_string_lossy().into_owned().into()
    }),
];

/// The devices.
pub static DEVICE: Section<EngineStatus> = Section { places: &["status.devices[]"], rows: DEVICE_ROWS };

const DEVICE_ROWS: &[MetricRow<EngineStatus>] = &[
    label("device", "device", "the device's name", |device| (&device.device).into()),
    plain("scheduler", Unit::None, "the name of its scheduler", |device| (&device.scheduler).into()),
    gauge("uptime_ns", "device_uptime_seconds", Unit::Nanoseconds, "time since its engine started", |device| {
        device.uptime_ns.into()
    }),
    gauge(
        "overload_ns",
        "overload_seconds",
        Unit::Nanoseconds,
        "by how much promises had to be stretched because the device was slower than promised; 0 where they hold",
        |device| device.overload_ns.into(),
    ),
    gauge(
        "reserves_kept",
        "reserve_kept_ratio",
        Unit::Ratio,
        "the part of each reserve that accounts had in the last second: 1 where promises hold. The log says when it \
         falls below 1 and when it is 1 again",
        |device| device.reserves_kept.into(),
    ),
    gauge("requests_under_way", "device_requests", Unit::None, "requests under way, all of them", |device| {
        device.requests_under_way.into()
    }),
];

/// How true an emulated device is.
pub static EMULATION: Section<EmulationStatus> = Section {
    places: &["status.devices[].emulation", "status.devices[].volumes[].cache.emulation", "caches[].cache.emulation"],
    rows: EMULATION_ROWS,
};

const EMULATION_ROWS: &[MetricRow<EmulationStatus>] = &[
    counter("replies", "emulation_replies_total", Unit::None, "replies since the start", |emulation| {
        emulation.replies.into()
    }),
    counter(
        "late_replies",
        "emulation_late_replies_total",
        Unit::None,
        "replies that came more than the bound after the device would have answered. If more than one in a hundred are late, \
         figures describe this machine and not the device",
        |emulation| emulation.late_replies.into(),
    ),
    gauge("lateness_ns_bound", "emulation_lateness_bound_seconds", Unit::Nanoseconds, "the bound", |emulation| {
        emulation.lateness_ns_bound.into()
    }),
    gauge(
        "lateness_ns_p99",
        "emulation_lateness_p99_seconds",
        Unit::Nanoseconds,
        "99 of 100 replies were at most so late; 0 where there was none",
        |emulation| emulation.lateness_ns_p99.into(),
    ),
];
