//! What a limited account's trips cost another account's stream: about its limit, on drives as they are.
//!
//! A reads in sequence, a megabyte at a time, which arrives as four requests; B writes a block elsewhere and makes it
//! durable, as often as its limit lets it. Both go through the scheduler to a drive's model.
//!
//! Planted breaks, each of which turns the test red: a stream goes on with all it has, and the drive begins in its
//! middle; the way back costs nothing, or after an awaited write what it does after a read; writes settle no longer
//! than reads.

use plimsoll_core::*;
use plimsoll_devices::{DeviceModel, DeviceRequest};
use plimsoll_schedulers::split_token::SplitToken;

const STREAM_START: u64 = 20 << 30;
const PIECE_BYTES: u32 = 256 << 10;
const PIECES: u64 = 4;
const DURATION: Span = Span::from_secs(60);
/// B's limit, one over so many of what the drive does in sequence.
const LIMIT_PART: f64 = 14.0;
/// Where B's write is in its life.
const WRITE: u64 = 1 << 32;
const FLUSH: u64 = 2 << 32;

struct Host {
    scheduler: SplitToken,
    drive: Box<dyn DeviceModel>,
    now: Time,
    requests: u64,
    accounts: [AccountId; 2],
    runs: Vec<(RequestId, AccountId, u64)>,
}

impl Host {
    fn new(drive: &str, limit: Option<f64>) -> Host {
        let drive = plimsoll_devices::build(drive, 1).expect("a known drive");
        let mut tree = AccountTree::new(drive.profile().clone());
        let accounts = [("a", None), ("b", limit)].map(|(name, limit)| {
            let allocation = Allocation { limit: limit.map(Rate::BytesPerSecond), ..Allocation::default() };
            tree.open(AccountId::ROOT, name, AccountKind::Session, allocation).expect("no reserve")
        });
        let mut scheduler = SplitToken::new(drive.profile());
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        Host { scheduler, drive, now: Time::ZERO, requests: 0, accounts, runs: Vec::new() }
    }

    fn add(&mut self, mark: u64, account: usize, operation: Operation, offset: u64, length: u32) {
        self.requests += 1;
        let (id, account) = (RequestId(mark | self.requests), self.accounts[account]);
        let request = BlockRequest::new(id, account, operation, offset, length, self.now);
        let request = BlockRequest { is_sync: true, causes: CauseSet::of(account), file: Some(FileId(1)), ..request };
        self.scheduler.request_added(self.now, request);
    }

    /// Goes to the next thing that happens, at the latest at `until`; answers with what the drive has done.
    fn step(&mut self, until: Time) -> Vec<RequestId> {
        while let Dispatch::Now(BlockRequest { id, session, operation, offset, length, .. }) =
            self.scheduler.next(self.now)
        {
            self.runs.push((id, session, operation.runs(length)));
            let request = DeviceRequest { token: id.0, operation, offset, length, is_forced: false };
            self.drive.submit(self.now, request);
        }
        self.now = self.drive.next_completion().map_or(until, |at| at.min(until)).max(self.now);
        let mut done = Vec::new();
        while let Some(finished) = self.drive.complete(self.now) {
            let place = self.runs.iter().position(|run| run.0.0 == finished.token).expect("it was dispatched");
            let (id, session, runs) = self.runs.swap_remove(place);
            let completion = Completion { id, session, runs, service: Span::ZERO, succeeded: true };
            self.scheduler.request_completed(self.now, &completion);
            done.push(id);
        }
        done
    }

    /// Whether B may write: asks if it has not asked yet, else waits until it is let go.
    fn may_write(&mut self, asked: &mut bool) -> bool {
        if *asked {
            let mut released = Vec::new();
            self.scheduler.released_calls(self.now, &mut released);
            *asked = released.is_empty();
            return !released.is_empty();
        }
        let (id, account) = (CallId(self.requests), self.accounts[1]);
        let (thread, file, kind) = (ThreadId(1), FileId(1), CallKind::Fsync);
        let call = Call { id, account, thread, kind, file, offset: 0, length: 4096, entered: self.now };
        *asked = self.scheduler.call_entered(self.now, &call) == CallDecision::Hold;
        !*asked
    }

    fn wakes_at(&mut self) -> Time {
        let mut wishes = Vec::new();
        self.scheduler.wishes(self.now, &mut wishes);
        let at = wishes.iter().filter_map(|wish| if let Wish::WakeAt(at) = wish { Some(*at) } else { None });
        at.min().unwrap_or(Time::MAX)
    }
}

/// What A reads a second, bytes, beside a B with this limit that writes so far away.
fn stream_rate(drive: &str, limit: Option<f64>, distance: u64) -> f64 {
    let mut host = Host::new(drive, limit);
    let end = Time::ZERO + DURATION;
    let (mut pieces, mut pieces_left, mut trips) = (0, 0, 0);
    let (mut is_away, mut asked) = (false, false);
    while host.now < end {
        if pieces_left == 0 {
            let at = |piece| STREAM_START + (pieces + piece) * u64::from(PIECE_BYTES);
            (0..PIECES).for_each(|piece| host.add(0, 0, Operation::Read, at(piece), PIECE_BYTES));
            (pieces, pieces_left) = (pieces + PIECES, PIECES);
        }
        if limit.is_some() && !is_away && host.may_write(&mut asked) {
            is_away = true;
            trips += 1;
            host.add(WRITE, 1, Operation::Write, STREAM_START + distance + trips * 4096, 4096);
        }
        let until = host.wakes_at().min(end);
        for done in host.step(until) {
            match done.0 & (WRITE | FLUSH) {
                WRITE => host.add(FLUSH, 1, Operation::Flush, 0, 0),
                FLUSH => is_away = false,
                _ => pieces_left -= 1,
            }
        }
    }
    (pieces - pieces_left) as f64 * f64::from(PIECE_BYTES) / DURATION.as_secs_f64()
}

/// Promise: split-durable-writes.
#[test]
fn a_stream_loses_about_the_limit() {
    for drive in ["hdd.wd-aakx", "hdd.deskstar-120", "hdd.15k-sas"] {
        let alone = stream_rate(drive, None, 0);
        for distance in [1 << 30, 4 << 30, 30 << 30] {
            let limit = alone / LIMIT_PART;
            let lost = alone - stream_rate(drive, Some(limit), distance);
            let part = lost / limit;
            println!("{drive} {} GiB away: {part:.3} of the limit is lost", distance >> 30);
            assert!((0.9..1.1).contains(&part), "{drive}, {distance} bytes away: {part} of the limit is lost");
        }
    }
}
