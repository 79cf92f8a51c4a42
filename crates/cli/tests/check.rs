//! `plimsoll check` against files that are broken, each with its exact messages beside it, and files that are good.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).canonicalize().unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    files
}

/// Runs `plimsoll` in `directory`, so that messages name files without their directories.
fn plimsoll(directory: &Path, arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        .current_dir(directory)
        .env("XDG_RUNTIME_DIR", "/run/user/1000")
        .output()
        .unwrap()
}

/// Lists that grow with the registries are written as `{schedulers}` and `{models}`.
fn expected(path: &Path) -> String {
    let quoted = |names: Vec<&str>| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let schedulers = plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect();
    let models = plimsoll_devices::models().iter().map(|entry| entry.name).collect();
    let text = std::fs::read_to_string(path.with_extension("expected")).expect("each broken file has its .expected");
    text.replace("{schedulers}", &quoted(schedulers)).replace("{models}", &quoted(models))
}

/// Promise: daemon-configuration, encrypted-no-cache, schedulers-refused-promise, zygaria-no-tenants.
#[test]
fn each_broken_file_gets_its_exact_messages() {
    let folder = folder("broken");
    let files = files(&folder);
    assert!(files.len() >= 50, "only {} broken files", files.len());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let output = plimsoll(&folder, &["check", name]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected(&file), "{name}");
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(output.stdout.is_empty(), "{name}");
    }
}

#[test]
fn every_message_is_one_line_of_the_promised_form() {
    for file in files(&folder("broken")) {
        let name = file.file_name().unwrap().to_str().unwrap();
        for line in expected(&file).lines() {
            let rest = line.strip_prefix(&format!("{name}:")).unwrap_or_else(|| panic!("no file: {line}"));
            let (number, rest) = rest.split_once(": ").unwrap();
            assert!(number.parse::<usize>().unwrap() >= 1, "{line}");
            let (_, rest) = rest.split_once(": got ").unwrap_or_else(|| panic!("no key: {line}"));
            assert!(rest.contains(", allowed "), "{line}");
        }
    }
}

/// Promise: zygaria-no-tenants.
#[test]
fn good_files_are_described() {
    let folder = folder("good");
    for file in files(&folder) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let output = plimsoll(&folder, &["check", name]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        assert_eq!(output.status.code(), Some(0), "{name}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let state = if rustix::process::geteuid().is_root() { "/run/plimsoll" } else { "/run/user/1000/plimsoll" };
        let expected = std::fs::read_to_string(file.with_extension("expected")).unwrap();
        let expected = expected.replace("{folder}", folder.to_str().unwrap()).replace("{state}", state);
        // How wide a column is depends on how long the path of this folder is.
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&printed), words(&expected), "{name} printed\n{printed}");
    }
}

#[test]
fn json_says_the_same() {
    let good = plimsoll(&folder("good"), &["check", "--json", "everything.toml"]);
    let value: serde_json::Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(value["volumes"][0]["name"], "db");
    assert_eq!(value["volumes"][3]["start_bytes"], 12_u64 << 30);
    assert_eq!((&value["pools"][4]["name"], &value["pools"][4]["parent"]), (&"shop".into(), &"web".into()));
    let targets = plimsoll(&folder("good"), &["check", "--json", "iscsi.toml"]);
    let value: serde_json::Value = serde_json::from_slice(&targets.stdout).unwrap();
    let door = serde_json::json!({ "front_end": "iscsi", "name": "iqn.2026-01.local.plimsoll:vm-1", "user": "alice" });
    assert_eq!(value["volumes"][0]["doors"], serde_json::json!([door]));
    assert_eq!(value["addresses"]["nbd"], serde_json::json!([]));
    assert_eq!(
        (value["addresses"]["iscsi"].as_array().unwrap().len(), &value["iscsi_listen"][0]),
        (4, &"tcp:127.0.0.1:0".into())
    );
    let broken = plimsoll(&folder("broken"), &["check", "--json", "undefined-pool.toml"]);
    assert_eq!(broken.status.code(), Some(2));
    let value: serde_json::Value = serde_json::from_slice(&broken.stdout).unwrap();
    assert_eq!(value["errors"][0]["line"], 7);
    assert_eq!(value["errors"][0]["key"], "volume.v.pool");
}

