//! Whole images, mostly holes, copied to volumes of every kind and back by other people's programs.
//!
//! A program that is not installed is reported as *not run*; Debian has them in `qemu-utils`, `libnbd-bin` and
//! `nbdkit`.

mod programs;

use plimsoll_engine::EngineConfig;
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_serve::nbd::Address;
use plimsoll_testkit::{CACHE_BYTES, Random, Served, cached, encrypted_config, file_config, memory, profile};
use programs::{is_installed, run, succeed};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// As long as no payload is, and a multiple of nothing large.
const ODD_BYTES: u64 = 33 * MIB;
const LARGE_BYTES: u64 = 1 << 30;

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

fn uri(served: &Served, volume: &str) -> String {
    match served.address() {
        Address::Unix(path) => format!("nbd+unix:///{volume}?socket={}", text(path)),
        Address::Tcp(address) => panic!("{address}"),
    }
}

/// An image with data at its end and, if it is large, in three other places; all else is holes.
fn sparse_image(directory: &TempDir, bytes: u64) -> PathBuf {
    let path = directory.path().join("sparse.raw");
    let file = File::create(&path).unwrap();
    file.set_len(bytes).unwrap();
    // Of the small one, the first hole alone is longer than a payload may be.
    let places = [bytes - 8192, bytes / 3 / 4096 * 4096, bytes / 2 / 4096 * 4096, 0];
    let count = if bytes > 2 * ODD_BYTES { 4 } else { 1 };
    for (index, at) in places.into_iter().take(count).enumerate() {
        file.write_all_at(&[index as u8 + 1; 8192], at).unwrap();
    }
    path
}

/// Volumes `v` of every kind, one after the other, each of `bytes`, and what each needs to live.
fn every_kind(directory: &TempDir, bytes: u64) -> Vec<(&'static str, Served, Option<TempDir>)> {
    let of = |backing| {
        let (name, pool) = ("v".to_owned(), "pool".into());
        Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap()
    };
    let at = |name: &str| directory.path().join(name);
    let file = |name: &str| Volume::open(file_config("v", &at(name), Some(bytes))).unwrap();
    let config = EngineConfig::new(profile(), "noop");
    let (of_cached, fast) = cached(config, file("cached"), |settings| settings.size_bytes = Some(CACHE_BYTES));
    let compressed = of(Backing::CompressedMemory { size_bytes: bytes, level: 1 });
    let encrypted = Volume::open(encrypted_config("v", &at("encrypted"), bytes)).unwrap();
    vec![
        ("memory", Served::plain(vec![memory("v", bytes, 0)]), None),
        ("file", Served::plain(vec![file("file")]), None),
        ("compressed", Served::plain(vec![compressed]), None),
        ("encrypted", Served::plain(vec![encrypted]), None),
        ("cached", of_cached, Some(fast)),
    ]
}

/// Puts something where the image has holes, so that only zeroes that were written read as zero.
fn soil(served: &Served, bytes: u64) {
    let (mut client, mut random) = (served.connect("v", 1, true), Random(11));
    for _ in 0..40 {
        let at = random.below(bytes / 4096 - 16) * 4096;
        client.write(at, &[0xa5; 16 * 4096], false).unwrap();
    }
    client.disconnect().unwrap();
}

/// Copies a sparse image to volumes of every kind by nbdcopy, and compares them with it by qemu-img.
fn copy_sparse(bytes: u64) {
    if !is_installed("nbdcopy") || !is_installed("qemu-img") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let image = sparse_image(&directory, bytes);
    for (kind, served, _fast) in every_kind(&directory, bytes) {
        soil(&served, bytes);
        let uri = uri(&served, "v");
        succeed("nbdcopy", &["--flush", text(&image), &uri]);
        let output = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &uri]);
        assert!(output.status.success(), "{kind}: {output:?}");
        served.wait_until_all_have_gone();
    }
}

/// nbdcopy zeroes a hole with requests that are as long as it. Planted break that was seen red: zeroes are bounded as
/// payloads are.
/// Promise: nbd-long-zeroes.
#[test]
fn nbdcopy_copies_a_sparse_image_of_an_odd_size() {
    copy_sparse(ODD_BYTES);
}

/// The same.
/// Promise: nbd-long-zeroes.
#[test]
fn nbdcopy_copies_a_sparse_image_of_a_gibibyte() {
    copy_sparse(LARGE_BYTES);
}

/// Through nbdkit, which is the client here and zeroes by what we say that we can; and by QEMU through it.
/// Promise: nbd-nbdkit-qemu.
#[test]
fn nbdkit_passes_a_sparse_image_on_to_volumes_of_every_kind() {
    if !is_installed("nbdkit") || !is_installed("nbdcopy") || !is_installed("qemu-img") || !is_installed("qemu-io") {
        return;
    }
    if !run("nbdkit", &["nbd", "--dump-plugin"]).status.success() {
        return println!("not run: this nbdkit has no plugin that is a client");
    }
    let directory = TempDir::new().unwrap();
    let image = sparse_image(&directory, ODD_BYTES);
    for (kind, served, _fast) in every_kind(&directory, ODD_BYTES) {
        soil(&served, ODD_BYTES);
        let (uri, image) = (uri(&served, "v"), text(&image));
        let through = |command: &str| {
            let output = run("nbdkit", &["-U", "-", "nbd", &format!("uri={uri}"), "--run", command]);
            assert!(output.status.success(), "{kind}: {command}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        through(&format!("nbdcopy --flush {image} \"$uri\""));
        through(&format!("qemu-img compare -f raw -F raw {image} \"$uri\""));
        let script = "qemu-io -f raw -c 'write -P 9 100000 70000' -c 'write -z -u 1M 20M' -c 'read -P 9 100000 70000' \
                      -c 'read -P 0 1M 20M' -c flush \"$uri\"";
        let printed = through(script);
        assert!(!printed.contains("failed") && printed.matches("read ").count() == 2, "{kind}: {printed}");
        served.wait_until_all_have_gone();
    }
}

/// Promise: nbd-nbdkit-qemu.
#[test]
fn qemu_img_maps_a_volume_and_converts_it_to_a_sparse_image() {
    if !is_installed("qemu-img") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let image = sparse_image(&directory, ODD_BYTES);
    for (kind, served, _fast) in every_kind(&directory, ODD_BYTES) {
        soil(&served, ODD_BYTES);
        let (uri, back) = (uri(&served, "v"), directory.path().join("back.qcow2"));
        succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&image), &uri]);
        // We do not say where holes are, so all of it is data.
        let map = succeed("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
        let map: serde_json::Value = serde_json::from_str(&map).unwrap();
        let length: u64 = map.as_array().unwrap().iter().map(|part| part["length"].as_u64().unwrap()).sum();
        assert!(
            length == ODD_BYTES && map.as_array().unwrap().iter().all(|part| part["data"] == true),
            "{kind}: {map}"
        );
        succeed("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, text(&back)]);
        succeed("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", text(&image), text(&back)]);
        assert!(back.metadata().unwrap().len() < ODD_BYTES / 4, "{kind}: holes are found again");
        served.wait_until_all_have_gone();
    }
}
