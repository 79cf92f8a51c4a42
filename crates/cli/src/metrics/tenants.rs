//! Rows of tenants that have joined, and of what tags have lost.

use super::metric::{A_DETAIL, FOR_GRAPHS, MetricRow, Unit, counter, gauge, inside, label, plain};
use super::reading::Reading;
use super::section::Section;
use crate::control::protocol::{LossEntry, TenantCgroupEntry, TenantEntry};

/// The tenants, as `tenants` has them.
pub static TENANT: Section<TenantEntry> = Section { rows: TENANT_ROWS };

/// Why `status` does not say it of a tenant.
const IN_WHY: &str = "`why` shows the I/O of tenants with their paths";

const TENANT_ROWS: &[MetricRow<TenantEntry>] = &[
    label("volume", "volume", "the volume, or the device that is observed", |tenant: &TenantEntry| {
        (&tenant.volume).into()
    })
    .only_json(IN_WHY),
    label("path", "account", "the path of its session", |tenant: &TenantEntry| (&tenant.path).into()),
    gauge(
        "processes",
        "tenant_processes",
        Unit::None,
        "a list of the numbers of its processes and threads that live; of containers those that are known one by one",
        |tenant: &TenantEntry| Reading::List(tenant.processes.iter().map(|&process| process.into()).collect()),
    )
    .only_json(IN_WHY),
    plain(
        "held_by",
        Unit::None,
        "what holds it, a list of `shim`, `notifications`, `freezer`",
        |tenant: &TenantEntry| Reading::List(tenant.held_by.iter().map(Reading::from).collect()),
    ),
    plain(
        "not_held",
        Unit::None,
        "why the freezer does not hold it, in a line; `null`: it does",
        |tenant: &TenantEntry| tenant.not_held.as_ref().into(),
    ),
    counter(
        "freezes",
        "tenant_freezes_total",
        Unit::None,
        "freezes of its cgroups, while it owed and moved bytes all the same",
        |tenant: &TenantEntry| tenant.freezes.into(),
    )
    .only_json(FOR_GRAPHS),
    inside("cgroups", &TENANT_CGROUP, |tenant: &TenantEntry| TENANT_CGROUP.list(&tenant.cgroups)),
];

/// The cgroups of a tenant that the freezer holds.
pub static TENANT_CGROUP: Section<TenantCgroupEntry> = Section { rows: TENANT_CGROUP_ROWS };

const TENANT_CGROUP_ROWS: &[MetricRow<TenantCgroupEntry>] = &[
    label("directory", "cgroup", "its directory", |cgroup| (&cgroup.directory).into()),
    counter(
        "freezes",
        "tenant_cgroup_freezes_total",
        Unit::None,
        "how often it was frozen",
        |cgroup: &TenantCgroupEntry| cgroup.freezes.into(),
    )
    .only_json(A_DETAIL),
    gauge(
        "is_late",
        "tenant_cgroup_late",
        Unit::None,
        "it is frozen, and a process of it runs still: it is stopped, traced, or in an uninterruptible sleep",
        |cgroup| cgroup.is_late.into(),
    ),
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
