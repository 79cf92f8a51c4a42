//! A log in battery-backed memory: every write is durable when it is done, in the order in which it came.
//!
//! The intuition: memory has neither seeks nor pages; what remains is the latency of a command and the width of the
//! link. The rule: a command is ready a fixed time after its arrival, then its bytes take the link, one command after
//! the other. Because the latency is the same for all, they finish in order.

use crate::model::{DeviceModel, DeviceRequest, Finished};
use plimsoll_core::{DeviceProfile, Operation, Span, Time};
use std::collections::VecDeque;

/// The figures of a memory log. All must be positive.
#[derive(Clone, Debug, PartialEq)]
pub struct NvramParameters {
    /// The name in configurations.
    pub name: &'static str,
    /// Bytes.
    pub capacity_bytes: u64,
    /// From the arrival of a command to its first byte on the link.
    pub latency_ns: u64,
    /// The least time that the link is taken for a command.
    pub command_ns: u64,
    /// What the link carries, bytes per second.
    pub link_bytes_per_second: u64,
    /// Requests of 4 KiB per second.
    pub worst_case_runs_per_second: f64,
    /// Requests to keep at the device.
    pub outstanding_max: u32,
}

/// Memory of 8 GB behind four lanes of PCIe 3.0: what storage servers log their writes to.
pub const NVRAM_LOG: NvramParameters = NvramParameters {
    name: "nvram-log",
    // A usual size of such cards.
    capacity_bytes: 8_000_000_000,
    // Fitted: drives on memory answer a command of 4 KiB in about 10 us, most of it doorbell, fetch and interrupt.
    latency_ns: 9_000,
    // Not published; below the link's 1,145 ns for 4 KiB.
    command_ns: 700,
    // PCIe 3.0: 8 GT/s * 4 lanes * 128/130, in packets of 256 bytes with 26 bytes around them: 3.58 GB/s.
    link_bytes_per_second: 3_576_000_000,
    worst_case_runs_per_second: 873_000.0,
    outstanding_max: 32,
};

/// A memory log. Every call is O(1).
#[derive(Clone, Debug)]
pub struct Nvram {
    parameters: NvramParameters,
    profile: DeviceProfile,
    link_until: Time,
    finished: VecDeque<Finished>,
}

impl Nvram {
    /// A device with these parameters; nothing of it is left to chance.
    pub fn new(parameters: &NvramParameters) -> Nvram {
        Nvram {
            profile: DeviceProfile {
                name: parameters.name.to_owned(),
                capacity_bytes: parameters.capacity_bytes,
                worst_case_runs_per_second: parameters.worst_case_runs_per_second,
                sequential_bytes_per_second: parameters.link_bytes_per_second as f64,
                sequential_write_bytes_per_second: parameters.link_bytes_per_second as f64,
                write_settle: Span::ZERO,
                is_rotational: false,
                outstanding_max: parameters.outstanding_max,
            },
            link_until: Time::ZERO,
            finished: VecDeque::with_capacity(256),
            parameters: parameters.clone(),
        }
    }
}

impl DeviceModel for Nvram {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        let moved_bytes = match request.operation {
            Operation::Read | Operation::Write => u64::from(request.length),
            Operation::Flush | Operation::Trim | Operation::WriteZeroes => 0,
        };
        let link_ns = moved_bytes * 1_000_000_000 / self.parameters.link_bytes_per_second;
        let ready = now + Span::from_nanos(self.parameters.latency_ns);
        self.link_until = self.link_until.max(ready) + Span::from_nanos(link_ns.max(self.parameters.command_ns));
        self.finished.push_back(Finished { token: request.token, at: self.link_until });
    }

    fn next_completion(&self) -> Option<Time> {
        self.finished.front().map(|finished| finished.at)
    }

    fn complete(&mut self, now: Time) -> Option<Finished> {
        self.finished.front().filter(|finished| finished.at <= now)?;
        self.finished.pop_front()
    }

    fn outstanding(&self) -> usize {
        self.finished.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_overlap_their_latency_and_share_the_link() {
        let mut log = Nvram::new(&NVRAM_LOG);
        let append = |token, length| {
            let (operation, offset) = (Operation::Write, token * 4096);
            DeviceRequest { token, operation, offset, length, is_forced: true }
        };
        log.submit(Time::ZERO, append(0, 4096));
        log.submit(Time::ZERO, append(1, 4096));
        log.submit(Time::ZERO, append(2, 512));
        // 4096 bytes take 1,145 ns of the link; 512 bytes would take 143 ns, but a command takes at least 700 ns.
        for (token, at_ns) in [(0, 10_145), (1, 11_290), (2, 11_990)] {
            let at = Time::from_nanos(at_ns);
            assert_eq!(log.complete(at.saturating_sub(Span::from_nanos(1))), None);
            assert_eq!(log.complete(at), Some(Finished { token, at }));
        }
    }
}
