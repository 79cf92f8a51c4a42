//! What a page of an encrypted volume costs a service thread, beside the crate that takes one block of the cipher after
//! the other. It is the time for which the thread had a processor that counts, so that other threads disturb
//! little.

use aes::Aes256;
use aes::cipher::KeyInit;
use criterion::{Bencher, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_engine::backend::{KEY_BYTES, SECTOR_BYTES, SectorCipher};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use xts_mode::{Xts128, get_tweak_default};

const PAGE_BYTES: usize = 4096;

/// For how long this thread has had a processor.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure(bencher: &mut Bencher<'_>, mut page: impl FnMut(u64)) {
    bencher.iter_custom(|count| {
        let before = thread_time();
        (0..count).for_each(|number| page(black_box(number)));
        thread_time() - before
    });
}

fn pages(criterion: &mut Criterion) {
    let key: [u8; KEY_BYTES] = std::array::from_fn(|at| at as u8 * 4 + 3);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let ours = SectorCipher::of_key_file(&path).unwrap();
    let [first, second] = [&key[..32], &key[32..]].map(|half| Aes256::new_from_slice(half).unwrap());
    let theirs = Xts128::new(first, second);
    let (mut page, mut hole) = (vec![5; PAGE_BYTES], vec![0; PAGE_BYTES]);
    let mut group = criterion.benchmark_group("page of 4 KiB");
    group.throughput(Throughput::Bytes(PAGE_BYTES as u64));
    group.bench_function("encrypted", |bencher| measure(bencher, |number| ours.encrypt(number, &mut page)));
    group.bench_function("decrypted", |bencher| measure(bencher, |number| ours.decrypt(number, &mut page)));
    group.bench_function("decrypted, a hole", |bencher| measure(bencher, |number| ours.decrypt(number, &mut hole)));
    group.bench_function("encrypted, xts-mode", |bencher| {
        measure(bencher, |number| theirs.encrypt_area(&mut page, SECTOR_BYTES, number.into(), get_tweak_default));
    });
    group.bench_function("decrypted, xts-mode", |bencher| {
        measure(bencher, |number| theirs.decrypt_area(&mut page, SECTOR_BYTES, number.into(), get_tweak_default));
    });
    group.finish();
}

criterion_group!(benches, pages);
criterion_main!(benches);
