//! Rows of tenants that have joined, and of what tags have lost.

use super::metric::{MetricRow, Unit, counter, gauge, label};
use super::reading::Reading;
use super::section::Section;
use crate::control::protocol::{LossEntry, TenantEntry};

/// The tenants, as `tenants` has them.
pub static TENANT: Section<TenantEntry> = Section { rows: TENANT_ROWS };

/// Why no command lists the tenants.
const IN_WHY: &str = "`why` shows the I/O of tenants with their paths";

const TENANT_ROWS: &[MetricRow<TenantEntry>] = &[
    label("volume", "volume", "the volume, or the device that is observed", |tenant: &TenantEntry| {
        (&tenant.volume).into()
    })
    .only_json(IN_WHY),
    label("path", "account", "the path of its session", |tenant: &TenantEntry| (&tenant.path).into()).only_json(IN_WHY),
    gauge(
        "processes",
        "tenant_processes",
        Unit::None,
        "a list of the numbers of its processes and threads that live; of containers those that are known one by one",
        |tenant: &TenantEntry| Reading::List(tenant.processes.iter().map(|&process| process.into()).collect()),
    )
    .only_json(IN_WHY),
];

/// What families of losses are.
const LOST: &str = "losses of the tags: entries without room since the tags were loaded";

/// What the tags of a volume or of an observed device have lost.
pub static LOSS: Section<LossEntry> = Section { rows: LOSS_ROWS };

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
