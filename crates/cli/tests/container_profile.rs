//! `plimsoll container-profile` prints what a runtime takes, and refuses what the daemon would.

use serde_json::{Value, json};
use std::fs::File;
use std::process::{Command, Output};

const LISTENER: &str = "/run/plimsoll/gates-db/listeners.sock";

fn profile(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("container-profile").args(arguments).output().unwrap()
}

#[test]
fn what_is_printed_is_a_profile_that_hands_its_listener_over() {
    let asks_for = "pool=web/batch,name=backup,limit=10MB/s";
    let output = profile(&[LISTENER, asks_for]);
    assert!(output.status.success());
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&printed["listenerPath"], &printed["listenerMetadata"]), (&LISTENER.into(), &asks_for.into()));
    let is_notified =
        |name: &str| {
            printed["syscalls"].as_array().unwrap().iter().any(|rule| {
                rule["action"] == "SCMP_ACT_NOTIFY" && rule["names"].as_array().unwrap().contains(&name.into())
            })
        };
    assert_eq!(["fsync", "renameat2", "write"].map(is_notified), [true, true, false]);
    let nothing: Value = serde_json::from_slice(&profile(&[LISTENER]).stdout).unwrap();
    assert_eq!(nothing["listenerMetadata"], "");
}

fn actions(profile: &Value, name: &str) -> Vec<String> {
    let rules = profile["syscalls"].as_array().unwrap().iter();
    let of_call = rules.filter(|rule| rule["names"].as_array().unwrap().contains(&name.into()));
    of_call.map(|rule| rule["action"].as_str().unwrap().to_owned()).collect()
}

/// What a runtime would use, by and large.
fn own_profile() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "syscalls": [{ "names": ["read", "write", "openat", "fsync", "io_uring_setup"], "action": "SCMP_ACT_ALLOW" }],
    })
}

/// Runs the example of --help as it stands there.
///
/// Seen red: the line of jq that stood in --help before; an example that is too wide and breaks in two lines.
/// Promise: gates-profile.
#[test]
fn the_example_of_help_puts_the_gates_into_a_bundle_and_keeps_its_profile() {
    let help = String::from_utf8(profile(&["--help"]).stdout).unwrap();
    let example: Vec<_> = help.lines().filter_map(|line| line.trim().strip_prefix("$ ")).collect();
    assert_eq!(example.len(), 3, "{help}");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let bundle = |seccomp: Option<Value>| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = json!({ "ociVersion": "1.0.2", "process": { "args": ["sh"] }, "linux": { "namespaces": [] } });
        seccomp.into_iter().for_each(|seccomp| config["linux"]["seccomp"] = seccomp);
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &example.join("\n")]).current_dir(folder.path()).env("PATH", &path);
        let output = shell.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let written: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("config.json")).unwrap()).unwrap();
        assert_eq!((&written["process"], &written["linux"]["namespaces"]), (&config["process"], &json!([])));
        written["linux"]["seccomp"].clone()
    };
    let merged = bundle(Some(own_profile()));
    assert_eq!((&merged["defaultAction"], &merged["defaultErrnoRet"]), (&"SCMP_ACT_ERRNO".into(), &1.into()));
    assert_eq!(merged["listenerMetadata"], "pool=web/batch,limit=10MB/s");
    assert_eq!(actions(&merged, "fsync"), ["SCMP_ACT_NOTIFY"]);
    assert_eq!(actions(&merged, "io_uring_setup"), ["SCMP_ACT_ERRNO"]);
    let openat = [vec!["SCMP_ACT_NOTIFY"; 3], vec!["SCMP_ACT_ALLOW"]].concat();
    assert_eq!(
        (actions(&merged, "openat"), actions(&merged, "mkdirat").len()),
        (openat.iter().map(|&it| it.to_owned()).collect(), 0)
    );
    assert_eq!(bundle(None)["defaultAction"], "SCMP_ACT_ALLOW");
}

/// Promise: gates-profile.
#[test]
fn a_profile_is_merged_from_a_file_or_stdin_and_what_is_not_held_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut own) = (folder.path().join("default.json"), own_profile());
    own["syscalls"].as_array_mut().unwrap().push(json!({ "names": ["mkdir"], "action": "SCMP_ACT_LOG" }));
    std::fs::write(&path, own.to_string()).unwrap();
    let output = profile(&[LISTENER, "--merge", path.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && said.starts_with("not held: mkdir: the profile logs") && said.lines().count() == 1,
        "{said}"
    );
    let merged: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (actions(&merged, "mkdir"), actions(&merged, "fsync")),
        (vec!["SCMP_ACT_LOG".to_owned()], vec!["SCMP_ACT_NOTIFY".to_owned()])
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let child =
        child.args(["container-profile", LISTENER, "--merge", "-"]).stdin(File::open(&path).unwrap()).output().unwrap();
    assert_eq!(child.stdout, output.stdout);
    for (content, why) in
        [("{", "EOF"), ("{}", "the seccomp profile has no defaultAction"), (r#"{"linux":7}"#, "linux is no object")]
    {
        std::fs::write(&path, content).unwrap();
        let output = profile(&[LISTENER, "--merge", path.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.is_empty(), said.lines().count()),
            (Some(2), true, 1),
            "{said}"
        );
        assert!(said.starts_with(&format!("{}: ", path.display())) && said.contains(why), "{said}");
    }
}

#[test]
fn what_the_daemon_would_refuse_is_refused_here() {
    let cases = [
        (["listeners.sock", ""], "allowed is an absolute path"),
        ([LISTENER, "weight=0"], "listenerMetadata has weight=\"0\", allowed is 1 to 10000"),
        ([LISTENER, "bit=3"], "listenerMetadata has the key \"bit\", allowed are pool, name, reserve"),
        ([LISTENER, "backup"], "listenerMetadata has \"backup\", allowed is KEY=VALUE"),
    ];
    for (arguments, why) in cases {
        let output = profile(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{said}");
        assert!(said.lines().next().unwrap().contains(why), "{said}");
    }
}
