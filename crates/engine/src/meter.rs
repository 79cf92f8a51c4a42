//! What each account got: counts, rates and latencies.
//!
//! Requests are recorded in their session only, in O(1), and without allocating but for a session's first one. Pools
//! are summed when a status is asked for. A session that closes leaves its sums to its pool. An idle session costs next
//! to nothing, neither memory nor a look once a second.

use super::status::{AccountStatus, LatencyStatus};
use hdrhistogram::Histogram;
use plimsoll_core::{AccountId, AccountTree, CauseSet, Operation, Span, Time};

/// Latencies are recorded from a microsecond up to this; longer ones count as this.
const LATENCY_MAX: Span = Span::from_secs(1000);
/// Significant digits of recorded latencies: within one per cent. A histogram takes 21 KiB, from the first request on.
const LATENCY_DIGITS: u8 = 2;
/// Rates are measured over windows of this length.
const RATE_WINDOW: Span = Span::from_secs(1);

/// Latencies of an account that has had a request.
#[derive(Clone)]
struct Latencies {
    read_ns: Histogram<u64>,
    write_ns: Histogram<u64>,
    flush_ns: Histogram<u64>,
}

impl Latencies {
    fn new() -> Box<Latencies> {
        let latencies = || Histogram::new_with_bounds(1_000, LATENCY_MAX.as_nanos(), LATENCY_DIGITS);
        let [read_ns, write_ns, flush_ns] = [(); 3].map(|()| latencies().expect("constant bounds are valid"));
        Box::new(Latencies { read_ns, write_ns, flush_ns })
    }

    #[inline]
    fn of(&mut self, operation: Operation) -> &mut Histogram<u64> {
        match operation {
            Operation::Read => &mut self.read_ns,
            Operation::Write | Operation::Trim | Operation::WriteZeroes => &mut self.write_ns,
            Operation::Flush => &mut self.flush_ns,
        }
    }
}

/// What one account got.
#[derive(Clone)]
struct Meter {
    requests: u64,
    runs: u64,
    bytes: u64,
    failed: u64,
    /// Pieces in the scheduler.
    queued: u32,
    /// Pieces at the device.
    in_flight: u32,
    latencies: Option<Box<Latencies>>,
    opened: Time,
    /// It stands among the busy, and when it was last looked at there.
    is_busy: bool,
    looked_at: Time,
    window_runs: u64,
    window_bytes: u64,
    runs_per_second: f64,
    bytes_per_second: f64,
}

impl Meter {
    fn new(now: Time) -> Meter {
        Meter {
            requests: 0,
            runs: 0,
            bytes: 0,
            failed: 0,
            queued: 0,
            in_flight: 0,
            latencies: None,
            opened: now,
            is_busy: false,
            looked_at: Time::ZERO,
            window_runs: 0,
            window_bytes: 0,
            runs_per_second: 0.0,
            bytes_per_second: 0.0,
        }
    }

    /// Adds what `other` got and has under way.
    fn add(&mut self, other: &Meter) {
        self.requests += other.requests;
        self.runs += other.runs;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.queued += other.queued;
        self.in_flight += other.in_flight;
        self.runs_per_second += other.runs_per_second;
        self.bytes_per_second += other.bytes_per_second;
        let Some(others) = &other.latencies else { return };
        let own = self.latencies.get_or_insert_with(Latencies::new);
        let pairs = [
            (&mut own.read_ns, &others.read_ns),
            (&mut own.write_ns, &others.write_ns),
            (&mut own.flush_ns, &others.flush_ns),
        ];
        for (own, others) in pairs {
            own.add(others).expect("all have the same bounds");
        }
    }

    /// Takes over the figures of a closed member. Those of this window count in this window.
    fn inherit(&mut self, member: &Meter) {
        self.add(member);
        self.window_runs += member.window_runs;
        self.window_bytes += member.window_bytes;
        self.runs_per_second -= member.runs_per_second;
        self.bytes_per_second -= member.bytes_per_second;
    }
}

/// The meters of a device's accounts.
pub(crate) struct Meters {
    meters: Vec<Option<Box<Meter>>>,
    window_start: Time,
    /// Accounts that got anything in this window or the last one. A number may stand here twice, or be no account's by
    /// now.
    busy: Vec<AccountId>,
}

impl Meters {
    pub(crate) fn new(now: Time) -> Meters {
        Meters { meters: vec![Some(Box::new(Meter::new(now)))], window_start: now, busy: Vec::new() }
    }

    pub(crate) fn opened(&mut self, now: Time, account: AccountId) {
        if self.meters.len() <= account.index() {
            self.meters.resize_with(account.index() + 1, || None);
        }
        self.meters[account.index()] = Some(Box::new(Meter::new(now)));
    }

