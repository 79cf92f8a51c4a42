//! Rows of the daemon and its devices.

use super::accounts::ACCOUNT;
use super::emulation::EMULATION;
use super::executor::EXECUTOR;
use super::metric::{MetricRow, Unit, gauge, inside, label, plain};
use super::section::Section;
use super::tenants::LOSS;
use super::volumes::{SERVED_VOLUME, VOLUME};
use crate::control::protocol::DaemonStatus;
use plimsoll_engine::EngineStatus;

/// The daemon.
pub static DAEMON: Section<DaemonStatus> = Section { rows: DAEMON_ROWS };

const DAEMON_ROWS: &[MetricRow<DaemonStatus>] = &[
    plain("version", Unit::None, "the daemon's version", |daemon| (&daemon.version).into()),
    plain("process", Unit::None, "the number of its process", |daemon| daemon.process.into()),
    plain("configuration", Unit::None, "the file that it was started with", |daemon| {
        daemon.configuration.to_string_lossy().into_owned().into()
    }),
    inside("executor", &EXECUTOR, |daemon: &DaemonStatus| {
        daemon.executor.as_ref().map(|executor| EXECUTOR.object(executor)).into()
    }),
    inside("devices", &DEVICE, |daemon: &DaemonStatus| DEVICE.list(&daemon.devices)),
    inside("volumes", &SERVED_VOLUME, |daemon: &DaemonStatus| SERVED_VOLUME.list(&daemon.volumes)),
    inside("losses", &LOSS, |daemon: &DaemonStatus| LOSS.list(&daemon.losses)),
];

/// The devices.
pub static DEVICE: Section<EngineStatus> = Section { rows: DEVICE_ROWS };

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
    inside("emulation", &EMULATION, |device: &EngineStatus| {
        device.emulation.map(|emulation| EMULATION.object(&emulation)).into()
    }),
    gauge("requests_under_way", "device_requests", Unit::None, "requests under way, all of them", |device| {
        device.requests_under_way.into()
    }),
    inside("volumes", &VOLUME, |device: &EngineStatus| VOLUME.list(&device.volumes)),
    inside("accounts", &ACCOUNT, |device: &EngineStatus| ACCOUNT.list(&device.accounts)),
];
