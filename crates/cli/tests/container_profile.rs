//! `plimsoll container-profile` prints what a runtime takes, and refuses what the daemon would.

use serde_json::Value;
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
