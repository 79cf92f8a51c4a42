//! What clients make the daemon's log say: nothing of health checks, and little however often they do something wrong.

use crate::support::Site;
use plimsoll_serve::nbd::Address;
use std::io::{Read, Write};

const BOTH: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock", "127.0.0.1:0"]
[iscsi]
listen = ["tcp:127.0.0.1:0"]
[device.disk0]
worst_case = "1000 runs/s"
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
size = "8MiB"
memory = true
nbd = {}
[volume.target]
pool = "web"
size = "8MiB"
memory = true
iscsi = {}
"#;

/// Lines of one kind that a minute may show; the tests take less than one, but may see the end of one and the start of
/// another.
const LINES_MAX: usize = 2 * 10;

/// Where the daemon listens, the control socket too.
fn addresses(served: &[String]) -> Vec<Address> {
    let on = served.iter().filter_map(|line| line.split_once(" on ")).map(|(_, address)| address);
    on.filter_map(|address| address.parse().ok()).collect()
}

/// Whether it has ended is seen by its end of the connection.
fn wait_for_the_end(socket: std::os::fd::OwnedFd) {
    let mut socket = std::fs::File::from(socket);
    let _ = socket.read_to_end(&mut Vec::new());
}

/// Planted breaks that were seen red: a client that said nothing is a warning, at NBD and at iSCSI.
/// Promise: daemon-peer-log.
#[test]
fn a_health_check_that_connects_and_closes_is_not_in_the_log() {
    let site = Site::of_normal_user(BOTH);
    let daemon = site.up();
    let addresses = addresses(&daemon.served);
    assert_eq!(addresses.len(), 4, "NBD twice, iSCSI, control: {:?}", daemon.served);
    for address in &addresses {
        for _ in 0..50 {
            drop(address.connect().unwrap());
        }
        // A client that shuts down its sending side hears the daemon's end.
        let last = address.connect().unwrap();
        rustix::net::shutdown(&last, rustix::net::Shutdown::Write).unwrap();
        wait_for_the_end(last);
    }
    let log = daemon.stop();
    assert!(!log.contains("WARN"), "{log}");
}

/// Planted break that was seen red: each is a line.
/// Promise: daemon-peer-log.
#[test]
fn a_peer_of_another_protocol_is_in_the_log_some_times() {
    let site = Site::of_normal_user(BOTH);
    let daemon = site.up();
    for address in addresses(&daemon.served) {
        for _ in 0..40 {
            let mut socket = std::fs::File::from(address.connect().unwrap());
            // The daemon may close before it has taken all of it.
            let _ = socket.write_all(b"GET / HTTP/1.1\r\nHost: plimsoll.example.org\r\nAccept: */*\r\n\r\n");
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Write);
            wait_for_the_end(socket.into());
        }
    }
    let log = daemon.stop();
    let warnings = log.lines().filter(|line| line.contains("WARN")).count();
    assert!((1..=3 * LINES_MAX).contains(&warnings), "{warnings} of 160: {log}");
}
