//! Every example of the documentation is read, and every thread of it does what a file system allows.

mod support;

use plimsoll_workloads::{Before, DirectoryIndex, FileIndex, Workload};
use std::collections::BTreeSet;
use support::{Host, plan};

const DOCUMENTATION: &str = include_str!("../../../docs/workloads.md");
/// Rounds of the host: enough for some checkpoints, for the end of each sequential file and for the sizes of a pool.
const ROUNDS: usize = 3_000;
/// Threads run of a workload that has more: all are alike.
const THREADS_MAX: u32 = 130;

fn examples() -> Vec<&'static str> {
    let mut is_example = false;
    let mut examples = Vec::new();
    for line in DOCUMENTATION.lines() {
        if line.starts_with("```") {
            is_example = line == "```workload";
        } else if is_example {
            examples.push(line);
        }
    }
    examples
}

#[test]
fn every_example_is_read_and_printed_as_it_was() {
    let examples = examples();
    assert!(examples.len() >= 30, "{}", examples.len());
    for text in examples {
        let workload: Workload = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(workload.to_string(), text);
    }
}

/// Red where the word is taken as a file's name, and where it is read and nothing follows from it.
#[test]
fn a_file_that_is_empty_has_nothing_before_the_start() {
    for (text, path, bytes, before) in [
        ("write random 4KiB in empty db 1GiB", "db", 0, Before::Empty),
        ("write runs of 1MiB by 4KiB in own empty db 1GiB", "db.0", 0, Before::Empty),
        ("write random 4KiB in db 1GiB", "db", 1 << 30, Before::Filled),
        ("mix 50% reads random 4KiB in empty 1GiB", "empty", 1 << 30, Before::Filled),
        ("read random 4KiB in empty 1GiB", "empty", 1 << 30, Before::Filled),
    ] {
        let file = plan(text, 1).file(FileIndex(0));
        assert_eq!((file.path.as_str(), file.bytes, file.before), (path, bytes, before), "{text}");
    }
}

#[test]
fn every_head_has_an_example() {
    let error = "".parse::<Workload>().unwrap_err();
    let heads: BTreeSet<&str> = error.allowed.split([',', ' ']).filter(|word| !["", "or"].contains(word)).collect();
    let shown: BTreeSet<&str> = examples().iter().map(|text| text.split([' ', ',']).next().unwrap()).collect();
    assert_eq!(heads, shown);
}

#[test]
fn every_example_does_what_a_file_system_allows() {
    for text in examples() {
        let plan = plan(text, 1);
        if plan.thread_count() > THREADS_MAX {
            continue;
        }
        let mut host = Host::new(plan);
        assert!(host.run(ROUNDS), "{text}: ended");
        assert!(host.made.len() >= ROUNDS, "{text}: {} steps", host.made.len());
    }
}

#[test]
fn paths_are_different_and_their_directories_are_prepared() {
    for text in examples() {
        let plan = plan(text, 1);
        let directories: BTreeSet<String> =
            (0..plan.directory_count().min(10_000)).map(|number| plan.directory(DirectoryIndex(number))).collect();
        let files = plan.file_count().min(10_000);
        let paths: BTreeSet<String> = (0..files).map(|file| plan.file(FileIndex(file)).path).collect();
        assert_eq!(paths.len() as u64, files, "{text}");
        for path in &paths {
            if let Some((directory, _)) = path.rsplit_once('/') {
                assert!(directories.contains(directory) || plan.directory_count() > 10_000, "{text}: {path}");
            }
        }
        let names: BTreeSet<String> = plan.threads().map(|thread| thread.name).collect();
        assert_eq!(names.len() as u32, plan.thread_count(), "{text}");
    }
}
