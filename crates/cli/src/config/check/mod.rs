//! Mistakes that only show when sections are compared with each other.

mod admission;
mod effect;
mod files;
mod observed;
mod paths;
mod placement;
mod promises;
mod references;
mod uniqueness;

use super::Problem;
use super::configuration::Configuration;
use super::sections::Sections;
use super::{Defaults, Listen};
use std::path::Path;

/// Resolves, places and admits. The answer is complete only if `problems` stayed empty.
pub(super) fn check(mut sections: Sections, file: &Path, problems: &mut Vec<Problem>) -> Configuration {
    let pools = references::resolve(&mut sections, problems);
    uniqueness::check(&sections, problems);
    paths::check(&sections, problems);
    files::check(&sections, file, problems);
    effect::check(&sections, problems);
    observed::check(&sections, problems);
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
