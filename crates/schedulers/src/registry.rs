//! Every scheduler by name, with the promises that it keeps. Everything that takes a promise asks this table
//! ([`crate::refusals`]), and the conformance suite loops over it.

use crate::afq::Afq;
use crate::assumed::with_assumed_rates;
use crate::block_deadline::BlockDeadline;
use crate::cfq::Cfq;
use crate::noop::Noop;
use crate::promises::Level::{Blocks, Calls, Limits, Pages};
use crate::promises::Promise::{FsyncDeadline, Limit, Priority, ReadDeadline, Reserve, Weight, WriteDeadline};
use crate::promises::Target::{Cgroups, Observed, Tenants, Volumes};
use crate::promises::{Kept, Promise, Promised, Reach, Target, kept, kept_to_top_pools};
use crate::scs_token::ScsToken;
use crate::split_deadline::{SplitDeadline, Writeback};
use crate::split_token::SplitToken;
use crate::static_throttle::StaticThrottle;
use crate::wdt::Wdt;
use crate::zygaria::Zygaria;
use plimsoll_core::{DeviceProfile, Scheduler};

/// One line of the registry.
pub struct Entry {
    /// The name in configurations and scenarios.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Whether it keeps the device busy whenever a request waits that no limit holds back.
    pub is_work_conserving: bool,
    /// The promises that it keeps; all others are refused.
    pub keeps: &'static [Kept],
    /// Why it must not have tenants of a mounted file system, if so.
    pub refuses_tenants: Option<&'static str>,
    /// Makes one for a device.
    pub build: fn(&DeviceProfile) -> Box<dyn Scheduler>,
}

impl Entry {
    /// How it keeps `promise` to `target`, if it does.
    pub fn kept(&self, promise: Promise, target: Target) -> Option<&'static Kept> {
        self.keeps.iter().find(|kept| kept.promise == promise && kept.target == target)
    }

    /// Whether it keeps `promise` to an account with I/O of all `targets`.
    pub(crate) fn keeps(&self, promise: Promise, account: &Promised<'_>) -> bool {
        let is_kept = |target: &Target| {
            self.kept(promise, *target).is_some_and(|kept| kept.reach == Reach::All || account.is_top)
        };
        account.targets.iter().all(is_kept) && account.targets.iter().all(|target| self.refuses(*target).is_none())
    }

    /// Why it must not have accounts of `target`, if so.
    pub fn refuses(&self, target: Target) -> Option<&'static str> {
        self.refuses_tenants.filter(|_| matches!(target, Target::Tenants | Target::Observed))
    }
}

/// Both kinds of Split-Deadline.
const DEADLINES: &[Kept] = &[
    kept(ReadDeadline, Volumes, &[Blocks]),
    kept(ReadDeadline, Tenants, &[Blocks]),
    kept(FsyncDeadline, Tenants, &[Calls, Pages, Blocks]),
    kept(FsyncDeadline, Observed, &[Calls, Pages]),
];
/// Seen: 62 s for one fsync beside a tenant with a limit of 1 MB/s (decision record 0007).
const ZYGARIA_REFUSES: &str = "it holds block writes, so an fsync waits for another tenant's limit";

static REGISTRY: &[Entry] = &[
    Entry {
        name: "noop",
        summary: "first come, first served; the device orders as it likes",
        is_work_conserving: true,
        keeps: &[],
        refuses_tenants: None,
        build: |_| Box::new(Noop::default()),
    },
    Entry {
        name: "block_deadline",
        summary: "by place in batches, reads first, each by its deadline (mq-deadline)",
        is_work_conserving: true,
        keeps: &[
            kept(ReadDeadline, Volumes, &[Blocks]),
            kept(ReadDeadline, Tenants, &[Blocks]),
            kept(WriteDeadline, Volumes, &[Blocks]),
        ],
        refuses_tenants: None,
        build: |device| Box::new(BlockDeadline::new(device)),
    },
    Entry {
        name: "cfq",
        summary: "disk time in slices by the submitter's priority (Linux CFQ)",
        is_work_conserving: false,
        keeps: &[kept(Priority, Volumes, &[Blocks])],
        refuses_tenants: None,
        build: |device| Box::new(Cfq::new(device)),
    },
    Entry {
        name: "scs_token",
        summary: "limits in bytes at the read and write calls, below them cfq (SCS-Token)",
        is_work_conserving: false,
        keeps: &[kept(Limit, Tenants, &[Calls]), kept(Limit, Observed, &[Calls])],
        refuses_tenants: None,
        build: |device| Box::new(ScsToken::new(device)),
    },
    Entry {
        name: "split_deadline",
        summary: "deadlines for reads and fsyncs; dear fsyncs go after writeback in slices",
        is_work_conserving: true,
        keeps: DEADLINES,
        refuses_tenants: None,
        build: |device| Box::new(SplitDeadline::new(&with_assumed_rates(device), Writeback::Own)),
    },
    Entry {
        name: "split_deadline_flusher",
        summary: "split_deadline beside the kernel's flusher, which never has much to write",
        is_work_conserving: true,
        keeps: DEADLINES,
        refuses_tenants: None,
        build: |device| Box::new(SplitDeadline::new(&with_assumed_rates(device), Writeback::Flusher)),
    },
    Entry {
        name: "split_token",
        summary: "limits in disk time: charged as pages become dirty, put right at the disk",
        is_work_conserving: true,
        keeps: &[kept(Limit, Tenants, &[Calls, Pages, Blocks]), kept(Limit, Observed, &[Calls, Pages])],
        refuses_tenants: None,
        build: |device| Box::new(SplitToken::new(device)),
    },
    Entry {
        name: "afq",
        summary: "disk time by priority of its cause: reads by block, writes by call",
        is_work_conserving: false,
        keeps: &[kept(Priority, Tenants, &[Calls, Pages, Blocks]), kept(Priority, Observed, &[Calls, Pages])],
        refuses_tenants: None,
        build: |device| Box::new(Afq::new(&with_assumed_rates(device))),
    },
    Entry {
        name: "static_throttle",
        summary: "fixed caps on reads and on writes, by weight (ST of the WDT paper)",
        is_work_conserving: false,
        keeps: &[kept_to_top_pools(Weight)],
        refuses_tenants: None,
        build: |device| Box::new(StaticThrottle::new(&with_assumed_rates(device))),
    },
    Entry {
        name: "wdt",
        summary: "shares by weight: budgets for a tenth of a second on fast drives",
        is_work_conserving: false,
        keeps: &[kept_to_top_pools(Weight), kept(Weight, Cgroups, &[Limits])],
        refuses_tenants: None,
        build: |device| Box::new(Wdt::new(device)),
    },
    Entry {
        name: "zygaria",
        summary: "reserves and limits of pools and sessions, the rest by water level",
        is_work_conserving: true,
        keeps: &[kept(Reserve, Volumes, &[Blocks]), kept(Limit, Volumes, &[Blocks]), kept(Weight, Volumes, &[Blocks])],
        refuses_tenants: Some(ZYGARIA_REFUSES),
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
