//! What a device holds, and whether it should be given more.
//!
//! A request at the device is out of its scheduler's hands, so few should be there; but a drive with one request cannot
//! order anything. Zygaria's answer is a number (ten). Two more bounds hold while several sessions are active:
//!
//! - **in runs**: ten requests of 4 KiB are a tenth of a second on a disk, ten of 256 KiB most of one;
//! - **overtaking**: a drive serves what is near. If it let others overtake one request too often, it gets nothing more
//!   until that one is done.
//!
//! A request is *due* if its account would otherwise fall below its reserve. Such a request does not wait for the bound
//! in runs, and less may overtake it. But only requests that are not due themselves are held back for it. So a device
//! with all reserves in use keeps its full queue.

use plimsoll_core::{BlockRequest, Completion, DeviceProfile, RequestId};

/// Runs, per outstanding one, that may overtake a request at the device.
///
/// From trials in virtual time on `hdd.wd-aakx`: four streams of 256 KiB writes in the middle of the drive. Beside them
/// a tenant at its start had one 4 KiB write outstanding. Without a bound the drive served that one twice a second,
/// each after half a second; with this one 38 times. Five tenants with random reads, 16 outstanding each, lost 2 % of
/// their throughput; with half the bound 5 %, with a tenth 16 %.
const OVERTAKEN_MAX_PER_OUTSTANDING: u64 = 2;
/// Of the outstanding runs, the part that may overtake a request that is due. From the same trials, with 0.3 ms between
/// the small tenant's requests: 24.6 requests a second instead of 21.9, at 1 % of random throughput. A fifth costs 4 %.
const DUE_OVERTAKEN_PART: u64 = 2;

/// The requests at the device. Each step is O(1); on a device with a head, O(requests there), which are few.
pub struct DeviceWindow {
    requests: u32,
    runs: u64,
    requests_max: u32,
    /// In order of dispatch. Only kept for devices with a head.
    held: Option<Vec<Held>>,
}

/// A request at the device.
struct Held {
    id: RequestId,
    is_due: bool,
    /// Runs that were dispatched later and are done.
    overtaken_by: u64,
}

impl DeviceWindow {
    /// Of a device that holds nothing yet.
    pub fn new(device: &DeviceProfile) -> DeviceWindow {
        let requests_max = device.outstanding_max.max(1);
        DeviceWindow { requests: 0, runs: 0, requests_max, held: device.is_rotational.then(Vec::new) }
    }

    /// Whether the device holds as many requests as it should, whichever accounts they are of.
    pub fn is_full(&self) -> bool {
        self.requests >= self.requests_max
    }

    /// Whether one more request would hold others up; `is_due` says whether that request is.
    pub fn is_crowded(&self, is_due: bool) -> bool {
        let runs_max = u64::from(self.requests_max);
        let is_overtaken = |held: &Held| {
            held.overtaken_by >= OVERTAKEN_MAX_PER_OUTSTANDING * runs_max
                || (held.is_due && !is_due && held.overtaken_by >= runs_max / DUE_OVERTAKEN_PART)
        };
        (self.runs >= runs_max && !is_due) || self.held.iter().flatten().any(is_overtaken)
    }

    /// A request goes to the device.
    pub fn dispatched(&mut self, request: &BlockRequest, is_due: bool) {
        self.requests += 1;
        self.runs += request.runs();
        if let Some(held) = &mut self.held {
            held.push(Held { id: request.id, is_due, overtaken_by: 0 });
        }
    }

    /// The device is done with a request, which overtook every earlier dispatched request that is still there.
    pub fn completed(&mut self, completion: &Completion) {
        self.requests -= 1;
        self.runs -= completion.runs;
        let Some(held) = &mut self.held else { return };
        let Some(place) = held.iter().position(|request| request.id == completion.id) else { return };
        held.remove(place);
        held[..place].iter_mut().for_each(|request| request.overtaken_by += completion.runs);
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
            sequential_write_bytes_per_second: 1e8,
            write_settle: Span::ZERO,
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
        window.dispatched(&request(1, 256 << 10), false);
        assert!(!window.is_crowded(false));
        window.dispatched(&request(2, 256 << 10), false);
        assert!(window.is_crowded(false) && !window.is_full());
        complete(&mut window, &request(2, 256 << 10));
        assert!(!window.is_crowded(false));
    }

    #[test]
    fn a_request_that_is_overtaken_too_often_is_left_alone_with_the_device() {
        for is_rotational in [true, false] {
            let mut window = window(4, is_rotational);
            window.dispatched(&request(0, 4096), false);
            for id in 1..=8 {
                assert!(!window.is_crowded(false), "after {id}");
                window.dispatched(&request(id, 4096), false);
                complete(&mut window, &request(id, 4096));
            }
            assert_eq!(window.is_crowded(false), is_rotational);
            complete(&mut window, &request(0, 4096));
            assert!(!window.is_crowded(false));
        }
    }
}
