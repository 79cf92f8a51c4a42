//! The rules of the house that no compiler checks (`ARCHITECTURE.md`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
/// Every crate and the floor that it is on: it may depend on lower floors only.
const FLOORS: &[(&str, u32)] = &[
    ("core", 0),
    ("classes", 1),
    ("settings", 1),
    ("schedulers", 1),
    ("devices", 1),
    ("cache", 1),
    ("executor", 1),
    ("traces", 1),
    ("workloads", 1),
    ("classifiers", 2),
    ("sim", 2),
    ("brick", 2),
    ("gates", 2),
    ("tags", 2),
    ("agent", 3),
    ("lab", 4),
    ("cli", 5),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below `folder` whose name ends in one of `endings`, build products left out.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && !matches!(&*name, "target" | ".git" | "corpus" | "artifacts") {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long = files(&root(), &[".rs", ".c", ".h", ".ts", ".java", ".sh"]).into_iter().filter_map(|path| {
        let lines = read(&path).lines().count();
        (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines, allowed are {FILE_LINES_MAX}", path.display()))
    });
    let long: Vec<_> = long.collect();
    assert!(long.is_empty(), "due for a split:\n{}", long.join("\n"));
}

#[test]
fn crates_depend_on_lower_floors_only() {
    let floors: BTreeMap<_, _> = FLOORS.iter().copied().collect();
    for entry in fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let floor =
            floors.get(&*name).unwrap_or_else(|| panic!("{name} has no floor: name it in ARCHITECTURE.md and here"));
        let manifest: toml::Table = read(&entry.path().join("Cargo.toml")).parse().unwrap();
        for dependency in
            manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flat_map(|t| t.keys())
        {
            let Some(below) = dependency.strip_prefix("plimsoll-") else { continue };
            assert!(
                floors[below] < *floor,
                "{name} (floor {floor}) may not depend on {below} (floor {})",
                floors[below]
            );
        }
    }
}

#[test]
fn every_scheduler_has_a_page_and_every_page_a_scheduler() {
    let registry = read(&root().join("crates/schedulers/src/registry.rs"));
    let named = registry.lines().filter_map(|line| line.trim().strip_prefix("name: \"")?.strip_suffix("\","));
    let mut schedulers: Vec<_> = named.map(str::to_owned).collect();
    let pages = files(&root().join("docs/schedulers"), &[".md"]).into_iter();
    let mut pages: Vec<_> = pages.map(|page| page.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    pages.retain(|page| page != "README");
    schedulers.sort();
    pages.sort();
    assert!(!schedulers.is_empty());
    assert_eq!(schedulers, pages);
}

/// A promise names its test as `file.rs: test_function`; whoever renames or deletes the test must come by here.
#[test]
fn every_promise_names_a_test_that_exists() {
    let mut promises = 0;
    for line in
        read(&root().join("PROMISES.md")).lines().filter(|line| line.starts_with("| ") && !line.contains("---")).skip(1)
    {
        let proof = line.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        promises += 1;
        if proof.starts_with("*not yet tested*") || proof.starts_with("`make ") || proof.starts_with("`bench") {
            continue;
        }
        for test in proof.split("<br>") {
            let (file, function) =
                test.trim().trim_matches('`').split_once(": ").unwrap_or_else(|| panic!("no test in: {line}"));
            let is_scenario = file.starts_with("scenarios/");
            let found = if is_scenario { format!("[{function}]\n") } else { format!("fn {function}(") };
            assert!(read(&root().join(file)).contains(&found), "{file} has no {function}");
        }
    }
    assert!(promises > 10, "the table of promises was not found");
}

#[test]
fn no_tracked_text_names_a_path_of_somebodys_machine() {
    for path in files(&root(), &[".rs", ".md", ".toml", ".sh", ".c", ".h", ".py", "Makefile", "run"]) {
        if path.ends_with("tidy.rs") {
            continue;
        }
        for (number, line) in read(&path).lines().enumerate() {
            let is_found = ["/home/", "/root/", "/work/", "/Users/"].iter().any(|folder| line.contains(folder));
            assert!(!is_found, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}
