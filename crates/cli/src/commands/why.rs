//! `plimsoll why`: which processes caused the I/O of each disk, live.

use super::{connect, show_anew, show_as_it_is, text};
use crate::arguments::{DaemonArguments, WhyArguments};
use crate::control::protocol::{Request, Response};
use crate::metrics::reading::Reading;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use crate::why::report::Row;
use crate::why::watch::{CauseSample, Watched};
use plimsoll_agent::mounts::MountedDisk;
use plimsoll_core::{Rate, Span, Time, shown};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_tags::TagsError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Rows of a disk in a table; JSON has all.
const ROWS_MAX: usize = 30;

impl From<TagsError> for Failure {
    fn from(error: TagsError) -> Failure {
        match error {
            TagsError::NotRun(why) => Failure::NotRun(why),
            error => Failure::Failed(error.to_string()),
        }
    }
}

pub(super) fn run(arguments: &WhyArguments) -> Outcome {
    let mut watched = watch(arguments)?;
    let mut before = monotonic_now();
    for number in 0.. {
        if arguments.count == Some(number) {
            break;
        }
        let now = wait_until(before + arguments.interval);
        let tenants = tenants(&arguments.daemon);
        let samples = watched.iter_mut().map(|disk| disk.sample(&tenants)).collect::<Result<Vec<_>, _>>()?;
        let shown = watched.iter_mut().zip(samples);
        let elapsed = now.since(before);
        let is_read = if arguments.json {
            let disks: Vec<Value> = shown.map(|(disk, sample)| as_json(disk, &sample, now, elapsed)).collect();
            show_as_it_is(&json!({ "seconds": elapsed.as_secs_f64(), "disks": disks }).to_string())?
        } else {
            let texts = shown.map(|(disk, sample)| as_text(disk, &sample, now, elapsed));
            show_anew(&texts.collect::<Vec<_>>().join("\n"))?
        };
        watched.iter_mut().for_each(Watched::close_files);
        if !is_read {
            break;
        }
        before = now;
    }
    Ok(())
}

/// The disk that was named, or all that can be watched.
fn watch(arguments: &WhyArguments) -> Result<Vec<Watched>, Failure> {
    let disks = match &arguments.target {
        Some(target) => vec![MountedDisk::of(target).map_err(|error| Failure::BadInput(error.to_string()))?],
        None => MountedDisk::all().map_err(|error| Failure::Failed(error.to_string()))?,
    };
    let mut watched = Vec::new();
    for disk in disks {
        match Watched::new(disk) {
            Ok(disk) => {
                tracing::info!("{}: causes are known of {}", disk.disk().device.display(), disk.coverage());
                watched.push(disk);
            }
            // A container sees mounts of disks without having their nodes.
            Err(TagsError::Device { device, problem }) if arguments.target.is_none() => {
                tracing::warn!("{}: not watched: {problem}", device.display());
            }
            Err(error) => return Err(error.into()),
        }
    }
    match watched.is_empty() {
        true => Err(Failure::NotRun("no file system on a disk that can be watched is mounted here".to_owned())),
        false => Ok(watched),
    }
}

/// Sessions of processes that are tenants; none if no daemon answers, since none is needed.
fn tenants(daemon: &DaemonArguments) -> BTreeMap<u32, String> {
    let asked = connect(daemon).and_then(|mut client| client.ask(&Request::Tenants {}));
    let Ok(Response::Tenants(tenants)) = asked else { return BTreeMap::new() };
    let of = |tenant: &Reading| {
        let processes = tenant.at("processes").parsed::<Vec<u32>>().unwrap_or_default();
        processes.into_iter().map(|process| (process, tenant.text("path").to_owned())).collect::<Vec<_>>()
    };
    tenants.items().iter().flat_map(of).collect()
}

/// Waits; answers when it was over.
fn wait_until(at: Time) -> Time {
    loop {
        let now = monotonic_now();
        if now >= at {
            return now;
        }
        std::thread::park_timeout(Duration::from_nanos(at.since(now).as_nanos()));
    }
}

fn per_second(bytes: u64, elapsed: Span) -> f64 {
    bytes as f64 / elapsed.as_secs_f64()
}

/// Bytes that kernel threads submitted to the disk. A tool that looks at submitters cannot tell which process caused
/// them.
fn by_kernel_threads(rows: &[Row]) -> u64 {
    let through = rows.iter().flat_map(|row| &row.through);
    through.filter(|(by, _)| by.is_kernel_thread).map(|(_, bytes)| bytes).sum()
}

