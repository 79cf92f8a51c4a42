//! How many requests per second of real time each model works out: random reads and writes of 4 KiB, as many
//! outstanding as its profile says.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_core::{Operation, Time};
use plimsoll_devices::{DeviceRequest, models};

fn random_requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("devices");
    group.throughput(Throughput::Elements(1));
    for entry in models() {
        let mut device = (entry.build)(1);
        let (mut now, mut token) = (Time::ZERO, 0u64);
        let outstanding_max = device.profile().outstanding_max as usize;
        group.bench_function(entry.name, |bencher| {
            bencher.iter(|| {
                while device.outstanding() >= outstanding_max {
                    now = device.next_completion().unwrap_or(now);
                    device.complete(now);
                }
                let offset = token.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let operation = if token.is_multiple_of(2) { Operation::Read } else { Operation::Write };
                device.submit(now, DeviceRequest { token, operation, offset, length: 4096, is_forced: false });
                token += 1;
            });
        });
    }
    group.finish();
}

criterion_group!(benches, random_requests);
criterion_main!(benches);
