//! What a page of an encrypted volume costs a service thread, beside the crate that takes one block of the cipher after the other.

use aes::Aes256;
use aes::cipher::KeyInit;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_brick::backend::{KEY_BYTES, SECTOR_BYTES, SectorCipher};
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use xts_mode::{Xts128, get_tweak_default};

const PAGE_BYTES: usize = 4096;

fn page(criterion: &mut Criterion) {
    let key: [u8; KEY_BYTES] = std::array::from_fn(|at| at as u8 * 7 + 3);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let ours = SectorCipher::of_key_file(&path).unwrap();
    let theirs = Xts128::new(Aes256::new_from_slice(&key[..32]).unwrap(), Aes256::new_from_slice(&key[32..]).unwrap());
    let mut page = vec![5; PAGE_BYTES];
    let mut group = criterion.benchmark_group("page of 4 KiB");
    group.throughput(Throughput::Bytes(PAGE_BYTES as u64));
    group.bench_function("encrypted", |bencher| bencher.iter(|| ours.encrypt(black_box(77), &mut page)));
    group.bench_function("decrypted", |bencher| bencher.iter(|| ours.decrypt(black_box(77), &mut page)));
    let mut holes = vec![0; PAGE_BYTES];
    group.bench_function("decrypted, a hole", |bencher| bencher.iter(|| ours.decrypt(black_box(77), &mut holes)));
    group.bench_function("encrypted, xts-mode", |bencher| {
        bencher.iter(|| theirs.encrypt_area(&mut page, SECTOR_BYTES, black_box(77), get_tweak_default));
    });
    group.bench_function("decrypted, xts-mode", |bencher| {
        bencher.iter(|| theirs.decrypt_area(&mut page, SECTOR_BYTES, black_box(77), get_tweak_default));
    });
    group.finish();
}

criterion_group!(benches, page);
criterion_main!(benches);
