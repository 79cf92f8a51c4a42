//! Mistakes that only show when sections are compared with each other.
//!
//! What compares sections of one kind (names, mount points, exports that may be there once) stands in the file of that
//! section. [`check`] calls it, in the order in which messages on one line stand.

mod admission;
mod executor;
mod files;
mod front_ends;
mod observed;
mod paths;
mod placement;
mod promises;
mod references;

use super::sections::Sections;
use super::volume::{backing, mount};
use super::{Configuration, Problem, cache, device, volume};
use std::path::Path;

/// Resolves, places and admits. The answer is complete only if `problems` stayed empty.
pub(super) fn check(mut sections: Sections, file: &Path, problems: &mut Vec<Problem>) -> Configuration {
    let pools = references::resolve(&mut sections, problems);
    files::check(&sections, problems);
    volume::check_caches_once(&sections.volumes, problems);
    front_ends::check_names_once(&sections.volumes, problems);
    front_ends::check_reach(&sections.listens, &sections.volumes, problems);
    mount::check_apart(&sections.volumes, problems);
    front_ends::check_together(&sections.volumes, problems);
    mount::check_tenants(&sections.volumes, problems);
    observed::check_gates(&sections, problems);
    paths::check(&sections, problems);
    backing::check_files(&sections.volumes, file, problems);
    cache::check_files(&sections.caches, file, problems);
    if !sections.may_lack_volumes {
        front_ends::check_effect(&sections.listens, &sections.volumes, problems);
        executor::check(&sections, problems);
    }
    device::check_observed_once(&sections.devices, problems);
    observed::check_volumes(&sections, problems);
    placement::place(&sections.devices, &mut sections.volumes, problems);
    let state_directory = &sections.daemon.state_directory;
    let listens = front_ends::with_defaults(sections.listens, &sections.volumes, state_directory);
    let mut configuration = Configuration {
        keys: Default::default(),
        file: file.to_owned(),
        daemon: sections.daemon,
        listens,
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