    pub(crate) fn closed(&mut self, account: AccountId, parent: AccountId) {
        if let Some(member) = self.meters[account.index()].take() {
            let pool = self.of(parent);
            pool.inherit(&member);
            if member.is_busy && !std::mem::replace(&mut pool.is_busy, true) {
                self.busy.push(parent);
            }
        }
    }

    #[inline]
    fn of(&mut self, account: AccountId) -> &mut Meter {
        self.meters[account.index()].as_mut().expect("an account is metered as long as it is open")
    }

    /// A piece went into the scheduler.
    #[inline]
    pub(crate) fn piece_queued(&mut self, account: AccountId) {
        self.of(account).queued += 1;
    }

    /// A piece went from the scheduler to the device.
    #[inline]
    pub(crate) fn piece_dispatched(&mut self, account: AccountId) {
        let meter = self.of(account);
        meter.queued -= 1;
        meter.in_flight += 1;
    }

    /// The device has done a piece that stood in `session`'s queue: its causes share it, or where no cause is known it
    /// is the session's. What cannot be divided goes to the first ones.
    #[inline]
    pub(crate) fn piece_completed(&mut self, session: AccountId, causes: &CauseSet, runs: u64, bytes: u32) {
        self.of(session).in_flight -= 1;
        let own = causes.is_empty().then_some(session);
        match own.or_else(|| causes.only()) {
            Some(payer) => self.pays(payer, runs, bytes.into()),
            None => self.share(causes, runs, bytes.into()),
        }
    }

    /// An account has caused so much.
    #[inline]
    fn pays(&mut self, payer: AccountId, runs: u64, bytes: u64) {
        let meter = self.meters[payer.index()].as_mut().expect("an account is metered as long as it is open");
        if !std::mem::replace(&mut meter.is_busy, true) {
            self.busy.push(payer);
        }
        meter.runs += runs;
        meter.bytes += bytes;
    }

    /// Several accounts have caused so much together.
    fn share(&mut self, causes: &CauseSet, runs: u64, bytes: u64) {
        let count = causes.len() as u64;
        let part = |whole: u64, place: u64| whole / count + u64::from(place < whole % count);
        for (place, payer) in (0..).zip(causes.iter()) {
            self.pays(payer, part(runs, place), part(bytes, place));
        }
    }

    /// A request is done.
    pub(crate) fn request_completed(
        &mut self,
        account: AccountId,
        operation: Operation,
        latency: Span,
        succeeded: bool,
    ) {
        let meter = self.of(account);
        meter.requests += 1;
        meter.failed += u64::from(!succeeded);
        let latencies = meter.latencies.get_or_insert_with(Latencies::new);
        latencies.of(operation).saturating_record(latency.as_nanos());
    }

    /// Begins a new window of the rates if this one is over. O(those that got anything), once a second.
    pub(crate) fn tick(&mut self, now: Time) {
        let window = now.since(self.window_start);
        if window < RATE_WINDOW {
            return;
        }
        self.window_start = now;
        let meters = &mut self.meters;
        self.busy.retain(|account| {
            let Some(meter) = meters[account.index()].as_mut().filter(|meter| meter.looked_at < now) else {
                return false;
            };
            meter.looked_at = now;
            meter.is_busy = (meter.runs, meter.bytes) != (meter.window_runs, meter.window_bytes);
            meter.runs_per_second = (meter.runs - meter.window_runs) as f64 / window.as_secs_f64();
            meter.bytes_per_second = (meter.bytes - meter.window_bytes) as f64 / window.as_secs_f64();
            (meter.window_runs, meter.window_bytes) = (meter.runs, meter.bytes);
            meter.is_busy
        });
    }

