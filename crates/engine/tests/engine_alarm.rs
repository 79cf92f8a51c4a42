//! What is said when a device does less than was promised on it.

use plimsoll_core::{Allocation, DeviceProfile, Rate, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use plimsoll_engine::EngineConfig;
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{Served, memory};

const VOLUME_BYTES: u64 = 64 << 20;
const DEPTH: u32 = 32;
/// Promised on a disk that does some 400 a second within so few bytes.
const PROMISED_RUNS_PER_SECOND: f64 = 1500.0;

/// A device that has become slower than its profile says.
struct Worn {
    device: Box<dyn DeviceModel + Send>,
    profile: DeviceProfile,
}

impl DeviceModel for Worn {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }
    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.device.submit(now, request);
    }
    fn next_completion(&self) -> Option<Time> {
        self.device.next_completion()
    }
    fn complete(&mut self, now: Time) -> Option<Finished> {
        self.device.complete(now)
    }
    fn outstanding(&self) -> usize {
        self.device.outstanding()
    }
}

fn read(client: &mut Client, tag: u32, number: u64) {
    let offset = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % VOLUME_BYTES / 4096 * 4096;
    client.submit(tag, Command::Read, CommandFlags::NONE, offset, 4096).unwrap();
    client.send_submitted().unwrap();
}

/// Promise: accounts-alarm.
#[test]
fn promises_that_are_not_kept_are_told_as_long_as_they_are_not() {
    let device = plimsoll_devices::build("hdd.wd-aakx", 1).unwrap();
    let profile = DeviceProfile { worst_case_runs_per_second: PROMISED_RUNS_PER_SECOND, ..device.profile().clone() };
    let config = EngineConfig::emulated(Box::new(Worn { device, profile }), "zygaria");
    let served = Served::new(config, vec![memory("data", VOLUME_BYTES, 0)]);
    let reserve = Rate::RunsPerSecond(PROMISED_RUNS_PER_SECOND);
    served.engine.change_account("pool", Allocation { reserve, ..Allocation::default() }).unwrap();
    let quiet = served.engine.status().unwrap();
    assert_eq!((quiet.reserves_kept, quiet.overload_ns), (1.0, 0));

    let mut client = served.connect("data", DEPTH, true);
    (0..DEPTH).for_each(|tag| read(&mut client, tag, u64::from(tag)));
    let raised = (u64::from(DEPTH)..).find_map(|number| {
        let tag = client.receive(|_, _, _| {}).unwrap().tag;
        read(&mut client, tag, number);
        assert!(number < 20 * PROMISED_RUNS_PER_SECOND as u64, "never raised: {:?}", served.engine.status());
        Some(served.engine.status().unwrap()).filter(|status| status.reserves_kept < 0.7)
    });
    let raised = raised.unwrap();
    assert!(raised.overload_ns > 0);
    for _ in 0..DEPTH {
        client.receive(|_, _, _| {}).unwrap();
    }

    let ended = served.wait_until("the end of the alarm", |status| status.reserves_kept == 1.0);
    assert!(ended.overload_ns >= raised.overload_ns, "what was missed stays known");
    drop(client);
    served.wait_until_all_have_gone();
}