fn as_text(disk: &mut Watched, sample: &CauseSample, now: Time, elapsed: Span) -> String {
    let rate = |bytes| Rate::BytesPerSecond(per_second(bytes, elapsed)).to_string();
    let rows = &sample.rows;
    let sum = |of: fn(&Row) -> u64| rate(rows.iter().map(of).sum());
    let mut text = format!(
        "{}: {} read, {} written; {} came through threads of the kernel\n",
        heading(disk.disk()),
        sum(|row| row.read_bytes),
        sum(|row| row.written_bytes),
        rate(by_kernel_threads(rows)),
    );
    let mut table = Table::new(&["who", "class", ">read", ">written", "through", "file"]);
    for row in rows.iter().take(ROWS_MAX) {
        let through: Vec<&str> = row.through.keys().map(|by| by.name.as_str()).collect();
        table.row([
            row.who.label(),
            row.kind.name().to_owned(),
            rate(row.read_bytes),
            rate(row.written_bytes),
            through.join(", "),
            file(disk, row, now),
        ]);
    }
    if !table.is_empty() {
        text.push_str(&table.to_string());
    }
    if rows.len() > ROWS_MAX {
        text.push_str(&format!("and {} more\n", rows.len() - ROWS_MAX));
    }
    if sample.untold_bytes > 0 {
        text.push_str(&format!("{} of more files than can be told apart\n", rate(sample.untold_bytes)));
    }
    if sample.lost_pages > 0 {
        text.push_str(&format!(
            "{} dirty pages or blocks of metadata found no room: they stand with the last writers of their file, or as unknown\n",
            sample.lost_pages
        ));
    }
    text
}

/// The name of the disk, in one line for any mount point.
fn heading(disk: &MountedDisk) -> String {
    let MountedDisk { device, mount_point, file_system } = disk;
    shown(&format!("{} on {} ({file_system})", device.display(), mount_point.display())).into_owned()
}

fn file(disk: &mut Watched, row: &Row, now: Time) -> String {
    match (row.inode, disk.path(now, row.inode)) {
        (0, _) => "-".to_owned(),
        (_, Some(path)) => path.display().to_string(),
        (inode, None) => format!("inode {inode}"),
    }
}

fn as_json(disk: &mut Watched, sample: &CauseSample, now: Time, elapsed: Span) -> Value {
    let rate = |bytes| per_second(bytes, elapsed);
    let rows = sample.rows.iter().map(|row| {
        let path = disk.path(now, row.inode);
        let through = row
            .through
            .iter()
            .map(|(by, &bytes)| json!({ "name": by.name, "is_kernel_thread": by.is_kernel_thread, "bytes": bytes }));
        json!({
            "who": row.who.name,
            "process": row.who.process,
            "tenant": row.who.tenant,
            "cgroup": row.who.cgroup,
            "class": row.kind,
            "inode": (row.inode != 0).then_some(row.inode),
            "path": path.map(|path| text(&path)),
            "read_bytes": row.read_bytes,
            "written_bytes": row.written_bytes,
            "read_bytes_per_second": rate(row.read_bytes),
            "written_bytes_per_second": rate(row.written_bytes),
            "through": through.collect::<Vec<_>>(),
        })
    });
    let rows: Vec<Value> = rows.collect();
    let MountedDisk { device, mount_point, file_system } = disk.disk();
    json!({
        "device": text(device),
        "mount_point": text(mount_point),
        "file_system": file_system,
        "coverage": disk.coverage().to_string(),
        "untold_bytes": sample.untold_bytes,
        "lost_pages": sample.lost_pages,
        "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Planted break that was seen red: the mount point as it is.
    /// Promise: daemon-names-escaped.
    #[test]
    fn a_mount_point_forges_no_line_and_steers_no_terminal() {
        let disk = MountedDisk {
            device: "/dev/sda".into(),
            mount_point: "/srv/a\u{202e}b\nroot 1 GB/s\x1b[2J".into(),
            file_system: "ext4".into(),
        };
        assert_eq!(heading(&disk), "/dev/sda on /srv/a\\u{202e}b\\nroot 1 GB/s\\u{1b}[2J (ext4)");
    }

    /// Planted break: the path as it is, at which `json!` panics.
    #[test]
    fn a_name_that_is_no_text_is_shown_as_near_as_text_can_be() {
        let path = Path::new(OsStr::from_bytes(b"/data/\xff"));
        assert_eq!(json!({ "path": text(path) })["path"], "/data/\u{fffd}");
    }
}
