//! A compressed volume in memory, with service threads, end to end.

use crate::support::Site;
use crate::tenants::wait_until;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};

fn configuration(policy: &str) -> String {
    format!(
        r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[executor]
threads = 2
policy = "{policy}"
[device.disk0]
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
size = "64MiB"
memory = true
compression = "zstd"
nbd = {{}}
"#
    )
}

#[test]
fn what_is_written_is_read_takes_less_and_a_page_of_zeroes_nothing() {
    for policy in ["baseline", "sord", "qats", "combo", "adaptive"] {
        let site = Site::new(&configuration(policy));
        let daemon = site.up();
        assert!(daemon.served.contains(&format!("executor: 2 service threads, {policy}")), "{:?}", daemon.served);
        let options = ClientOptions { export_name: "db".into(), ..ClientOptions::default() };
        let mut client = Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).unwrap();
        assert_eq!(client.export().minimum_block_bytes, 4096);
        let line = b"what is written to a disk is often written again\n";
        let data: Vec<u8> = line.iter().copied().cycle().take(8 << 20).collect();
        client.write(4096, &data, true).unwrap();
        let mut read = vec![0; data.len()];
        client.read(4096, &mut read).unwrap();
        assert!(read == data);
        let compressed = || {
            let status = site.json(&["status"]);
            status["devices"][0]["volumes"][0]["backlog_bytes"] == 0 && status["executor"]["under_way"] == 0
        };
        wait_until("everything is compressed", compressed);
        let stored = || site.json(&["status"])["devices"][0]["volumes"][0]["stored_bytes"].as_u64().unwrap();
        assert!((1..1 << 20).contains(&stored()), "{}", stored());
        let volumes = site.json(&["volume", "list"]);
        assert_eq!(volumes[0]["content"], "memory, compressed");
        client.write(4096, &vec![0; data.len()], true).unwrap();
        assert_eq!(stored(), 0);
        // A client may have its answer before the thread that served the request has put it aside.
        wait_until("the end of all requests", || site.json(&["status"])["executor"]["under_way"] == 0);
        let executor = &site.json(&["status"])["executor"];
        let done: u64 =
            executor["threads"].as_array().unwrap().iter().map(|thread| thread["done"].as_u64().unwrap()).sum();
        // Twice written, once read, in pieces of 256 KiB at the most.
        assert!(done >= 96 && executor["policy"] == policy && executor["under_way"] == 0, "{executor}");
        let text = String::from_utf8(site.ask(&["status"]).stdout).unwrap();
        assert!(text.contains(&format!("executor: {policy}, 2 service threads, {done} requests done")), "{text}");
        client.disconnect().unwrap();
        daemon.stop();
    }
}
