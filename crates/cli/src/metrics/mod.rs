//! The table of metrics: one row for each field of a running daemon in the control socket's answers.
//!
//! A row has the field's name in JSON, its name for monitoring, its unit, help and kind. It also has the reading from a
//! status, and the columns that show it. What `plimsoll status`, `pool list`, `volume list` and `cache status` print,
//! and the tables of `docs/control.md`, follow from the rows. A test walks through a daemon's answers and finds a row
//! for each field.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`metric`] | a row; kinds, units, readings |
//! | [`section`] | the rows of one kind of subject; tables for a terminal |
//! | [`accounts`], [`caches`], [`devices`], [`executor`], [`tenants`], [`volumes`] | the rows |
//! | [`walk`] | all subjects of a status, with their labels |
//! | [`coverage`] | fields of an answer that have no row |

pub mod accounts;
pub mod caches;
pub mod coverage;
pub mod devices;
pub mod executor;
pub mod metric;
pub mod section;
pub mod tenants;
pub mod volumes;
pub mod walk;

use metric::Metric;

/// The rows of every section, with the places of answers that they describe.
pub fn all() -> Vec<(&'static [&'static str], Vec<&'static Metric>)> {
    vec![
        (devices::DAEMON.places, devices::DAEMON.metrics()),
        (executor::EXECUTOR.places, executor::EXECUTOR.metrics()),
        (executor::SERVICE_THREAD.places, executor::SERVICE_THREAD.metrics()),
        (executor::QUEUE.places, executor::QUEUE.metrics()),
        (devices::DEVICE.places, devices::DEVICE.metrics()),
        (devices::EMULATION.places, devices::EMULATION.metrics()),
        (volumes::VOLUME.places, volumes::VOLUME.metrics()),
        (volumes::READ_AHEAD.places, volumes::READ_AHEAD.metrics()),
        (volumes::SERVED_VOLUME.places, volumes::SERVED_VOLUME.metrics()),
        (volumes::WAY.places, volumes::WAY.metrics()),
        (caches::CACHED_VOLUME.places, caches::CACHED_VOLUME.metrics()),
        (caches::CACHE.places, caches::CACHE.metrics()),
        (caches::CACHE_CLASS.places, caches::CACHE_CLASS.metrics()),
        (caches::CACHE_POOL.places, caches::CACHE_POOL.metrics()),
        (accounts::ACCOUNT.places, accounts::ACCOUNT.metrics()),
        (accounts::POOL.places, accounts::POOL.metrics()),
        (tenants::LOSS.places, tenants::LOSS.metrics()),
        (tenants::TENANT.places, tenants::TENANT.metrics()),
    ]
}

#[cfg(test)]
mod tests;
