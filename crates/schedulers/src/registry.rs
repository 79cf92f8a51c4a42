//! Every scheduler by name, with the laws that it promises to keep. The conformance suite loops over this table.

use crate::afq::Afq;
use crate::assumed::with_assumed_rates;
use crate::block_deadline::BlockDeadline;
use crate::cfq::Cfq;
use crate::noop::Noop;
use crate::scs_token::ScsToken;
use crate::split_deadline::{SplitDeadline, Writeback};
use crate::split_token::SplitToken;
use crate::static_throttle::StaticThrottle;
use crate::wdt::Wdt;
use crate::zygaria::Zygaria;
use plimsoll_core::{DeviceProfile, Scheduler};

/// What a scheduler promises beyond what all promise (no request lost or doubled, none starved, same events give the
/// same decisions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laws {
    /// It keeps the device busy whenever a request waits that no limit holds back.
    pub is_work_conserving: bool,
    /// No account exceeds its limit.
    pub keeps_limits: bool,
    /// Every account that asks for it gets its reserve.
    pub keeps_reserves: bool,
    /// What nobody reserved is divided among siblings by their weights.
    pub shares_by_weight: bool,
}

/// One line of the registry.
pub struct Entry {
    /// The name in configurations and scenarios.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// What it promises.
    pub laws: Laws,
    /// Makes one for a device.
    pub build: fn(&DeviceProfile) -> Box<dyn Scheduler>,
}

static REGISTRY: &[Entry] = &[
    Entry {
        name: "noop",
        summary: "first come, first served; the device orders as it likes",
        laws: Laws { is_work_conserving: true, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |_| Box::new(Noop::default()),
    },
    Entry {
        name: "block_deadline",
        summary: "by place in batches, reads first, each request by its deadline (Linux mq-deadline)",
        laws: Laws { is_work_conserving: true, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(BlockDeadline::new(device)),
    },
    Entry {
        name: "cfq",
        summary: "disk time in slices by the submitter's priority, idling for who reads on (Linux CFQ)",
        laws: Laws { is_work_conserving: false, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(Cfq::new(device)),
    },
    Entry {
        name: "scs_token",
        summary: "limits in bytes at the read and write calls, below them cfq (SCS-Token)",
        laws: Laws { is_work_conserving: false, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(ScsToken::new(device)),
    },
    Entry {
        name: "split_deadline",
        summary: "deadlines for reads and fsync calls, dear fsyncs after writeback in slices, which it owns (Split-Deadline)",
        laws: Laws { is_work_conserving: true, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(SplitDeadline::new(&with_assumed_rates(device), Writeback::Own)),
    },
    Entry {
        name: "split_deadline_flusher",
        summary: "split_deadline with the kernel's flusher: writes wait so that it never has much to write (Split-Pdflush)",
        laws: Laws { is_work_conserving: true, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(SplitDeadline::new(&with_assumed_rates(device), Writeback::Flusher)),
    },
    Entry {
        name: "split_token",
        summary: "limits in normalised bytes: charged when pages become dirty, put right at the disk (SOSP 2015)",
        laws: Laws { is_work_conserving: true, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(SplitToken::new(device)),
    },
    Entry {
        name: "afq",
        summary: "disk time by priority to whoever caused the I/O: reads by block, writes and fsyncs by call (AFQ)",
        laws: Laws { is_work_conserving: false, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(Afq::new(&with_assumed_rates(device))),
    },
    Entry {
        name: "static_throttle",
        summary: "fixed caps on reads and on writes, by weight (ST of the WDT paper)",
        laws: Laws { is_work_conserving: false, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(StaticThrottle::new(&with_assumed_rates(device))),
    },
    Entry {
        name: "wdt",
        summary: "shares by weight: budgets for a tenth of a second, sized by what the heaviest can use (HotStorage 2016)",
        laws: Laws { is_work_conserving: false, keeps_limits: false, keeps_reserves: false, shares_by_weight: false },
        build: |device| Box::new(Wdt::new(device)),
    },
    Entry {
        name: "zygaria",
        summary: "pools and sessions with reserves and limits, the rest by water level (RTAS 2006)",
        laws: Laws { is_work_conserving: true, keeps_limits: true, keeps_reserves: true, shares_by_weight: true },
        build: |device| Box::new(Zygaria::new(device)),
    },
];

/// Every scheduler.
pub fn registry() -> &'static [Entry] {
    REGISTRY
}

/// A scheduler called `name` for `device`, if there is one.
pub fn build(name: &str, device: &DeviceProfile) -> Option<Box<dyn Scheduler>> {
    REGISTRY.iter().find(|entry| entry.name == name).map(|entry| (entry.build)(device))
}
