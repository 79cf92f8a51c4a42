//! `plimsoll status`: what the daemon does, once or every second.

use super::{connect, print, print_json, show_anew, show_as_it_is, unexpected};
use crate::arguments::StatusArguments;
use crate::control::client::Client;
use crate::control::doors::in_words;
use crate::control::protocol::{DaemonStatus, LossEntry, Request, Response, TenantEntry};
use crate::metrics::accounts::ACCOUNT;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use plimsoll_core::{ByteCount, Span, shown};
use plimsoll_engine::{AccountStatus, EngineStatus};
use std::time::Duration;

/// How often `--watch` prints; rates are of whole seconds.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &StatusArguments) -> Outcome {
    let mut client = connect(&arguments.daemon)?;
    loop {
        let Response::Status(status) = client.ask(&Request::Status {})? else { return Err(unexpected()) };
        if !arguments.watch && arguments.json {
            return print_json(&status);
        }
        let tenants = if arguments.json { Vec::new() } else { tenants(&mut client)? };
        if !arguments.watch {
            return print(format!("{}{}", as_text(&status), tenant_lines(&tenants)));
        }
        let is_read = if arguments.json {
            show_as_it_is(&serde_json::to_string(&status).map_err(|error| Failure::Failed(error.to_string()))?)?
        } else {
            show_anew(&format!("{}{}", as_text(&status), tenant_lines(&tenants)))?
        };
        if !is_read {
            return Ok(());
        }
        std::thread::park_timeout(PERIOD);
    }
}

fn tenants(client: &mut Client) -> Result<Vec<TenantEntry>, Failure> {
    match client.ask(&Request::Tenants {})? {
        Response::Tenants(tenants) => Ok(tenants),
        _ => Err(unexpected()),
    }
}

/// What holds each tenant.
fn tenant_lines(tenants: &[TenantEntry]) -> String {
    let line = |tenant: &TenantEntry| {
        let held_by = if tenant.held_by.is_empty() { "nothing".to_owned() } else { tenant.held_by.join(", ") };
        let not_held = tenant.not_held.iter().map(|why| format!("; NOT HELD by the freezer: {}", shown(why)));
        let late = tenant.cgroups.iter().filter(|cgroup| cgroup.is_late);
        let late = late.map(|cgroup| {
            format!("; a process in {} does not stop: it is stopped, traced or in the kernel", shown(&cgroup.directory))
        });
        format!("tenant {}: held by {held_by}{}\n", shown(&tenant.path), not_held.chain(late).collect::<String>())
    };
    tenants.iter().map(line).collect()
}

fn as_text(status: &DaemonStatus) -> String {
    let head = format!("plimsoll {}, process {}, {}\n", status.version, status.process, status.configuration.display());
    let head = status.executor.iter().fold(head, |text, executor| format!("{text}{executor}\n"));
    let head = status.losses.iter().fold(head, |text, entry| format!("{text}{}\n", loss_line(entry)));
    status.devices.iter().fold(head, |text, device| {
        let volumes = volume_lines(status, &device.device);
        format!("{text}\n{}{volumes}{}{}", device_line(device), read_ahead_lines(device), accounts(device))
    })
}

/// Why the figures of that volume's accounts are not to be believed.
fn loss_line(entry: &LossEntry) -> String {
    let LossEntry { volume, registrations, events, entries } = entry;
    format!(
        "{volume}: BOOKS ARE OFF: tags found no room for {registrations} processes of tenants (charged to others), \
         {events} events (charged to nobody), {entries} dirty pages or blocks of metadata (to those who wrote the file lately)"
    )
}

fn device_line(device: &EngineStatus) -> String {
    let up = Span::from_nanos(device.uptime_ns);
    let mut line = format!(
        "device {}: scheduler {}, up {up}, {} requests under way",
        device.device, device.scheduler, device.requests_under_way
    );
    if device.overload_ns > 0 {
        let overload = Span::from_nanos(device.overload_ns);
        line.push_str(&match device.reserves_kept {
            kept if kept < 1.0 => format!(
                ", OVERLOADED: slower than what was promised on it, all reserves get {:.0} % of themselves, {overload} behind",
                kept * 100.0
            ),
            _ => format!(", reserves fell {overload} behind while it was slower than what was promised on it"),
        });
    }
    if let Some(emulation) = device.emulation {
        let late = Span::from_nanos(emulation.lateness_ns_p99);
        let judgement = if emulation.is_true() { "" } else { " TOO LATE: this machine is too busy to emulate it" };
        line.push_str(&format!(", emulation p99 {late} late{judgement}"));
    }
    line + "\n"
}

