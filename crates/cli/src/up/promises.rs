//! Promises of a running daemon: those that the device's scheduler keeps, by the registry.

use super::refusal::Refusal;
use crate::config::Configuration;
use crate::control::protocol::Change;
use plimsoll_agent::ContainerRules;
use plimsoll_core::Allocation;
use plimsoll_schedulers::{Promised, Target, not_kept};
use std::sync::Arc;

/// Refuses what the scheduler of `device` does not keep to the account at `path`.
///
/// # Errors
/// The first promise that is not kept, in a line.
pub(super) fn check(
    configuration: &Configuration,
    device: &str,
    path: &str,
    allocation: &Allocation,
) -> Result<(), Refusal> {
    let Some(device) = configuration.device(device) else { return Ok(()) };
    let targets = configuration.targets(device, path);
    let account = Promised { targets: &targets, is_top: !path.contains('/') };
    refuse(&device.scheduler, &account, allocation).map_err(|problem| Refusal::Invalid(format!("{path}: {problem}")))
}

/// The same for a pool or volume while the daemon runs. Its priority and its deadlines are those of sessions that open
/// in it later; the account itself has none.
///
/// # Errors
/// The same as [`check`]; a priority or a deadline is changed.
pub(super) fn check_pool(
    configuration: &Configuration,
    device: &str,
    path: &str,
    change: &Change,
    before: Allocation,
) -> Result<Allocation, Refusal> {
    let allocation = change.apply(before);
    let Allocation { priority, deadlines, .. } = allocation;
    if (priority, deadlines) == (before.priority, before.deadlines) {
        check(configuration, device, path, &allocation)?;
        return Ok(allocation);
    }
    // Another scheduler would not help: this command takes neither under any.
    const ALLOWED: &str = "in the configuration, with plimsoll run and with plimsoll session open";
    let own = Allocation { priority, deadlines, ..Allocation::default() };
    let sessions = match check(configuration, device, path, &own) {
        Ok(()) => String::new(),
        Err(refusal) => format!("; there, too, not under this scheduler: {refusal}"),
    };
    Err(Refusal::Invalid(format!(
        "{path}: got a priority or a deadline, which are each session's own, allowed {ALLOWED}{sessions}"
    )))
}

fn refuse(scheduler: &str, account: &Promised<'_>, allocation: &Allocation) -> Result<(), String> {
    match not_kept(scheduler, account, allocation).first() {
        Some(broken) => Err(broken.to_string()),
        None => Ok(()),
    }
}

/// What processes that join a mounted volume or an observed disk may be promised.
#[derive(Clone, Debug)]
pub(super) struct JoinRules {
    configuration: Arc<Configuration>,
    scheduler: String,
    target: Target,
}

impl JoinRules {
    /// For members of `target` on the device called `device`.
    pub(super) fn new(configuration: &Configuration, device: &str, target: Target) -> JoinRules {
        let scheduler = configuration.device(device).map(|device| device.scheduler.clone()).unwrap_or_default();
        JoinRules { configuration: Arc::new(configuration.clone()), scheduler, target }
    }

    /// The promise to a session in the pool at `pool` that asks for `change`.
    ///
    /// # Errors
    /// The first promise that is not kept, in a line.
    pub(super) fn joining(&self, pool: &str, change: &Change) -> Result<Allocation, String> {
        let allocation = change.apply(self.configuration.inherited(pool));
        self.check(&allocation)?;
        Ok(allocation)
    }

    fn check(&self, allocation: &Allocation) -> Result<(), String> {
        refuse(&self.scheduler, &Promised { targets: &[self.target], is_top: false }, allocation)
    }
}

impl ContainerRules for JoinRules {
    /// A container that asks for the default priority has that of its pool.
    fn granted(&self, pool: &str, asked: Allocation) -> Result<Allocation, String> {
        let (nothing, around) = (Allocation::default(), self.configuration.inherited(pool));
        let mut allocation = asked;
        if asked.priority == nothing.priority {
            allocation.priority = around.priority;
        }
        let (own, theirs) = (&mut allocation.deadlines, around.deadlines);
        own.read = own.read.or(theirs.read);
        own.write = own.write.or(theirs.write);
        own.fsync = own.fsync.or(theirs.fsync);
        self.check(&allocation)?;
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Defaults, parse};
    use plimsoll_core::{Priority, Rate, Span};
    use std::path::Path;

