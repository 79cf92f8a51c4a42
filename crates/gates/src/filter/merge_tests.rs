//! Merged profiles against the obvious: what they say of any call.

use super::table::{Condition, GATED};
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const LISTENER: &str = "/run/gates.sock";
const ALLOW: &str = "SCMP_ACT_ALLOW";
const NOTIFY: &str = "SCMP_ACT_NOTIFY";
const ERRNO: &str = "SCMP_ACT_ERRNO";

fn merged(profile: &Value) -> Result<Merged, String> {
    let merged = Filter::default().merged_profile(profile.clone(), Path::new(LISTENER), "pool=a");
    merged.map_err(|error| error.to_string())
}

/// The runtime specification: all comparisons of a rule must hold.
fn holds(comparison: &Value, arguments: [u64; 6]) -> bool {
    let number = |key: &str| comparison[key].as_u64().unwrap_or(0);
    let (got, value, value_two) = (arguments[number("index") as usize], number("value"), number("valueTwo"));
    match comparison["op"].as_str().unwrap() {
        "SCMP_CMP_EQ" => got == value,
        "SCMP_CMP_NE" => got != value,
        "SCMP_CMP_GT" => got > value,
        "SCMP_CMP_LE" => got <= value,
        "SCMP_CMP_MASKED_EQ" => got & value == value_two,
        operator => panic!("{operator}"),
    }
}

/// Everything that a profile says of a call; the default only if no rule says anything.
fn said<'a>(profile: &'a Value, name: &str, arguments: [u64; 6]) -> BTreeSet<&'a str> {
    let rules = profile["syscalls"].as_array().into_iter().flatten();
    let matching = rules.filter(|rule| {
        let compared = rule["args"].as_array();
        rule["names"].as_array().unwrap().contains(&name.into())
            && compared.into_iter().flatten().all(|comparison| holds(comparison, arguments))
    });
    let said: BTreeSet<_> = matching.map(|rule| rule["action"].as_str().unwrap()).collect();
    if said.is_empty() { BTreeSet::from([profile["defaultAction"].as_str().unwrap()]) } else { said }
}

fn is_wanted(name: &str, arguments: [u64; 6]) -> bool {
    let call = Filter::default().calls().find(|call| call.name == name);
    call.is_some_and(|call| match call.condition {
        Condition::Always => true,
        Condition::Flags { argument, mask } => arguments[argument] as u32 & mask != 0,
    })
}

const NAMES: [&str; 9] =
    ["openat", "open", "fsync", "mkdirat", "msync", "ftruncate", "getpid", "io_uring_setup", "personality"];

fn rules() -> impl Strategy<Value = Value> {
    let comparison = (0..4u64, 0..4u64, prop::sample::select(vec!["SCMP_CMP_EQ", "SCMP_CMP_NE", "SCMP_CMP_GT"]))
        .prop_map(|(index, value, op)| json!({ "index": index, "value": value, "op": op }));
    let arguments = prop_oneof![
        3 => Just(Vec::new()),
        2 => prop::collection::vec(comparison, 1..=2).prop_filter("one for each argument", |compared| {
            compared.len() < 2 || compared[0]["index"] != compared[1]["index"]
        }),
    ];
    let names = prop::sample::subsequence(&NAMES, 1..5);
    let action = prop::sample::select(vec![ALLOW, ALLOW, ALLOW, ERRNO, "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_LOG"]);
    (names, action, arguments)
        .prop_map(|(names, action, args)| json!({ "names": names, "action": action, "args": args }))
}

fn profiles() -> impl Strategy<Value = Value> {
    let default = prop::sample::select(vec![ALLOW, ERRNO, ERRNO, "SCMP_ACT_LOG"]);
    (default, prop::collection::vec(rules(), 0..6)).prop_map(
        |(default, rules)| json!({ "defaultAction": default, "syscalls": rules, "architectures": ["SCMP_ARCH_X86_64"] }),
    )
}

fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4u64,
        prop::sample::select(vec![libc::O_CREAT as u64, libc::O_TRUNC as u64 | 1, libc::MS_SYNC as u64])
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Broken on purpose and seen red: a gated call is allowed without its conditions; the rest is not allowed; a
    /// refused call is notified; what the profile logs is notified.
    /// Promise: gates-profile.
    #[test]
    fn what_was_refused_is_refused_and_what_was_allowed_is_notified_or_allowed(
        profile in profiles(),
        name in prop::sample::select(&NAMES),
        arguments in prop::array::uniform6(argument()),
    ) {
        let merged = merged(&profile).unwrap();
        let (before, after) = (said(&profile, name, arguments), said(&merged.profile, name, arguments));
        let is_named = merged.not_notified.contains(&name);
        if before != BTreeSet::from([ALLOW]) || is_named {
            // Also where the profile contradicts itself.
            prop_assert_eq!(after, before);
        } else if name.starts_with("io_uring") {
            prop_assert_eq!(after, BTreeSet::from([ERRNO]));
        } else if is_wanted(name, arguments) {
            prop_assert!(after.contains(NOTIFY), "{after:?}");
        } else {
            let expected = [ALLOW, NOTIFY];
            prop_assert!(after.iter().all(|action| expected.contains(action)), "{after:?}");
        }
    }

    /// libseccomp keeps no two actions for the same arguments.
    /// Promise: gates-profile.
    #[test]
    fn where_the_profile_does_not_contradict_itself_neither_does_the_merged_one(
        allowed in prop::sample::subsequence(&NAMES, 0..9),
        default in prop::sample::select(vec![ALLOW, ERRNO]),
        arguments in prop::array::uniform6(argument()),
    ) {
        let profile = json!({ "defaultAction": default, "syscalls": [{ "names": allowed, "action": ALLOW }] });
        let merged = merged(&profile).unwrap();
        prop_assert!(merged.not_notified.is_empty());
        for name in NAMES {
            let expected = match (default == ALLOW || allowed.contains(&name), is_wanted(name, arguments)) {
                (true, _) if name.starts_with("io_uring") => ERRNO,
                (true, true) => NOTIFY,
                (true, false) => ALLOW,
                (false, _) => ERRNO,
            };
            prop_assert_eq!(said(&merged.profile, name, arguments), BTreeSet::from([expected]));
        }
    }
}