/// Any name of a file, or of the folder that its paths count from. Broken on purpose and seen red, as it was: one path
/// as it is, at which the program ended.
#[test]
fn json_says_paths_that_are_no_text_as_near_as_text_can() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join(OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&inner).unwrap();
    let check = |of: &Path| {
        let file = inner.join(OsStr::from_bytes(b"\xfe.toml"));
        std::fs::copy(of, &file).unwrap();
        let output = plimsoll(directory.path(), &[OsStr::new("check"), OsStr::new("--json"), file.as_os_str()]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(value["file"].as_str().unwrap().ends_with("/\u{fffd}/\u{fffd}.toml"), "{value}");
        (output.status.code(), value)
    };
    for file in files(&folder("good")) {
        assert_eq!(check(&file).0, Some(0), "{}", file.display());
    }
    let (code, value) = check(&folder("broken").join("undefined-pool.toml"));
    assert_eq!((code, &value["errors"][0]["key"]), (Some(2), &"volume.v.pool".into()));
}

/// What `up` would refuse when it opens a volume, `check` refuses with a line. What is not there yet is not judged.
///
/// Planted breaks: files are not looked at; two names of one file are two files; any key is one; a key is opened as any
/// file (a FIFO is waited for).
#[test]
fn files_that_cannot_be_what_the_configuration_says_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let message = |volume: &str| {
        let text = format!(
            "[device.d]\nscheduler = \"noop\"\n[pool.p]\ndevice = \"d\"\n[volume.v]\npool = \"p\"\nnbd = {{}}\n{volume}"
        );
        std::fs::write(path("plimsoll.toml"), text).unwrap();
        let output = plimsoll(directory.path(), &["check", "plimsoll.toml"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(if said.is_empty() { 0 } else { 2 }), "{said}");
        said.replace(&format!("{}/", directory.path().display()), "")
    };
    let of = |file: &str| format!("size = \"1MiB\"\nfile = \"{file}\"\n");
    assert_eq!(message(&of("later.img")), "");
    std::fs::File::create(path("short.img")).unwrap().set_len(4096).unwrap();
    let short = "plimsoll.toml:8: volume.v.size: got 1 MiB, and \"short.img\" has 4 KiB, allowed at most what the file has, or a longer file\n";
    assert_eq!(message(&of("short.img")), short);
    std::fs::File::create(path("short.img")).unwrap().set_len((16 << 20) - 4096).unwrap();
    let short = message(&of("short.img").replace("1MiB", "16MiB"));
    let alike = "volume.v.size: got 16 MiB (16777216 B), and \"short.img\" has 16 MiB (16773120 B), allowed ";
    assert!(short.contains(alike), "{short}");
    std::fs::create_dir(path("folder")).unwrap();
    let folder =
        "plimsoll.toml:9: volume.v.file: got \"folder\", a directory, allowed a regular file or a block device\n";
    assert_eq!(message(&of("folder")), folder);
    std::fs::File::create(path("a.img")).unwrap().set_len(1 << 20).unwrap();
    std::fs::hard_link(path("a.img"), path("b.img")).unwrap();
    let second = format!("{}[volume.w]\npool = \"p\"\nnbd = {{}}\n{}", of("a.img"), of("b.img"));
    let same = "plimsoll.toml:14: volume.w.file: got the file of volume \"v\", \"b.img\", allowed a file of its own\n";
    assert_eq!(message(&second), same);
    let encrypted = format!("{}encryption = {{ key_file = \"key\" }}\n", of("a.img"));
    assert_eq!(message(&encrypted), "", "a key may come later");
    std::fs::write(path("key"), (0..64).collect::<Vec<u8>>()).unwrap();
    let mode = |mode| std::fs::set_permissions(path("key"), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let open = message(&encrypted);
    assert!(
        open.starts_with(
            "plimsoll.toml:10: volume.v.encryption.key_file: got \"key\": others than its owner may use it (mode 644)"
        ),
        "{open}"
    );
    mode(0o600);
    assert_eq!(message(&encrypted), "");
    std::fs::remove_file(path("key")).unwrap();
    assert!(Command::new("mkfifo").arg(path("key")).status().unwrap().success());
    let fifo = message(&encrypted);
    let refused = "plimsoll.toml:10: volume.v.encryption.key_file: got \"key\": it is no regular file, allowed ";
    assert!(fifo.starts_with(refused), "{fifo}");
}

/// A cache's file is a directory, the configuration itself, or a file on which a loop device lies (as root).
///
/// Planted breaks that were seen red: caches are not looked at; the configuration counts as any file; what the kernel
/// uses is not looked at.
#[test]
fn files_that_cannot_be_a_cache_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let message = |file: &str| {
        let text = format!(
            "[device.d]\nscheduler = \"noop\"\n[pool.p]\ndevice = \"d\"\n[cache.c]\nfile = \"{file}\"\nsize = \"1MiB\"\n[volume.v]\npool = \
             \"p\"\nnbd = {{}}\nsize = \"1MiB\"\nfile = \"later.img\"\ncache = \"c\"\n"
        );
        std::fs::write(path("plimsoll.toml"), text).unwrap();
        let output = plimsoll(directory.path(), &["check", "plimsoll.toml"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(if said.is_empty() { 0 } else { 2 }), "{said}");
        said.replace(&format!("{}/", directory.path().display()), "")
    };
    assert_eq!(message("fast.img"), "", "it may be made later");
    std::fs::create_dir(path("folder")).unwrap();
    let folder =
        "plimsoll.toml:6: cache.c.file: got \"folder\", a directory, allowed a regular file or a block device\n";
    assert_eq!(message("folder"), folder);
    let itself =
        "plimsoll.toml:6: cache.c.file: got \"plimsoll.toml\", this configuration, allowed a file of its own\n";
    assert_eq!(message("plimsoll.toml"), itself);
    std::fs::File::create(path("fast.img")).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(message("fast.img"), "");
    let losetup = |arguments: &[&str]| std::process::Command::new("losetup").args(arguments).output().ok();
    let made = losetup(&["--find", "--show", path("fast.img").to_str().unwrap()]);
    let Some(device) = made.filter(|made| made.status.success()) else { return println!("not run: takes root") };
    let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
    let in_use = message("fast.img");
    losetup(&["--detach", &device]).unwrap();
    let expected = format!(
        "plimsoll.toml:6: cache.c.file: got \"fast.img\", in use: the loop device {device}, allowed a file or block device that nothing else \
         uses\n"
    );
    assert_eq!(in_use, expected);
}

#[test]
fn files_that_are_no_text_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let message = |name: &str| {
        let output = plimsoll(directory.path(), &["check", name]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        message("missing.toml"),
        "missing.toml:1: file: got No such file or directory (os error 2), allowed a file that can be read\n"
    );
    std::fs::write(directory.path().join("bytes.toml"), b"[nbd]\n\xff = 1\n").unwrap();
    assert_eq!(message("bytes.toml"), "bytes.toml:2: file: got bytes that are not UTF-8, allowed UTF-8\n");
    std::fs::write(directory.path().join("long.toml"), vec![b'\n'; (4 << 20) + 1]).unwrap();
    assert_eq!(message("long.toml"), "long.toml:1: file: got a longer file, allowed at most 4 MiB\n");
    std::fs::write(directory.path().join("deep.toml"), format!("a = {}", "[".repeat(100_000))).unwrap();
    assert!(message("deep.toml").starts_with("deep.toml:1: file: got \"a = [[[["));
}

#[test]
fn the_example_of_the_documentation_is_good() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")).unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("example.toml"), example).unwrap();
    let output = plimsoll(directory.path(), &["check", "example.toml"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn every_key_is_documented() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")).unwrap();
    let everything = std::fs::read_to_string(folder("good").join("everything.toml")).unwrap();
    let keys = everything.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key);
    let mut count = 0;
    for key in keys.filter(|key| !key.starts_with('#')) {
        assert!(page.contains(&format!("`{key}`")), "{key} is not in docs/configuration.md");
        count += 1;
    }
    assert!(count > 40, "only {count} keys were looked at");
}

#[test]
fn tables_of_devices_and_schedulers_have_a_row_each() {
    let directory = tempfile::tempdir().unwrap();
    let json = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let output = plimsoll(directory.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(json(&["device", "list", "--json"]).len(), plimsoll_devices::models().len());
    assert_eq!(json(&["scheduler", "list", "--json"]).len(), plimsoll_schedulers::registry().len());
    let checked = json(&["device", "check", "--json"]);
    assert!(checked.len() >= plimsoll_devices::models().len() && checked.iter().all(|row| row["holds"] == true));
}

/// What users get, at which level and where, in a terminal of 100 columns; JSON says the same. Planted break that was
/// seen red: the table says of every scheduler what its laws at the block level are, and so of split_token that it
/// keeps no limits.
/// Promise: schedulers-registry-kept.
#[test]
fn the_table_of_schedulers_says_what_is_kept_where_and_at_which_level() {
    let directory = tempfile::tempdir().unwrap();
    let table = plimsoll(directory.path(), &["scheduler", "list"]).stdout;
    let table = String::from_utf8(table).unwrap();
    let words: Vec<String> = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in table.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for row in [
        "split_token limit - calls, pages, blocks calls, pages -",
        "afq priority - calls, pages, blocks calls, pages -",
        "wdt weight - - - limits",
        "weight of pools blocks - - -",
        "zygaria reserve blocks - - -",
        "block_deadline read deadline blocks blocks - -",
        "noop nothing - - - -",
    ] {
        assert!(words.iter().any(|line| line == row), "no row {row:?} in\n{table}");
    }
    assert!(table.contains("zygaria takes no tenants: "), "{table}");
    let json = plimsoll(directory.path(), &["scheduler", "list", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let of = |name: &str| json.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone();
    assert_eq!(
        of("split_token")["keeps"][0],
        serde_json::json!({ "promise": "limit", "target": "tenants", "levels": ["calls", "pages", "blocks"], "accounts": "all" })
    );
    assert_eq!(of("noop")["keeps"], serde_json::json!([]));
    assert!(of("zygaria")["refuses_tenants"].is_string() && of("wdt")["refuses_tenants"].is_null());
}

#[test]
fn every_command_has_help_with_an_example() {
    let directory = tempfile::tempdir().unwrap();
    for command in [
        "",
        "check",
        "up",
        "status",
        "pool list",
        "pool add",
        "pool set",
        "pool remove",
        "volume list",
        "device list",
        "device check",
        "scheduler list",
    ] {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let output = plimsoll(directory.path(), &arguments);
        assert!(output.status.success(), "{command}");
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(help.contains("Example") && help.contains(&format!("plimsoll {command}")), "{command}: {help}");
    }
    assert_eq!(plimsoll(directory.path(), &["dance"]).status.code(), Some(2));
    assert_eq!(plimsoll(directory.path(), &["check"]).status.code(), Some(2));
    let version = plimsoll(directory.path(), &["--version"]).stdout;
    assert_eq!(String::from_utf8_lossy(&version), format!("plimsoll {}\n", env!("CARGO_PKG_VERSION")));
}
