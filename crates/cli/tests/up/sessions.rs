//! Sessions that applications open over the control socket, for their NBD connections.
//!
//! Planted breaks that were seen red: sessions count where a client names no export; what is closed stays exported; connections
//! open in the volume's account.

use crate::support::{Site, text};
use crate::tenants::wait_until;
use plimsoll_brick::nbd::Address;
use plimsoll_brick::nbd::client::{Client, ClientOptions};

const ONE_VOLUME: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[device.disk0]
worst_case = "1000 runs/s"
[pool.web]
device = "disk0"
reserve = "30%"
[volume.db]
pool = "web"
size = "8MiB"
memory = true
reserve = "20%"
nbd = {}
"#;

fn connect(site: &Site, export: &str) -> Option<Client> {
    let options = ClientOptions { export_name: export.into(), ..ClientOptions::default() };
    Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).ok()
}

fn asked(site: &Site, arguments: &[&str]) -> (String, Option<i32>) {
    let output = site.ask(arguments);
    (text(&output.stdout).trim().to_owned() + text(&output.stderr).trim(), output.status.code())
}

/// Path and reserve of each account below the volume's.
fn sessions(site: &Site) -> Vec<(String, String)> {
    let status = site.json(&["status"]);
    let accounts = status["devices"][0]["accounts"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of = accounts.map(|account| (text(&account["path"]), text(&account["allocation"]["reserve"])));
    of.filter(|(path, _)| path.starts_with("web/db/")).collect()
}

#[test]
fn an_application_opens_a_session_connects_to_it_and_closes_it() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    let opened = site.json(&["session", "open", "db", "loader", "--reserve", "150 runs/s", "--weight", "7"]);
    assert_eq!((&opened["path"], &opened["export"]), (&"web/db/loader#1".into(), &"db/loader#1".into()));
    assert_eq!(
        asked(&site, &["session", "open", "db", "second", "--reserve", "100 runs/s"]),
        (
            "web/db/second#2: a reserve of 100 runs/s does not fit: web/db has 200 runs/s, 150 are promised to others, \
             50 too many"
                .into(),
            Some(1)
        )
    );

    let mut client = connect(&site, "db/loader#1").expect("whoever knows the name may connect");
    client.write(4096, &[7; 4096], false).unwrap();
    let mut other = connect(&site, "").expect("who names none gets the volume");
    let mut read = [0; 4096];
    other.read(4096, &mut read).unwrap();
    assert_eq!(read, [7; 4096], "a session is a way to the volume");
    let named = |path: &str, reserve: &str| (path.to_owned(), reserve.to_owned());
    let reserve = "150 runs/s";
    let expected = [
        named("web/db/loader#1", reserve),
        named("web/db/loader#1/nbd#1", "0 runs/s"),
        named("web/db/nbd#2", "0 runs/s"),
    ];
    assert_eq!(sessions(&site), expected);

    let busy = "web/db/loader#1: clients are connected to it: try again when they have gone";
    assert_eq!(asked(&site, &["session", "close", "web/db/loader#1"]), (busy.into(), Some(1)));
    let of_session = "web/db/loader#1 is a session's: plimsoll session close";
    assert_eq!(asked(&site, &["pool", "remove", "web/db/loader#1"]), (of_session.into(), Some(1)));
    client.disconnect().unwrap();
    other.disconnect().unwrap();
    wait_until("the end of the connections", || sessions(&site).len() == 1);
    let closed = ("session web/db/loader#1 closed".into(), Some(0));
    assert_eq!(asked(&site, &["session", "close", "web/db/loader#1"]), closed);
    assert!(connect(&site, "db/loader#1").is_none() && sessions(&site).is_empty());
    assert_eq!(asked(&site, &["session", "open", "db", "second", "--reserve", "100 runs/s"]).0, "db/second#3");
    daemon.stop();
}

#[test]
fn what_cannot_have_a_session_is_told() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    for (arguments, expected, code) in [
        (&["open", "nothing", "a"][..], "there is no volume \"nothing\"; plimsoll volume list shows what there is", 2),
        (&["close", "web/db"], "there is no session \"web/db\" that session_open has opened", 2),
    ] {
        let arguments: Vec<&str> = ["session"].into_iter().chain(arguments.iter().copied()).collect();
        assert_eq!(asked(&site, &arguments), (expected.into(), Some(code)));
    }
    let (message, code) = asked(&site, &["session", "open", "db", "a/b"]);
    assert!(message.starts_with("got the name \"a/b\", allowed ") && code == Some(1), "{message}");
    daemon.stop();
}
