//! Sections that nothing would come of: what they configure has no user in this file.

use crate::config::model::{Backing, Listen};
use crate::config::sections::Sections;
use crate::config::{Problem, quoted};

pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    // A volume whose keys were not understood may have been meant as the user.
    let is_any = |key: &str| sections.volumes.iter().any(|volume| volume.place.has(key));
    let mut listens = |listen: &Option<Vec<Listen>>, section: &str, user: &str| {
        let Some(Listen { address, line }) = listen.iter().flatten().next().filter(|_| !is_any(section)) else {
            return;
        };
        let (key, got) = (format!("{section}.listen"), format!("{} for no volume", quoted(&address.to_string())));
        problems.push(Problem { line: *line, key, got, allowed: format!("only with {user}") });
    };
    listens(&sections.listen, "nbd", "a volume that has nbd = {}");
    listens(&sections.iscsi_listen, "iscsi", "a volume that has iscsi = {}");
    if let Some(line) = sections.executor_line
        && !sections.volumes.iter().any(|volume| has_work(&volume.backing))
        && !is_any("compression")
        && !is_any("encryption")
    {
        let (key, got) = ("executor".to_owned(), "service threads without work".to_owned());
        problems.push(Problem { line, key, got, allowed: "only with a compressed or encrypted volume".to_owned() });
    }
}

fn has_work(backing: &Backing) -> bool {
    matches!(backing, Backing::CompressedMemory { .. } | Backing::File { key_file: Some(_), .. })
}
