//! What accounts are: processes and their cgroups.
//!
//! The kernel's programs know a process by its number and what it was called. More is in `/proc` as long as it lives,
//! so it is looked up when the process is seen first. It is kept, because the process's data is often written back
//! after its end.

use plimsoll_tags::{AccountInfo, AccountsOf};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;

/// A process, or several, that caused I/O.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Person {
    /// The process's name; `others` or `unknown` where it is none.
    pub name: String,
    /// The process, if it is one.
    pub process: Option<u32>,
    /// The session that it is a tenant in, if a daemon knows it as one.
    pub tenant: Option<String>,
    /// Its cgroup, below the root of its hierarchy.
    pub cgroup: Option<String>,
}

impl Person {
    /// A cause that is not known.
    pub fn unknown() -> Person {
        Person { name: "unknown".to_owned(), process: None, tenant: None, cgroup: None }
    }

    fn of(info: &AccountInfo, tenants: &BTreeMap<u32, String>) -> Person {
        let Some(process) = info.process else {
            return Person { name: info.name.clone(), ..Person::unknown() };
        };
        let of_process = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        let name = of_process("comm").map(|name| name.trim_end().to_owned());
        let cgroup = of_process("cgroup").and_then(|text| cgroup(&text));
        let (name, tenant) = (name.unwrap_or_else(|| info.name.clone()), tenants.get(&process).cloned());
        Person { name, process: Some(process), tenant, cgroup }
    }

    /// `dd[4711]`, with the tenant or the cgroup.
    pub fn label(&self) -> String {
        let mut label = self.name.clone();
        if let Some(process) = self.process {
            label.push_str(&format!("[{process}]"));
        }
        match (&self.tenant, &self.cgroup) {
            (Some(tenant), _) => format!("{tenant} {label}"),
            (None, Some(cgroup)) => format!("{label} {cgroup}"),
            (None, None) => label,
        }
    }
}

/// The accounts of a disk's tags, by number.
#[derive(Debug, Default)]
pub struct People {
    known: BTreeMap<u32, (AccountInfo, Person)>,
}

impl People {
    /// Looks which processes are there now. `tenants` are sessions by process.
    pub fn meet(&mut self, infos: Vec<AccountInfo>, tenants: &BTreeMap<u32, String>) {
        for info in infos {
            let number = info.account.0;
            let person = Person::of(&info, tenants);
            // The names of an ended process stay until another process has its number.
            let is_gone = info.process.is_some() && person.cgroup.is_none();
            if !is_gone || self.known.get(&number).is_none_or(|(before, _)| before.process != info.process) {
                self.known.insert(number, (info, person));
            }
        }
    }

    /// The process of an account.
    pub fn person(&self, account: u32) -> Person {
        let known = self.known.get(&account);
        known.map_or_else(Person::unknown, |(_, person)| person.clone())
    }

    /// The account of all processes for which there was no number.
    pub const OTHERS: u32 = AccountsOf::OTHERS.0;
}

/// The cgroup of `/proc/PID/cgroup`: of version 2, or if that is the root, the longest of version 1.
fn cgroup(text: &str) -> Option<String> {
    let paths = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (hierarchy, path) = (fields.next()?, fields.nth(1)?);
        Some((hierarchy == "0" && path != "/", path.len(), path))
    });
    paths.max().map(|(_, _, path)| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_version_2_goes_before_those_of_version_1() {
        assert_eq!(cgroup("4:memory:/long/path/of/it\n0::/web\n").as_deref(), Some("/web"));
        assert_eq!(cgroup("4:memory:/batch\n3:cpu:/\n0::/\n").as_deref(), Some("/batch"));
        assert_eq!(cgroup("0::/\n").as_deref(), Some("/"));
        assert_eq!(cgroup("").as_deref(), None);
    }

    #[test]
    fn a_process_that_has_gone_is_remembered_until_its_number_is_another_s() {
        let info = |process: u32, name: &str| AccountInfo {
            account: plimsoll_core::AccountId(3),
            name: name.to_owned(),
            process: Some(process),
        };
        let mut people = People::default();
        let me = std::process::id();
        people.meet(vec![info(me, "was called so")], &BTreeMap::from([(me, "pool/tests#1".to_owned())]));
        let found = people.person(3);
        assert_eq!(found.process, Some(me));
        assert_eq!(found.label(), format!("pool/tests#1 {}[{me}]", found.name));
        assert_ne!(found.name, "was called so", "it lives, so its name is that of now");
        // No process has this number.
        let nobody = u32::MAX;
        people.meet(vec![info(nobody, "gone")], &BTreeMap::new());
        assert_eq!(people.person(3).label(), format!("gone[{nobody}]"));
        people.known.insert(3, (info(nobody, "gone"), Person { name: "dd".into(), ..people.person(3) }));
        people.meet(vec![info(nobody, "gone")], &BTreeMap::new());
        assert_eq!(people.person(3).name, "dd");
        assert_eq!(people.person(4), Person::unknown());
    }
}
