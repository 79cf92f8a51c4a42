//! What a device holds, and whether it should be given more.
//!
//! A request at the device is out of its scheduler's hands, so few should be there; but a drive with one request cannot
//! order anything. Zygaria's answer is a number (ten). Two more bounds hold while several sessions are active:
//!
//! - **in runs**: ten requests of 4 KiB are a tenth of a second on a disk, ten of 256 KiB most of one;
//! - **overtaking**: a drive serves what is near. If it let others overtake one request too often, it gets nothing more
//!   until that one is done.

use plimsoll_core::{BlockRequest, Completion, DeviceProfile, RequestId};

/// Runs, per outstanding one, that may overtake a request at the device. A drive serves what is near: a stream of large
/// requests kept the drive of our model from one small one for half a second, again and again. Measured there with 1, 2,
/// 5 and 10 runs instead of these 20: small requests are served no sooner, and random throughput falls by up to 16 %.
const OVERTAKEN_MAX_PER_OUTSTANDING: u64 = 2;

/// The requests at the device. Each step is O(1); on a device with a head, O(requests there), which are few.
pub struct DeviceWindow {
    requests: u32,
    runs: u64,
    requests_max: u32,
    /// In order of dispatch: each request, and how many runs were served that had been dispatched later. Only kept for
    /// devices with a head.
    overtaken: Option<Vec<(RequestId, u64)>>,
}

impl DeviceWindow {
    /// Of a device that holds nothing yet.
    pub fn new(device: &DeviceProfile) -> DeviceWindow {
        let requests_max = device.outstanding_max.max(1);
        DeviceWindow { requests: 0, runs: 0, requests_max, overtaken: device.is_rotational.then(Vec::new) }
    }

    /// Whether the device holds as many requests as it should, whoever they are of.
    pub fn is_full(&self) -> bool {
        self.requests >= self.requests_max
    }

    /// Whether one more request would hold others up.
    pub fn is_crowded(&self) -> bool {
        let runs_max = u64::from(self.requests_max);
        let overtaken_max = OVERTAKEN_MAX_PER_OUTSTANDING * runs_max;
        self.runs >= runs_max || self.overtaken.iter().flatten().any(|&(_, runs)| runs >= overtaken_max)
    }

    /// A request goes to the device.
    pub fn dispatched(&mut self, request: &BlockRequest) {
        self.requests += 1;
        self.runs += request.runs();
        if let Some(overtaken) = &mut self.overtaken {
            overtaken.push((request.id, 0));
        }
    }

    /// The device is done with a request: it overtook everything that was dispatched before it and is still there.
    pub fn completed(&mut self, completion: &Completion) {
        self.requests -= 1;
        self.runs -= completion.runs;
        let Some(overtaken) = &mut self.overtaken else { return };
        let Some(place) = overtaken.iter().position(|&(id, _)| id == completion.id) else { return };
        overtaken.remove(place);
        overtaken[..place].iter_mut().for_each(|(_, runs)| *runs += completion.runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{AccountId, Operation, Span, Time};

    fn window(outstanding_max: u32, is_rotational: bool) -> DeviceWindow {
        DeviceWindow::new(&DeviceProfile {
            name: "device".into(),
            capacity_bytes: 1 << 40,
            worst_case_runs_per_second: 100.0,
            sequential_bytes_per_second: 1e8,
            is_rotational,
            outstanding_max,
        })
    }

    fn request(id: u64, length: u32) -> BlockRequest {
        BlockRequest::new(RequestId(id), AccountId(1), Operation::Read, id << 20, length, Time::ZERO)
    }

    fn complete(window: &mut DeviceWindow, request: &BlockRequest) {
        let (id, session, runs) = (request.id, request.session, request.runs());
        window.completed(&Completion { id, session, runs, service: Span::ZERO, succeeded: true });
    }

    #[test]
    fn large_requests_crowd_a_device_before_it_is_full() {
        let mut window = window(10, true);
        window.dispatched(&request(1, 256 << 10));
        assert!(!window.is_crowded());
        window.dispatched(&request(2, 256 << 10));
        assert!(window.is_crowded() && !window.is_full());
        complete(&mut window, &request(2, 256 << 10));
        assert!(!window.is_crowded());
    }

    #[test]
    fn a_request_that_is_overtaken_too_often_is_left_alone_with_the_device() {
        for is_rotational in [true, false] {
            let mut window = window(4, is_rotational);
            window.dispatched(&request(0, 4096));
            for id in 1..=8 {
                assert!(!window.is_crowded(), "after {id}");
                window.dispatched(&request(id, 4096));
                complete(&mut window, &request(id, 4096));
            }
            assert_eq!(window.is_crowded(), is_rotational);
            complete(&mut window, &request(0, 4096));
            assert!(!window.is_crowded());
        }
    }
}
