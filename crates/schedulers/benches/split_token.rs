//! What `split_token` costs among a thousand limited accounts on a disk: a request that is added, dispatched and
//! completed; a call that enters and returns; a page that is dirtied and freed.
//!
//! Goals: 300 ns a block request, 150 ns a call or a page event.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::split_token::SplitToken;
use support::{Host, disk};

const ACCOUNTS: u32 = 1_000;
/// Never used up at that pace: no request waits.
const LIMIT: Rate = Rate::BytesPerSecond(1e15);

fn benches(criterion: &mut Criterion) {
    let mut scheduler = SplitToken::new(&disk());
    let root = AccountTree::new(disk());
    scheduler.account_opened(Time::ZERO, root.get(AccountId::ROOT).expect("a tree has a root"));
    let mut host = Host::new(scheduler, ACCOUNTS, |_| Allocation { limit: Some(LIMIT), ..Allocation::default() });
    let mut group = criterion.benchmark_group("split_token/1000");
    group.bench_function("write", |bencher| bencher.iter(|| host.request(Operation::Write)));
    group.bench_function("call: enter+return", |bencher| bencher.iter(|| host.write_call()));
    group.bench_function("page: dirtied+freed", |bencher| bencher.iter(|| host.page_events()));
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches }
criterion_main!(all);