    const OBSERVED: &str = r#"
        [device.data]
        observe = "/data"
        scheduler = "SCHEDULER"
        [pool.backup]
        device = "data"
        KEYS
        [pool.night]
        parent = "backup"
    "#;

    fn configuration(scheduler: &str, keys: &str) -> Configuration {
        let text = OBSERVED.replace("SCHEDULER", scheduler).replace("KEYS", keys);
        let defaults = Defaults::in_directory("/run/plimsoll".into());
        parse(&text, Path::new("a.toml"), Path::new("/etc"), &defaults).unwrap()
    }

    fn told(outcome: Result<impl Sized, Refusal>) -> String {
        outcome.map_or_else(|refusal| refusal.to_string(), |_| "promised".to_owned())
    }

    /// Planted break that was seen red: a daemon promises what its file could not.
    /// Promise: schedulers-refused-promise.
    #[test]
    fn a_daemon_promises_what_its_scheduler_keeps_and_nothing_else() {
        let configuration = configuration("split_token", "");
        let ask = |change: Change| {
            let before = Allocation::default();
            told(check_pool(&configuration, "data", "backup", &change, before))
        };
        let limit = Change { limit: Some("5MB/s".parse().unwrap()), ..Change::default() };
        assert_eq!(ask(limit), "promised");
        let weight = Change { weight: Some(300), ..Change::default() };
        assert_eq!(
            ask(weight),
            "backup: got weight 300, which split_token does not keep on observed disks, allowed none: no scheduler keeps it there"
        );
        assert_eq!(ask(Change { weight: Some(100), ..Change::default() }), "promised", "a default is no promise");
    }

    #[test]
    fn a_pools_priority_cannot_change_under_its_sessions() {
        let configuration = configuration("afq", "");
        let change = Change { priority: Some(Priority::Idle), ..Change::default() };
        let refused = told(check_pool(&configuration, "data", "backup", &change, Allocation::default()));
        let own = "backup: got a priority or a deadline, which are each session's own, allowed in the configuration, with plimsoll run \
                   and with plimsoll session open";
        assert_eq!(refused, own);
    }

    /// Outcome: under a scheduler without priorities the refusal says first that this command takes none under any
    /// scheduler. The schedulers that it names then are those that the configuration takes with such a pool.
    ///
    /// Planted break, seen red: the promises are looked at first, so that another scheduler is named as if the command
    /// took a priority there.
    #[test]
    fn a_refused_priority_names_only_schedulers_that_take_it() {
        let before = configuration("split_token", "");
        let change = Change { priority: Some(Priority::Level(2)), ..Change::default() };
        let refused = told(check_pool(&before, "data", "backup", &change, Allocation::default()));
        assert!(refused.starts_with("backup: got a priority or a deadline, which are each session's own"), "{refused}");
        let (_, named) = refused.split_once("allowed with the scheduler ").expect("schedulers are named");
        for name in named.split(" or ") {
            let inherited = configuration(name, "priority = 2").inherited("backup").priority;
            assert_eq!(inherited, Priority::Level(2), "{name}");
        }
    }

    /// Planted break that was seen red: a process that joins begins with the defaults, whatever the pool says.
    /// Promise: schedulers-refused-promise.
    #[test]
    fn a_process_that_joins_has_the_pools_priority_and_deadlines_unless_it_says_its_own() {
        let rules = JoinRules::new(&configuration("afq", "priority = \"idle\""), "data", Target::Observed);
        let joining = |change: Change| rules.joining("backup/night", &change).unwrap().priority;
        assert_eq!(joining(Change::default()), Priority::Idle);
        let own = Change { priority: Some(Priority::Level(4)), ..Change::default() };
        assert_eq!(joining(own), Priority::Level(4), "the default, where it is said");
        assert_eq!(rules.granted("backup", Allocation::default()).unwrap().priority, Priority::Idle, "a container");
        let late = configuration("split_deadline_flusher", "deadlines = { fsync = \"20ms\" }");
        let rules = JoinRules::new(&late, "data", Target::Observed);
        let promised = rules.granted("backup/night", Allocation::default()).unwrap();
        assert_eq!(promised.deadlines.fsync, Some(Span::from_millis(20)));
        let limited = Allocation { limit: Some(Rate::BytesPerSecond(1e6)), ..Allocation::default() };
        let refused = rules.granted("backup", limited).unwrap_err();
        assert!(refused.contains("split_deadline_flusher does not keep on observed disks"), "{refused}");
    }
}
