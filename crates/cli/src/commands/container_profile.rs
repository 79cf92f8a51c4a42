//! `plimsoll container-profile`: the seccomp profile with which a container joins as a tenant.

use super::print_json;
use crate::arguments::ContainerProfileArguments;
use crate::outcome::Outcome;
use plimsoll_gates::Filter;

pub(super) fn run(arguments: &ContainerProfileArguments) -> Outcome {
    print_json(&Filter::default().oci_profile(&arguments.listener, &arguments.metadata))
}
