//! The manual: a page for each command, with its options and its example as they are.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn write(directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("man-pages").arg(directory).output().unwrap()
}

#[test]
fn each_command_has_a_page_with_its_options_and_example() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let output = write(&pages);
    assert!(output.status.success(), "{output:?}");
    let names: Vec<String> =
        fs::read_dir(&pages).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{} pages in {}\n", names.len(), pages.display()));
    for name in ["plimsoll.1", "plimsoll-run.1", "plimsoll-pool.1", "plimsoll-pool-add.1", "plimsoll-man-pages.1"] {
        assert!(names.iter().any(|there| there == name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("live-process")), "{names:?}");
    let page = fs::read_to_string(pages.join("plimsoll-pool-add.1")).unwrap().replace("\\-", "-");
    let lines: Vec<&str> = page.lines().collect();
    let example = "  $ plimsoll pool add web/batch --reserve 5% --limit \"2 MB/s\"";
    assert!(page.contains("--reserve") && lines.contains(&".nf") && lines.contains(&example), "{page}");
}

#[test]
fn a_folder_that_cannot_be_is_said() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = write(&file.path().join("man1"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("man1"), "{said}");
}
