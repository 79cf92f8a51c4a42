//! What `afq` costs at 1,000 accounts of all levels that all want something: a read, and a write by the flusher, that
//! is added, dispatched and completed; a call that enters and returns; a page that is dirtied and freed.
//!
//! Goals: 300 ns a block request, 150 ns a call or a page event.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::afq::Afq;
use support::{Host, nvme};

const ACCOUNTS: u32 = 1_000;

fn host() -> Host<Afq> {
    Host::new(Afq::new(&nvme()), ACCOUNTS, |number| {
        let priority = Priority::Level((number % 8) as u8);
        Allocation { priority, ..Allocation::default() }
    })
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("afq/1000");
    let mut reads = host();
    (0..ACCOUNTS).for_each(|_| reads.add(Operation::Read));
    group.bench_function("read", |bencher| bencher.iter(|| reads.request(Operation::Read)));
    let mut writes = host();
    group.bench_function("write", |bencher| bencher.iter(|| writes.request(Operation::Write)));
    let mut calls = host();
    group.bench_function("call: enter+return", |bencher| bencher.iter(|| calls.write_call()));
    let mut pages = host();
    group.bench_function("page: dirtied+freed", |bencher| bencher.iter(|| pages.page_events()));
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches }
criterion_main!(all);