#[test]
fn everything_else_of_the_profile_stays() {
    let personality =
        json!({ "names": ["personality"], "action": ALLOW, "args": [{ "index": 0, "value": 8, "op": "SCMP_CMP_EQ" }] });
    let administrators = json!({ "names": ["mount", "fsync"], "action": ALLOW, "includes": { "caps": ["CAP_SYS_ADMIN"] }, "comment": "x" });
    let profile = json!({
        "defaultAction": ERRNO, "defaultErrnoRet": 1, "archMap": [{ "architecture": "SCMP_ARCH_X86_64" }], "flags": ["SECCOMP_FILTER_FLAG_LOG"],
        "syscalls": [{ "names": ["read", "write", "rename"], "action": ALLOW, "includes": {}, "args": null }, personality, administrators,
                     { "name": "getpid", "action": ALLOW }],
    });
    let Merged { profile: merged, not_notified } = merged(&profile).unwrap();
    assert!(not_notified.is_empty());
    for key in ["defaultAction", "defaultErrnoRet", "archMap", "flags"] {
        assert_eq!(merged[key], profile[key], "{key}");
    }
    assert_eq!((&merged["listenerPath"], &merged["listenerMetadata"]), (&LISTENER.into(), &"pool=a".into()));
    let rules = merged["syscalls"].as_array().unwrap();
    let of = |name: &str| {
        rules.iter().filter(|rule| rule["names"].as_array().unwrap().contains(&name.into())).collect::<Vec<_>>()
    };
    assert_eq!(of("personality"), [&personality]);
    // `write` itself is never notified: runc refuses that.
    assert_eq!([of("read")[0]["action"].as_str(), of("write")[0]["action"].as_str()], [Some(ALLOW); 2]);
    assert_eq!(of("getpid")[0]["action"], ALLOW);
    assert_eq!((of("mount")[0]["comment"].as_str(), of("mount").len()), (Some("x"), 1));
    assert_eq!((of("rename").len(), &of("rename")[0]["action"]), (1, &NOTIFY.into()));
    let expected = json!({ "names": ["fsync"], "action": NOTIFY, "includes": { "caps": ["CAP_SYS_ADMIN"] } });
    assert_eq!(of("fsync"), [&expected]);
    // Not allowed before.
    assert!(of("openat").is_empty() && of("io_uring_setup").is_empty());
}

#[test]
fn a_profile_without_rules_becomes_what_is_printed_without_one() {
    let merged = merged(&json!({ "defaultAction": ALLOW, "architectures": ["SCMP_ARCH_X86_64"] })).unwrap().profile;
    let alone = Filter::default().oci_profile(Path::new(LISTENER), "pool=a");
    let rules = |profile: &Value| -> BTreeSet<String> {
        let rules = profile["syscalls"].as_array().unwrap().iter();
        let names = |rule: &Value| rule["names"].as_array().unwrap().clone();
        rules
            .flat_map(|rule| {
                names(rule).into_iter().map(move |name| format!("{name} {} {}", rule["action"], rule["args"]))
            })
            .collect()
    };
    assert_eq!(rules(&merged), rules(&alone));
    assert!(GATED.len() > 20 && rules(&merged).len() > 20);
}

#[test]
fn what_is_no_profile_or_has_a_listener_is_refused() {
    let cases = [
        (json!([]), "is no object"),
        (json!({}), "has no defaultAction"),
        (json!({ "defaultAction": ALLOW, "syscalls": {} }), "has a syscalls key that is no list"),
        (json!({ "defaultAction": ALLOW, "syscalls": [1] }), "has a syscall rule that is no object"),
        (
            json!({ "defaultAction": ALLOW, "syscalls": [{ "names": [7], "action": ALLOW }] }),
            "has a syscall rule without names",
        ),
        (
            json!({ "defaultAction": ALLOW, "syscalls": [{ "names": ["read"] }] }),
            "has a syscall rule without names and action",
        ),
        (json!({ "defaultAction": ALLOW, "listenerPath": "/x" }), "a container has one listener"),
        (json!({ "defaultAction": NOTIFY }), "a container has one listener"),
        (
            json!({ "defaultAction": ALLOW, "syscalls": [{ "names": ["mount"], "action": NOTIFY }] }),
            "a container has one listener",
        ),
    ];
    for (profile, why) in cases {
        let refusal = merged(&profile).unwrap_err();
        assert!(refusal.starts_with("the seccomp profile ") && refusal.contains(why), "{refusal}");
    }
}
