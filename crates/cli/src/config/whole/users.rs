//! `[nbd]`, `[iscsi]` and `[executor]` beside the volumes: whether the section has a user in this file, and whether
//! other machines may reach the targets.

use crate::config::sections::Sections;
use crate::config::volume::backing::{COMPRESSION, ENCRYPTION};
use crate::config::volume::iscsi::CHAP;
use crate::config::volume::{ISCSI, NBD};
use crate::config::{Backing, IscsiTarget, Listen, Problem, quoted};
use plimsoll_serve::nbd::Address;

/// Sections that nothing would come of: what they configure has no user in this file.
pub(super) fn check_effect(sections: &Sections, problems: &mut Vec<Problem>) {
    if sections.may_lack_volumes {
        return;
    }
    // A volume with keys that were not understood may have been meant as the user.
    let is_any = |key: &str| sections.volumes.iter().any(|volume| volume.place.has(key));
    let mut listens = |listen: &Option<Vec<Listen>>, section: &str, user: &str| {
        let Some(Listen { address, line }) = listen.iter().flatten().next().filter(|_| !is_any(section)) else {
            return;
        };
        let (key, got) = (format!("{section}.listen"), format!("{} for no volume", quoted(&address.to_string())));
        problems.push(Problem { line: *line, key, got, allowed: format!("only with {user}") });
    };
    listens(&sections.listen, NBD.name, "a volume that has nbd = {}");
    listens(&sections.iscsi_listen, ISCSI.name, "a volume that has iscsi = {}");
    if let Some(line) = sections.executor_line
        && !sections.volumes.iter().any(|volume| has_work(&volume.backing))
        && !is_any(COMPRESSION.name)
        && !is_any(ENCRYPTION.name)
    {
        let (key, got) = ("executor".to_owned(), "service threads without work".to_owned());
        problems.push(Problem { line, key, got, allowed: "only with a compressed or encrypted volume".to_owned() });
    }
}

fn has_work(backing: &Backing) -> bool {
    matches!(backing, Backing::CompressedMemory { .. } | Backing::File { key_file: Some(_), .. })
}

/// From other machines, only initiators that prove their identity may connect.
pub(super) fn check_portals(sections: &Sections, problems: &mut Vec<Problem>) {
    let is_open = |target: &IscsiTarget| target.chap.is_none() && target.place.is_understood(CHAP.name);
    let open = sections.volumes.iter().find(|volume| volume.iscsi.as_ref().is_some_and(is_open));
    let Some(open) = open else { return };
    for Listen { address, line } in sections.iscsi_listen.iter().flatten() {
        if matches!(address, Address::Tcp(address) if !address.ip().is_loopback()) {
            let got = format!(
                "{:?}, which other machines reach, and volume {:?} without chap",
                address.to_string(),
                open.name
            );
            let allowed = "a loopback address such as 127.0.0.1 or [::1], or chap for every volume with iscsi".into();
            problems.push(Problem { line: *line, key: "iscsi.listen".into(), got, allowed });
        }
    }
}
