//! `plimsoll agent --wdt`: shares of a disk by weight, through the kernel's own limits of cgroups.
//!
//! There is no engine, no BPF and no control socket: it reads the kernel's counters and sets its limits. So a failure
//! of this process leaves limits that are a second old, until the next start puts them back.

use super::observed;
use crate::arguments::AgentArguments;
use crate::config::Defaults;
use crate::outcome::{Failure, Outcome};
use crate::signals::{self, Told};
use plimsoll_agent::limits::{Limits, LimitsConfig, LimitsError, controller};
use plimsoll_agent::mounts;
use plimsoll_core::shown;
use plimsoll_gates::directory::make_state;
use std::io::Write;
use std::sync::mpsc::channel;

/// Steers until SIGTERM or SIGINT.
///
/// # Errors
/// The disk or a cgroup is unknown; this user or this machine cannot limit cgroups; another agent does.
pub(super) fn run(arguments: &AgentArguments) -> Outcome {
    let (config, place) = config(arguments)?;
    let (stop, stopped) = channel();
    signals::listen(move |told| match told {
        Told::ToEnd => drop(stop.send(())),
        Told::HangUp => {
            tracing::info!("SIGHUP: an agent with --wdt has no configuration file to read again, and goes on")
        }
    })?;
    let device = config.device.clone();
    let (limits, said) = Limits::begin(config).map_err(|error| match error {
        LimitsError::Group { .. } => Failure::BadInput(error.to_string()),
        LimitsError::Lock(_) | LimitsError::File { .. } => Failure::Failed(error.to_string()),
    })?;
    let mut out = std::io::stdout().lock();
    // A reader that went away does not end the agent.
    let mut say = |line: &str| drop(writeln!(out, "{}", shown(line)).and_then(|()| out.flush()));
    say(&format!("{place}: cgroups share the disk {device} by weight (wdt)"));
    said.iter().for_each(|line| say(line));
    say("serving; Ctrl-C or SIGTERM ends it");
    limits.serve(&stopped, say);
    Ok(())
}

/// What is to be steered, and what the disk is called.
fn config(arguments: &AgentArguments) -> Result<(LimitsConfig, String), Failure> {
    let disk =
        mounts::PresentDisk::of(&arguments.mount).map_err(|error| Failure::BadInput(format!("--mount: {error}")))?;
    if arguments.weight.is_empty() && arguments.containers.is_none() {
        return Err(Failure::BadInput("--wdt: got no cgroups, allowed --weight GROUP=N and --containers GROUP".into()));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::NotRun("limiting cgroups takes root".into()));
    }
    let Some(controller) = arguments.cgroups.clone().or_else(controller) else {
        return Err(Failure::NotRun(
            "no controller of block I/O is mounted (blkio, or io of cgroups version 2)".into(),
        ));
    };
    let place = disk.mounted.as_ref().map_or(&disk.device, |mounted| &mounted.mount_point);
    let Some(device) = disk.number() else {
        return Err(Failure::NotRun(format!("the kernel has no disk {}", disk.device.display())));
    };
    let defaults = match &arguments.run_directory {
        Some(path) => Defaults::in_directory(std::path::absolute(path)?),
        None => Defaults::of_this_user(),
    };
    make_state(&defaults.state_directory).map_err(|error| Failure::Failed(error.to_string()))?;
    let note = defaults.state_directory.join(format!("limits-{}", device.replace(':', "-")));
    let parent = arguments.containers.as_ref().map(|parent| parent.trim_matches('/').to_owned());
    let name = observed::name_of(place);
    Ok((LimitsConfig { device, controller, weights: arguments.weight.clone(), parent, note }, format!("device {name}")))
}
