use super::*;
use crate::metrics::devices::DAEMON;
use crate::metrics::volumes::SERVED_VOLUME;
use proptest::prelude::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Planted break that was seen red: requests without parameters take any key.
#[test]
fn requests_are_read_as_they_are_documented() {
    let parse = |text: &str| parse_request(text.as_bytes());
    assert_eq!(parse(r#"{"command":"status"}"#), Ok(Request::Status {}));
    let set = parse(r#"{"command":"pool_set","pool":"web","change":{"limit":"none","priority":"idle"}}"#).unwrap();
    let change = Change { limit: Some(Limit(None)), priority: Some(Priority::Idle), ..Change::default() };
    assert_eq!(set, Request::PoolSet { pool: "web".into(), change });
    let record = parse(r#"{"command":"record","device":"disk0"}"#);
    assert_eq!(record, Ok(Request::Record { device: Some("disk0".into()) }));
    let add = parse(r#"{"command":"pool_add","pool":"web/new"}"#).unwrap();
    assert_eq!(add, Request::PoolAdd { pool: "web/new".into(), device: None, change: Change::default() });
    let open = parse(r#"{"command":"session_open","volume":"db","name":"loader"}"#).unwrap();
    let (volume, name) = ("db".to_owned(), "loader".to_owned());
    assert_eq!(open, Request::SessionOpen { volume, name, change: Change::default(), tied: false });
    for bad in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"command":"dance"}"#,
        r#"{"command":"pool_set","pool":"web"}"#,
        r#"{"command":"pool_set","pool":"web","change":{"reserve":"fast"}}"#,
        r#"{"command":"pool_set","pool":"web","change":{"wieght":5}}"#,
        r#"{"command":"pool_remove","pool":"web","force":true}"#,
        r#"{"command":"shutdown","dry_run":true}"#,
        r#"{"command":"cache_list","volume":"db"}"#,
    ] {
        let Err(report) = parse(bad) else { panic!("{bad} was understood") };
        assert_eq!(report.kind, ErrorKind::BadRequest, "{bad}");
    }
}

#[test]
fn a_change_leaves_the_rest_as_it_was() {
    let before = Allocation { reserve: Rate::DevicePercent(30.0), weight: 7, ..Allocation::default() };
    let change = Change { limit: Some(Limit(Some(Rate::BytesPerSecond(1e6)))), ..Change::default() };
    let after = change.apply(before);
    assert_eq!(after, Allocation { limit: Some(Rate::BytesPerSecond(1e6)), ..before });
    let without = Change { limit: Some(Limit(None)), weight: Some(9), ..Change::default() }.apply(after);
    assert_eq!(without, Allocation { weight: 9, ..before });
}

/// Planted break: a limit is written as it is displayed, to three digits.
#[test]
fn what_is_promised_is_sent_to_the_last_digit() {
    let reserve = Some("0.004 runs/s".parse().unwrap());
    let (limit, read_deadline) = (Some("10.06 MB/s".parse().unwrap()), Some("1234 ms".parse().unwrap()));
    let change = Change { reserve, limit, read_deadline, ..Change::default() };
    let written = serde_json::to_string(&change).unwrap();
    assert_eq!(written, r#"{"reserve":"0.004 runs/s","limit":"10.06 MB/s","read_deadline":"1234 ms"}"#);
    assert_eq!(serde_json::from_str::<Change>(&written).unwrap(), change);
}

/// Planted break: the paths as they are, at which the daemon has no answer.
#[test]
fn paths_that_are_no_text_are_said_as_near_as_text_can() {
    let path = PathBuf::from(OsStr::from_bytes(b"/etc/\xff.toml"));
    let status = DaemonStatus {
        version: "1".to_owned(),
        process: 7,
        configuration: path.clone(),
        executor: None,
        devices: Vec::new(),
        volumes: Vec::new(),
        losses: Vec::new(),
    };
    let volume = VolumeEntry {
        name: "db".to_owned(),
        device: "disk0".to_owned(),
        path: "web/db".to_owned(),
        size_bytes: 1,
        start_bytes: 0,
        is_read_only: false,
        content: "memory".to_owned(),
        export: None,
        target: Some("iqn.2026-01.org.example:db".to_owned()),
        block_device: Some(path.clone()),
        mount_point: Some(path),
        served_as: vec![ServedAs { kind: "mount".into(), name: "/mnt".into(), address: "/dev/loop0".into() }],
        front_ends: 0,
    };
    let near = PathBuf::from("/etc/\u{fffd}.toml");
    let read = |said: &Response| serde_json::from_str::<Response>(&serde_json::to_string(said).unwrap()).unwrap();
    let seen = DaemonStatus { configuration: near.clone(), ..status.clone() };
    let [seen, said] = [seen, status].map(|status| Response::Status(DAEMON.object(&status)));
    assert_eq!((&seen, &seen), (&said, &read(&said)));
    let seen = VolumeEntry { block_device: Some(near.clone()), mount_point: Some(near), ..volume.clone() };
    let unmounted = VolumeEntry { block_device: None, mount_point: None, ..volume.clone() };
    let [seen, said, unmounted] =
        [seen, volume, unmounted].map(|volume| Response::Volumes(SERVED_VOLUME.list([volume])));
    assert_eq!((&seen, &seen, &unmounted), (&said, &read(&said), &read(&unmounted)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_for_fuzzing(&line);
    }

    #[test]
    fn no_rate_is_misread(pool in "[a-z/]{0,9}", runs in 0.0f64..1e9, weight in any::<u32>()) {
        let change = Change { reserve: Some(Rate::RunsPerSecond(runs)), weight: Some(weight), ..Change::default() };
        parse_for_fuzzing(&serde_json::to_vec(&Request::PoolSet { pool, change }).unwrap());
    }
}
