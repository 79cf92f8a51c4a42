//! README's commands, as they are pasted: each block of them is run, in a mount namespace of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Seconds that a block may take.
const SECONDS_MAX: &str = "240";

/// A fenced block: its language, and its text.
fn blocks() -> Vec<(String, String)> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let parts: Vec<&str> = readme.split("```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    inside.map(|block| block.split_once('\n').unwrap()).map(|(kind, text)| (kind.to_owned(), text.to_owned())).collect()
}

/// The block of `language` that has `text` in it.
fn block(language: &str, text: &str) -> String {
    let found: Vec<String> = blocks()
        .into_iter()
        .filter(|block| block.0 == language && block.1.contains(text))
        .map(|block| block.1)
        .collect();
    assert_eq!(found.len(), 1, "one {language} block of README has {text:?}");
    found.into_iter().next().unwrap()
}

/// Runs a script as root in a mount namespace of its own, where nothing of this machine's daemons is seen; what it
/// mounts goes with it. `None`, and says so, where that cannot be.
fn run(folder: &Path, script: &str) -> Option<Output> {
    let has = |program: &str| {
        Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().unwrap().success()
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: README's commands take root");
        return None;
    }
    if let Some(missing) = ["unshare", "timeout", "mkfs.ext4", "qemu-img", "tar"].iter().find(|program| !has(program)) {
        eprintln!("not run: no {missing}");
        return None;
    }
    let begin = "set -e\nmount -t tmpfs tmpfs /run\nmount -t tmpfs tmpfs /var/lib\n";
    let programs = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap().display();
    let output = Command::new("timeout")
        .args(["-k", "10", SECONDS_MAX, "unshare", "--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("{begin}{script}"))
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) && said.contains("not run: ") {
        let why = said.lines().find(|line| line.contains("not run: ")).unwrap();
        eprintln!("not run: {}", why.split_once("not run: ").unwrap().1);
        return None;
    }
    Some(output)
}

fn assert_done(output: &Output) {
    let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{:?}\n{out}\n{said}", output.status);
}

/// A block that is added to README is run here, too.
/// Promise: project-readme.
#[test]
fn each_block_of_readme_is_known_to_this_test() {
    let known = [
        "make demo",
        "make install",
        "plimsoll why /data",
        "[device.disk0]",
        "plimsoll up plimsoll.toml",
        "plimsoll status",
    ];
    for (language, text) in blocks() {
        let is_known = known.iter().any(|known| text.contains(known)) || language == "rust";
        assert!(is_known, "README has a block that no test runs:\n{text}");
    }
}

#[test]
fn the_targets_that_readme_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text: String = blocks().into_iter().filter(|block| block.0 == "sh").map(|block| block.1).collect();
    let targets: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next()).collect();
    assert!(targets.len() > 2, "{targets:?}");
    for target in targets {
        let Ok(output) = Command::new("make").args(["--dry-run", target]).current_dir(&root).output() else {
            eprintln!("not run: no make");
            return;
        };
        assert_done(&output);
    }
}

/// Promise: project-readme.
#[test]
fn the_commands_for_the_disk_you_have_run_as_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let script = format!(
        "mkdir -p {data}\ntruncate -s 256M disk\nmkfs.ext4 -q disk\nmount -o loop disk {data}\n\
         trap 'kill $! 2>/dev/null || true; wait; umount {data} || true' EXIT\n\
         mkdir {data}/db\nhead -c 4000000 /dev/zero >{data}/db/file\n\
         {}\ntest $(stat -c %s {data}/backup.tar) -gt 4000000\n",
        block("sh", "plimsoll why /data").replace("/data", data.to_str().unwrap()),
        data = data.display(),
    );
    if let Some(output) = run(folder.path(), &script) {
        assert_done(&output);
        let (out, disk) = (String::from_utf8_lossy(&output.stdout), format!(" on {}", data.display()));
        assert!(out.matches(&disk).count() >= 3, "`why` showed the disk three times:\n{out}");
    }
}

/// Promise: project-readme.
#[test]
fn the_commands_with_volumes_run_as_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("mnt");
    let configuration = block("toml", "[device.disk0]").replace("/mnt/db", mount.to_str().unwrap());
    fs::write(folder.path().join("plimsoll.toml"), configuration).unwrap();
    let serving = block("sh", "plimsoll up plimsoll.toml");
    // It serves until Ctrl-C, and the next block is for another terminal.
    let serving = serving.lines().map(|line| match line.starts_with("plimsoll up ") {
        true => format!("{} &\nserver=$!\n", line.split(" #").next().unwrap()),
        false => format!("{line}\n"),
    });
    let asking = block("sh", "plimsoll status");
    let asking = asking.lines().map(|line| match line.contains("# refused") {
        true => format!("if {}; then exit 9; fi\n", line.split(" #").next().unwrap()),
        false => format!("{line}\n"),
    });
    let script = format!(
        "mkdir -p {mount}\nqemu-img create -q -f qcow2 image.qcow2 16M\n{}\
         trap 'kill $server 2>/dev/null || true; wait' EXIT\n\
         until plimsoll status >/dev/null 2>&1; do kill -0 $server; sleep 0.2; done\n\
         mountpoint -q {mount}\n{}kill $server\nwait $server\n",
        serving.collect::<String>(),
        asking.collect::<String>(),
        mount = mount.display(),
    );
    if let Some(output) = run(folder.path(), &script) {
        assert_done(&output);
        let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(out.contains("archive/loader#1"), "{out}");
        assert!(said.contains("reserve"), "the refusal says by how much: {said}");
    }
}
