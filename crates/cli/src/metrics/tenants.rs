//! Rows of tenants that have joined, and of what tags have lost.

use super::metric::{MetricRow, Unit, counter, gauge, json_only, label};
use super::section::Section;
use crate::control::protocol::{LossEntry, TenantEntry};

/// The tenants, as `tenants` has them.
pub static TENANT: Section<TenantEntry> = Section { places: &["tenants[]"], rows: TENANT_ROWS };

const TENANT_ROWS: &[MetricRow<TenantEntry>] = &[
    label("volume", "volume", "the volume, or the device that is observed", |tenant| (&tenant.volume).into()),
    label("path", "account", "the path of its session", |tenant| (&tenant.path).into()),
    gauge(
        "processes",
        "tenant_processes",
        Unit::None,
        "a list of the numbers of its processes and threads that live; of containers those that are known one by one",
        |tenant| tenant.processes.len().into(),
    ),
    json_only("held_by", Unit::None, "what holds it, a list of `shim`, `notifications`, `freezer`"),
    json_only("not_held", Unit::None, "why the freezer does not hold it, in a line; `null`: it does"),
    counter(
        "freezes",
        "tenant_freezes_total",
        Unit::None,
        "freezes of its cgroups, while it owed and moved bytes all the same",
        |tenant: &TenantEntry| tenant.freezes.into(),
    ),
    gauge(
        "cgroups",
        "tenant_cgroups",
        Unit::None,
        "a list of its cgroups that the freezer holds: `directory`, `freezes`, and whether one is frozen with a process that runs still (`is_late`)",
        |tenant| tenant.cgroups.len().into(),
    ),
];

/// What families of losses are.
const LOST: &str = "what found no room in the tags since they were loaded";

/// What the tags of a volume or of an observed device have lost.
pub static LOSS: Section<LossEntry> = Section { places: &["status.losses[]"], rows: LOSS_ROWS };

const LOSS_ROWS: &[MetricRow<LossEntry>] = &[
    label("volume", "volume", "the volume, or the device that is observed", |loss| (&loss.volume).into()),
    counter(
        "registrations",
        "lost_total",
        Unit::None,
        "processes and threads of tenants, which are charged to the others",
        |loss: &LossEntry| loss.registrations.into(),
    )
    .part("kind", "registration", LOST),
    counter("events", "lost_total", Unit::None, "events, which are in no account", |loss: &LossEntry| loss.events.into())
        .part("kind", "event", LOST),
    counter(
        "entries",
        "lost_total",
        Unit::None,
        "dirty pages and blocks of metadata, which are charged to the tenants that wrote their file lately, or to no account",
        |loss: &LossEntry| loss.entries.into(),
    )
    .part("kind", "entry", LOST),
];
