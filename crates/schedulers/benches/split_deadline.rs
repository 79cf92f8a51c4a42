//! What a block request, a call and a page event cost `split_deadline` at 10 and 1,000 accounts, each with an fsync
//! under way and with dirty pages.
//!
//! Goals: 300 ns a block request, 150 ns a call or a page event.

mod support;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::split_deadline::{SplitDeadline, Writeback};
use support::{Host, nvme};

/// Dirty pages of each account when it begins.
const DIRTY_PAGES: u64 = 16;
/// Added to the number of a file with dirty pages, the number of one without.
const CLEAN: u64 = 1 << 32;

/// Longer than an fsync is held.
const PATIENCE: Span = Span::from_secs(60);

/// Each account has dirty pages, a request queued and an fsync under way.
fn host(accounts: u32) -> Host<SplitDeadline> {
    let mut host = Host::new(SplitDeadline::new(&nvme(), Writeback::Own), accounts, |number| {
        let fsync = Some(Span::from_millis(u64::from(5 + number % 100)));
        Allocation { deadlines: Deadlines { fsync, ..Deadlines::default() }, ..Allocation::default() }
    });
    for _ in 0..u64::from(accounts) * DIRTY_PAGES {
        let account = host.advance();
        let event = host.page(account);
        host.scheduler.pages_dirtied(host.now, &event);
    }
    for _ in 0..accounts {
        host.add(Operation::Read);
        let account = host.advance();
        let call = host.call(account, CallKind::Fsync);
        host.scheduler.call_entered(host.now, &call);
    }
    host.now += PATIENCE;
    host.scheduler.released_calls(host.now, &mut Vec::new());
    host
}

/// Reads and writes in turns.
fn request(host: &mut Host<SplitDeadline>) {
    host.request(if host.number.is_multiple_of(2) { Operation::Read } else { Operation::Write });
}

/// An fsync of a clean file: it writes nothing.
fn fsync_call(host: &mut Host<SplitDeadline>) {
    let account = host.advance();
    let call = host.call(account, CallKind::Fsync);
    host.enter_and_return(&Call { file: FileId(CLEAN + call.file.0), ..call });
}

/// What is measured.
type Turn = fn(&mut Host<SplitDeadline>);

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("split_deadline");
    for accounts in [10, 1_000] {
        let turns: [(&str, Turn); 4] = [
            ("request: add+dispatch+complete", request),
            ("page: dirtied+freed", Host::page_events),
            ("write: enter+return", Host::write_call),
            ("fsync: enter+return", fsync_call),
        ];
        for (name, turn) in turns {
            let mut host = host(accounts);
            group.bench_function(BenchmarkId::new(name, accounts), |bencher| bencher.iter(|| turn(&mut host)));
        }
    }
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches }
criterion_main!(all);
