//! A volume that is read ahead, end to end.

use crate::support::Site;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};

const CONFIGURATION: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[device.disk0]
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
size = "16MiB"
file = "disk"
read_ahead = "512KiB"
nbd = {}
[volume.plain]
pool = "web"
size = "16MiB"
memory = true
nbd = {}
"#;

#[test]
fn a_sequential_reader_gets_what_was_read_ahead_and_status_says_so() {
    let site = Site::new(CONFIGURATION);
    let content: Vec<u8> = (0..4u32 << 20).flat_map(u32::to_le_bytes).collect();
    std::fs::write(site.path("disk"), &content).unwrap();
    let daemon = site.up();
    let options = ClientOptions { export_name: "db".into(), ..ClientOptions::default() };
    let mut client = Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).unwrap();
    let mut read = vec![0; content.len()];
    for (number, bytes) in read.chunks_mut(4096).enumerate() {
        client.read(number as u64 * 4096, bytes).unwrap();
    }
    assert!(read == content);
    let status = site.json(&["status"]);
    let volumes = &status["devices"][0]["volumes"];
    let ahead = &volumes[0]["read_ahead"];
    let used = ahead["used_bytes"].as_u64().unwrap();
    assert_eq!(used, content.len() as u64 - 2 * 4096, "all but the two reads that made the stream: {ahead}");
    assert_eq!((&ahead["bytes_max"], &ahead["memory_bytes"]), (&(512 << 10).into(), &(1 << 20).into()));
    assert!(volumes[1]["read_ahead"].is_null());
    let text = String::from_utf8(site.ask(&["status"]).stdout).unwrap();
    assert!(text.contains("volume db: 16 MiB read ahead, 16 MiB of that used, 0 B dropped unread"), "{text}");
    client.disconnect().unwrap();
    daemon.stop();
}
