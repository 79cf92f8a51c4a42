//! What commands print of a daemon's answers for people.

use super::accounts::{ACCOUNT, POOL};
use super::caches::{CACHE, CACHE_CLASS, CACHE_POOL};
use super::metric::Rows;
use super::reading::Reading;
use super::sentence::{
    DAEMON, DEVICE, EXECUTOR, LOSS, QUEUE, SERVED_VOLUME as VOLUME_LINE, SERVICE_THREAD, TENANT, TENANT_CGROUP, VOLUME,
};
use super::volumes::SERVED_VOLUME;

/// Of `plimsoll status`.
pub fn status(status: &Reading) -> String {
    let mut text = DAEMON.of(status);
    for executor in status.subjects("executor") {
        text += &EXECUTOR.of(executor);
        text += &QUEUE.of_each(executor.subjects("queues"));
        text += &SERVICE_THREAD.of_each(executor.subjects("threads"));
        text += "\n";
    }
    text += &LOSS.of_each(status.subjects("losses"));
    for device in status.subjects("devices") {
        let on_it = |volume: &&Reading| volume.at("device") == device.at("device");
        let volumes = VOLUME_LINE.of_each(status.subjects("volumes").iter().filter(on_it));
        let ahead = VOLUME.of_each(device.subjects("volumes"));
        // The first account stands for the device.
        let mut accounts: Vec<&Reading> = device.subjects("accounts").iter().skip(1).collect();
        accounts.sort_by_key(|account| account.text("path"));
        let accounts = table(&ACCOUNT, accounts);
        text += &format!("\n{}{volumes}{ahead}{accounts}", DEVICE.of(device));
    }
    text
}

/// What holds each tenant: a line for each, the last ones of `plimsoll status`.
pub fn tenants(tenants: &Reading) -> String {
    let line = |tenant| format!("{}{}\n", TENANT.of(tenant), TENANT_CGROUP.of_each(tenant.subjects("cgroups")));
    tenants.items().iter().map(line).collect()
}

/// Of `plimsoll pool list`.
pub fn pools(pools: &Reading) -> String {
    table(&POOL, pools.items())
}

/// Of `plimsoll volume list`.
pub fn volumes(volumes: &Reading) -> String {
    table(&SERVED_VOLUME, volumes.items())
}

/// Of `plimsoll cache status`.
pub fn caches(caches: &Reading) -> String {
    let entries = caches.items();
    if entries.is_empty() {
        return "no volume has a cache".to_owned();
    }
    let of_all = |section: &dyn Rows, inside: &str| {
        let subjects = entries.iter().flat_map(|entry| {
            let of_cache = entry.subjects(inside).iter().cloned();
            of_cache.map(move |subject| (entry, subject.with("cache_units", entry.at("cache.units").clone())))
        });
        let subjects: Vec<_> = subjects.collect();
        let volume = |entry: &Reading| [entry.text("volume").to_owned()];
        section.table_in(["volume"], subjects.iter().map(|(entry, subject)| (volume(entry), subject)))
    };
    let pools = of_all(&CACHE_POOL, "cache.pools");
    let pools = if pools.is_empty() { String::new() } else { format!("\n{pools}") };
    format!("{}\n{}{pools}", of_all(&CACHE, "cache"), of_all(&CACHE_CLASS, "cache.classes"))
}

fn table<'s>(section: &dyn Rows, subjects: impl IntoIterator<Item = &'s Reading>) -> String {
    section.table(subjects).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{DaemonStatus, LossEntry, TenantCgroupEntry, TenantEntry};
    use crate::metrics::tenants::TENANT as TENANT_ROWS;

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
        let lines = tenants(&TENANT_ROWS.list([
            tenant(&["shim", "notifications", "freezer"], None, vec![cgroup(false)]),
            tenant(&[], Some("/c is never frozen: init is in it"), Vec::new()),
            tenant(&["freezer"], None, vec![cgroup(true)]),
        ]));
        let expected = "tenant a#1: held by shim, notifications, freezer\n\
            tenant a#1: held by nothing; NOT HELD by the freezer: /c is never frozen: init is in it\n\
            tenant a#1: held by freezer; a process in /c does not stop: it is stopped, traced or in the kernel\n";
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_tags_have_lost_stands_before_the_figures_that_it_spoils() {
        let losses = vec![LossEntry { volume: "data".to_owned(), registrations: 3, events: 2, entries: 1 }];
        let daemon = DaemonStatus {
            version: "1".to_owned(),
            process: 7,
            configuration: "plimsoll.toml".into(),
            executor: None,
            devices: Vec::new(),
            volumes: Vec::new(),
            losses,
        };
        let as_text = |daemon: &DaemonStatus| status(&super::super::devices::DAEMON.object(daemon));
        let text = as_text(&daemon);
        let line = text.lines().nth(1).unwrap();
        assert!(line.starts_with("data: BOOKS ARE OFF: tags found no room for 3 processes of tenants"), "{text}");
        assert_eq!(as_text(&DaemonStatus { losses: Vec::new(), ..daemon }).lines().count(), 1);
    }
}
