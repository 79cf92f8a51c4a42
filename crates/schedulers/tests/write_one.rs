//! The steps of `docs/schedulers/README.md` make a scheduler that builds: they are taken in a copy.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// The page's text about writing one.
fn steps() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schedulers/README.md");
    let page = fs::read_to_string(page).unwrap();
    page.split("## How to write one").nth(1).expect("the page says how").to_owned()
}

/// The line of Rust that stands in the page's step about `file`.
fn line_for(file: &str, beginning: &str) -> String {
    let steps = steps();
    let step = steps.split("\n").find(|line| line.contains(&format!("In `{file}`"))).unwrap_or_default();
    let code = step.split('`').find(|part| part.starts_with(beginning));
    code.unwrap_or_else(|| panic!("the page says nothing of {beginning:?} in {file}")).to_owned()
}

/// Puts `line` before the one that begins with `before`.
fn put(file: &Path, line: &str, before: &str) {
    let text = fs::read_to_string(file).unwrap();
    let at = text.find(&format!("\n{before}")).expect("the line is there") + 1;
    fs::write(file, format!("{}{line}\n{}", &text[..at], &text[at..])).unwrap();
}

/// Promise: project-scheduler-steps.
#[test]
fn the_steps_of_the_page_make_a_scheduler_that_builds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    if root.join("crates/schedulers/src/mine.rs").exists() {
        return eprintln!("not run: the steps of the page were taken in this tree");
    }
    let copy = tempfile::tempdir().unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (before, rest) = manifest.split_once("members = [").unwrap();
    let (_, behind) = rest.split_once("\n]").unwrap();
    let manifest = format!("{before}members = [\"crates/schedulers\"]{behind}");
    fs::write(copy.path().join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), copy.path().join("Cargo.lock")).unwrap();
    let crates = copy.path().join("crates");
    fs::create_dir(&crates).unwrap();
    for entry in fs::read_dir(root.join("crates")).unwrap().map(Result::unwrap) {
        if entry.file_name() != "schedulers" {
            symlink(entry.path(), crates.join(entry.file_name())).unwrap();
        }
    }
    let from = root.join("crates/schedulers");
    let schedulers = crates.join("schedulers");
    let copied = Command::new("cp").arg("-r").args([&from, &schedulers]).status().unwrap();
    assert!(copied.success());

    // The steps.
    let source = schedulers.join("src");
    let noop = fs::read_to_string(source.join("noop.rs")).unwrap();
    fs::write(source.join("mine.rs"), noop.replace("Noop", "Mine").replace("noop", "mine")).unwrap();
    put(&source.join("lib.rs"), &line_for("lib.rs", "pub mod "), "pub mod noop;");
    let registry = source.join("registry.rs");
    put(&registry, &line_for("registry.rs", "use "), "use crate::noop::Noop;");
    let text = fs::read_to_string(&registry).unwrap();
    let entry = text.find("    Entry {\n        name: \"noop\"").unwrap();
    let length = text[entry..].find("\n    },\n").unwrap() + "\n    },\n".len();
    let mine = text[entry..entry + length].replace("\"noop\"", "\"mine\"").replace("Noop", "Mine");
    fs::write(&registry, format!("{}{mine}{}", &text[..entry], &text[entry..])).unwrap();

    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("write_one");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--lib", "--package", "plimsoll-schedulers"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(copy.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