    /// What every open account got, pools with all that their members did. O(accounts x depth).
    pub(crate) fn status(&self, now: Time, tree: &AccountTree) -> Vec<AccountStatus> {
        let mut sums: Vec<Option<Meter>> = self.meters.iter().map(|meter| Some((**meter.as_ref()?).clone())).collect();
        for account in tree.iter() {
            let own = self.meters[account.id.index()].as_ref().expect("an open account is metered");
            let ancestors = std::iter::successors(account.parent, |&id| tree.get(id)?.parent);
            for ancestor in ancestors {
                sums[ancestor.index()].as_mut().expect("parents are open").add(own);
            }
        }
        let statuses = tree.iter().map(|account| {
            let sum = sums[account.id.index()].as_ref().expect("an open account is metered");
            let latency = |of: fn(&Latencies) -> &Histogram<u64>| {
                sum.latencies
                    .as_deref()
                    .map_or_else(LatencyStatus::default, |latencies| LatencyStatus::of(of(latencies)))
            };
            let open_for = now.since(sum.opened).as_secs_f64().max(1e-9);
            AccountStatus {
                path: tree.path(account.id),
                kind: account.kind,
                allocation: account.allocation,
                requests: sum.requests,
                runs: sum.runs,
                bytes: sum.bytes,
                failed: sum.failed,
                queued: sum.queued,
                in_flight: sum.in_flight,
                runs_per_second: sum.runs_per_second,
                bytes_per_second: sum.bytes_per_second,
                runs_per_second_since_open: sum.runs as f64 / open_for,
                bytes_per_second_since_open: sum.bytes as f64 / open_for,
                read_latency: latency(|latencies| &latencies.read_ns),
                write_latency: latency(|latencies| &latencies.write_ns),
                flush_latency: latency(|latencies| &latencies.flush_ns),
            }
        });
        statuses.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::samples::profile;
    use plimsoll_core::{AccountKind, Allocation};

    fn tree() -> (AccountTree, AccountId, AccountId) {
        let mut tree = AccountTree::new(profile());
        let pool = tree.open(AccountId::ROOT, "web", AccountKind::Pool, Allocation::default()).unwrap();
        let session = tree.open(pool, "db", AccountKind::Session, Allocation::default()).unwrap();
        (tree, pool, session)
    }

    fn one_read(meters: &mut Meters, session: AccountId, latency: Span) {
        meters.piece_queued(session);
        meters.piece_dispatched(session);
        meters.piece_completed(session, &CauseSet::EMPTY, 1, 4096);
        meters.request_completed(session, Operation::Read, latency, true);
    }

    #[test]
    fn pools_have_the_sum_of_their_members_also_of_those_that_closed() {
        let (mut tree, pool, session) = tree();
        let mut meters = Meters::new(Time::ZERO);
        meters.opened(Time::ZERO, pool);
        meters.opened(Time::ZERO, session);
        (0..10).for_each(|_| one_read(&mut meters, session, Span::from_millis(2)));
        meters.piece_queued(session);
        let at = Time::ZERO + Span::from_secs(2);
        meters.tick(at);
        let status = meters.status(at, &tree);
        let paths: Vec<_> = status.iter().map(|account| account.path.as_str()).collect();
        assert_eq!(paths, ["disk", "web", "web/db"]);
        for account in &status {
            assert_eq!((account.requests, account.bytes, account.queued, account.in_flight), (10, 40960, 1, 0));
            assert_eq!((account.runs_per_second, account.runs_per_second_since_open), (5.0, 5.0));
            assert!(account.read_latency.p50_ns.abs_diff(2_000_000) < 20_000);
            assert_eq!(account.write_latency.count, 0);
        }
        one_read(&mut meters, session, Span::from_millis(1));
        meters.of(session).queued = 0;
        tree.close(session).unwrap();
        meters.closed(session, pool);
        let status = meters.status(at, &tree);
        assert_eq!(status.iter().map(|account| account.requests).collect::<Vec<_>>(), [11, 11]);
        meters.tick(at + Span::from_secs(1));
        assert_eq!(meters.status(at, &tree)[1].runs_per_second, 1.0, "what a member did before it closed counts");
    }

    /// Planted breaks that were seen red: an account that is busy twice is looked at twice; one that was busy once
    /// stays so.
    #[test]
    fn rates_are_of_the_last_second_also_where_a_number_is_used_again() {
        let (mut tree, pool, session) = tree();
        let mut meters = Meters::new(Time::ZERO);
        meters.opened(Time::ZERO, pool);
        meters.opened(Time::ZERO, session);
        one_read(&mut meters, session, Span::from_millis(1));
        tree.close(session).unwrap();
        meters.closed(session, pool);
        assert_eq!(tree.open(pool, "again", AccountKind::Session, Allocation::default()), Ok(session));
        meters.opened(Time::ZERO, session);
        one_read(&mut meters, session, Span::from_millis(1));
        for (second, rates) in [(1, [2.0, 2.0, 1.0]), (2, [0.0; 3]), (3, [0.0; 3])] {
            let at = Time::ZERO + Span::from_secs(second);
            meters.tick(at);
            assert_eq!(meters.status(at, &tree).iter().map(|of| of.runs_per_second).collect::<Vec<_>>(), rates);
        }
        assert!(meters.busy.is_empty());
        one_read(&mut meters, session, Span::from_millis(1));
        meters.tick(Time::ZERO + Span::from_secs(4));
        let status = meters.status(Time::ZERO + Span::from_secs(4), &tree);
        assert_eq!(status.iter().map(|of| of.runs_per_second).collect::<Vec<_>>(), [1.0; 3]);
    }
}