/// A line for each volume on a device: what serves it, and how many use it.
fn volume_lines(status: &DaemonStatus, device: &str) -> String {
    let volumes = status.volumes.iter().filter(|volume| volume.device == device);
    let lines = volumes.map(|volume| {
        let served = in_words(&volume.served_as);
        format!("volume {}: {served}, {} users\n", volume.name, volume.front_ends)
    });
    lines.collect()
}

/// A line for each volume that is read ahead.
fn read_ahead_lines(device: &EngineStatus) -> String {
    let volumes = device.volumes.iter().filter_map(|volume| Some((&volume.name, volume.read_ahead?)));
    let lines = volumes.map(|(name, ahead)| {
        let [fetched, used, wasted] = [ahead.fetched_bytes, ahead.used_bytes, ahead.wasted_bytes].map(ByteCount);
        format!("volume {name}: {fetched} read ahead, {used} handed out of that, {wasted} dropped unread\n")
    });
    lines.collect()
}

fn accounts(device: &EngineStatus) -> Table {
    let mut accounts: Vec<&AccountStatus> = device.accounts.iter().skip(1).collect();
    accounts.sort_by(|a, b| a.path.cmp(&b.path));
    ACCOUNT.table(accounts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::TenantCgroupEntry;
    use plimsoll_engine::LatencyStatus;

    /// Planted break that was seen red: 0, as it was.
    /// Promise: lab-null.
    #[test]
    fn json_has_null_for_latencies_of_no_requests() {
        let json = serde_json::to_value(LatencyStatus::default()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({ "count": 0, "p50_ns": null, "p99_ns": null, "p999_ns": null, "max_ns": null })
        );
        let one = LatencyStatus { count: 1, p50_ns: 0, p99_ns: 3, p999_ns: 3, max_ns: 3 };
        let json = serde_json::to_value(one).unwrap();
        assert_eq!((&json["p50_ns"], &json["max_ns"]), (&0.into(), &3.into()), "a latency of 0 is one");
        assert_eq!(serde_json::from_value::<LatencyStatus>(json).unwrap(), one);
        let nothing: LatencyStatus = serde_json::from_value(serde_json::json!({ "count": 0 })).unwrap();
        assert_eq!(nothing, LatencyStatus::default());
    }

    /// Planted breaks: a reason is left out; a late cgroup is.
    #[test]
    fn each_tenant_says_what_holds_it_and_what_does_not() {
        let cgroup = |is_late| TenantCgroupEntry { directory: "/c".to_owned(), freezes: 1, is_late };
        let tenant = |held_by: &[&str], not_held: Option<&str>, cgroups| TenantEntry {
            volume: "data".to_owned(),
            path: "a#1".to_owned(),
            processes: Vec::new(),
            held_by: held_by.iter().map(|name| (*name).to_owned()).collect(),
            not_held: not_held.map(str::to_owned),
            freezes: 1,
            cgroups,
        };
        let lines = tenant_lines(&[
            tenant(&["shim", "notifications", "freezer"], None, vec![cgroup(false)]),
            tenant(&[], Some("/c is never frozen: init is in it"), Vec::new()),
            tenant(&["freezer"], None, vec![cgroup(true)]),
        ]);
        let expected = "tenant a#1: held by shim, notifications, freezer\n\
            tenant a#1: held by nothing; NOT HELD by the freezer: /c is never frozen: init is in it\n\
            tenant a#1: held by freezer; a process in /c does not stop: it is stopped, traced or in the kernel\n";
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_tags_have_lost_stands_before_the_figures_that_it_spoils() {
        let losses = vec![LossEntry { volume: "data".to_owned(), registrations: 3, events: 2, entries: 1 }];
        let status = DaemonStatus {
            version: "1".to_owned(),
            process: 7,
            configuration: "plimsoll.toml".into(),
            executor: None,
            devices: Vec::new(),
            volumes: Vec::new(),
            losses,
        };
        let text = as_text(&status);
        let line = text.lines().nth(1).unwrap();
        assert!(line.starts_with("data: BOOKS ARE OFF: tags found no room for 3 processes of tenants"), "{text}");
        assert_eq!(as_text(&DaemonStatus { losses: Vec::new(), ..status }).lines().count(), 1);
    }
}
