//! Scenarios that are broken, each with its exact messages beside it; and good ones.

use plimsoll_lab::claim::ClaimOn;
use plimsoll_lab::scenario::{self, Setting};
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    files
}

/// Lists that grow with the registries are written as `{schedulers}`, `{models}` and `{kinds}`.
fn shortened(message: &str) -> String {
    let quoted = |names: Vec<&str>| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let schedulers = plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect();
    let models = plimsoll_devices::models().iter().map(|entry| entry.name).collect();
    message.replace(&quoted(schedulers), "{schedulers}").replace(&quoted(models), "{models}")
}

fn message(file: &Path, settings: &[&str]) -> String {
    let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
    let name = file.file_name().unwrap().to_str().unwrap();
    match scenario::parse(&std::fs::read_to_string(file).unwrap(), Path::new(name), &settings) {
        Ok(_) => panic!("{name} is not broken"),
        Err(error) => shortened(&error.to_string()),
    }
}

#[test]
fn each_broken_file_gets_its_exact_messages() {
    let files = files("broken");
    assert!(files.len() >= 25, "only {} broken files", files.len());
    for file in files {
        let expected = file.with_extension("expected");
        let got = message(&file, &[]) + "\n";
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected, &got).unwrap();
        }
        assert_eq!(got, std::fs::read_to_string(&expected).unwrap(), "{}", file.display());
    }
}

#[test]
fn every_message_names_file_line_key_and_what_is_allowed() {
    for file in files("broken") {
        let name = file.file_name().unwrap().to_str().unwrap();
        for line in message(&file, &[]).lines() {
            let rest = line.strip_prefix(&format!("{name}:")).unwrap_or_else(|| panic!("no file: {line}"));
            let (number, rest) = rest.split_once(": ").unwrap();
            assert!(number.parse::<usize>().unwrap() >= 1, "{line}");
            let (_, rest) = rest.split_once(": got ").unwrap_or_else(|| panic!("no key: {line}"));
            assert!(rest.contains(", allowed "), "{line}");
        }
    }
}

#[test]
fn what_is_set_wrongly_is_told_of_the_command_line() {
    let files = files("good");
    let small = files.iter().find(|file| file.ends_with("small.toml")).unwrap();
    for (setting, expected) in [
        ("machine.device=floppy", "--set machine.device: got \"floppy\", allowed {models}"),
        (
            "machin.device=nvme",
            "--set machin.device: got no table \"machin\", allowed account, description, duration, machine, panel, paper, \
             row, seeds, source, takes, tenant, title, variant, warm_up (did you mean \"machine\"?)",
        ),
        ("tenant.c.depth=3", "--set tenant.c.depth: got no table \"c\" in tenant, allowed a, b"),
        ("tenant.a.depth=0", "--set tenant.a.depth: got the number 0, allowed 1 to 65536"),
        ("seeds=many", "--set seeds: got \"many\", allowed 1 to 1000"),
        (
            "machine.scheduler=noop",
            "--set machine.scheduler: got \"noop\", allowed variant.scheduler.values=[...], because [variant.scheduler] \
             varies it",
        ),
    ] {
        assert_eq!(message(small, &[setting]), expected);
    }
}

#[test]
fn good_files_are_read_and_varied() {
    for file in files("good") {
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario = scenario::parse(&text, &file, &[]).unwrap_or_else(|error| panic!("{error}"));
        if scenario.name != "small" {
            continue;
        }
        let labels: Vec<Vec<&str>> = scenario
            .variants
            .iter()
            .map(|variant| variant.labels.iter().map(|label| label.1.as_str()).collect())
            .collect();
        assert_eq!(labels, [["noop", "4KiB"], ["noop", "1MiB"], ["zygaria", "4KiB"], ["zygaria", "1MiB"]]);
        let on: Vec<_> = scenario.rows.iter().map(|row| row.claim.as_ref().map(|claim| claim.on)).collect();
        assert_eq!(on, [Some(ClaimOn::EverySeed), Some(ClaimOn::Mean), None], "a row's own goes before the file's");
        let of = |index: usize| {
            let setup = &scenario.variants[index].setup;
            (setup.machine.scheduler, setup.tenants[1].length)
        };
        assert_eq!([of(0), of(3)], [("noop", 4096), ("zygaria", 1 << 20)]);
        let settings = ["variant.size.values=[\"8KiB\"]", "tenant.a.depth=9"].map(|s| s.parse().unwrap());
        let error = scenario::parse(&text, &file, &settings).unwrap_err().to_string();
        assert!(error.contains("row.size.measure: got size=1MiB, which is not among 8KiB"), "{error}");
    }
}

/// And has a picture.
#[test]
fn every_scenario_in_the_binary_is_good() {
    let names: Vec<&str> = scenario::library::names().collect();
    assert!(names.contains(&"device-curves"), "{names:?}");
    for name in names {
        let scenario = scenario::load(name, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(!scenario.panels.is_empty(), "{name} has no picture");
    }
}
