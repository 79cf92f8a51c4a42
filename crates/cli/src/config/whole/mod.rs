//! Mistakes that only show when sections are compared with each other.
//!
//! What compares sections of one kind (names, mount points, exports that may be there once) stands in the file of that
//! section. [`check`] calls it, in the order in which messages on one line stand.

mod admission;
mod files;
mod observed;
mod paths;
mod placement;
mod promises;
mod references;
mod users;

use super::sections::Sections;
use super::volume::{backing, iscsi, mount, nbd};
use super::{Configuration, Defaults, Listen, Problem, cache, device, volume};
use std::path::Path;

/// Resolves, places and admits. The answer is complete only if `problems` stayed empty.
pub(super) fn check(mut sections: Sections, file: &Path, problems: &mut Vec<Problem>) -> Configuration {
    let pools = references::resolve(&mut sections, problems);
    files::check(&sections, problems);
    volume::check_caches_once(&sections.volumes, problems);
    nbd::check_names_once(&sections.volumes, problems);
    iscsi::check_names_once(&sections.volumes, problems);
    users::check_portals(&sections, problems);
    mount::check_apart(&sections.volumes, problems);
    volume::check_front_ends(&sections.volumes, problems);
    mount::check_tenants(&sections.volumes, problems);
    observed::check_gates(&sections, problems);
    paths::check(&sections, problems);
    backing::check_files(&sections.volumes, file, problems);
    cache::check_files(&sections.caches, file, problems);
    users::check_effect(&sections, problems);
    device::check_observed_once(&sections.devices, problems);
    observed::check_volumes(&sections, problems);
    placement::place(&sections.devices, &mut sections.volumes, problems);
    let is_exported = sections.volumes.iter().any(|volume| volume.export.is_some());
    let listen = match sections.listen {
        Some(listen) => listen,
        None if is_exported => {
            let defaults = Defaults::in_directory(sections.daemon.state_directory.clone());
            vec![Listen { address: defaults.listen(), line: 0 }]
        }
        None => Vec::new(),
    };
    let is_target = sections.volumes.iter().any(|volume| volume.iscsi.is_some());
    let iscsi_listen = match sections.iscsi_listen {
        Some(listen) => listen,
        None if is_target => {
            let defaults = Defaults::in_directory(sections.daemon.state_directory.clone());
            vec![Listen { address: defaults.iscsi_listen(), line: 0 }]
        }
        None => Vec::new(),
    };
    let mut configuration = Configuration {
        keys: Default::default(),
        file: file.to_owned(),
        daemon: sections.daemon,
        listen,
        iscsi_listen,
        executor: sections.executor,
        devices: sections.devices,
        pools,
        caches: sections.caches,
        volumes: sections.volumes,
    };
    promises::check(&mut configuration, problems);
    admission::check(&configuration.devices, &configuration.pools, &configuration.volumes, problems);
    configuration
}
