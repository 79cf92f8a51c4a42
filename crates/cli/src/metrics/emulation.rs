//! Rows of the emulation of a device.

use super::metric::{A_SETTING, MetricRow, Unit, counter, gauge};
use super::section::Section;
use plimsoll_engine::EmulationStatus;

/// How true an emulated device is.
pub static EMULATION: Section<EmulationStatus> = Section { rows: EMULATION_ROWS };

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
    gauge(
        "lateness_ns_bound",
        "emulation_lateness_bound_seconds",
        Unit::Nanoseconds,
        "the bound",
        |emulation: &EmulationStatus| emulation.lateness_ns_bound.into(),
    )
    .only_json(A_SETTING),
    gauge(
        "lateness_ns_p99",
        "emulation_lateness_p99_seconds",
        Unit::Nanoseconds,
        "99 of 100 replies were at most so late; 0 where there was none",
        |emulation| emulation.lateness_ns_p99.into(),
    ),
];
