//! Backing files that fail, clients that lie or vanish: the request that met it hears of it, and no other.

use plimsoll_engine::EngineConfig;
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig, VolumeError};
use plimsoll_protocols::nbd::wire::Request;
use plimsoll_protocols::nbd::{Command, CommandFlags, Errno};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{Served, answered, file_config, memory, raw_connection};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const VOLUME_BYTES: u64 = 4 << 20;

fn open_error(config: VolumeConfig) -> VolumeError {
    match Volume::open(config) {
        Ok(_) => panic!("the volume was opened"),
        Err(error) => error,
    }
}

/// Promise: volume-refused.
#[test]
fn what_cannot_be_served_is_said_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let missing = open_error(file_config("v", &path, None));
    assert!(matches!(missing, VolumeError::Missing { .. }), "{missing}");
    let odd = open_error(file_config("v", &path, Some(1000)));
    assert!(matches!(odd, VolumeError::Size { size_bytes: 1000, .. }), "{odd}");
    assert!(!path.exists(), "nothing is made for a volume that cannot be served");
    let directory_itself = open_error(file_config("v", directory.path(), None));
    assert!(matches!(directory_itself, VolumeError::Kind { .. }), "{directory_itself}");
    let character_device = open_error(file_config("v", Path::new("/dev/null"), None));
    assert!(matches!(character_device, VolumeError::Kind { .. }), "{character_device}");

    let first = Volume::open(file_config("v", &path, Some(VOLUME_BYTES))).unwrap();
    assert_eq!(first.info().size_bytes, VOLUME_BYTES);
    let locked = open_error(file_config("w", &path, None));
    let by = format!("volume w: {} is used by another volume or cache of this daemon", path.display());
    assert!(locked.to_string().starts_with(&by), "{locked}");
    drop(first);
    let small = open_error(file_config("v", &path, Some(2 * VOLUME_BYTES)));
    assert_eq!(
        small.to_string(),
        format!("volume v: {} has 4 MiB, which is less than the volume's 8 MiB", path.display())
    );
    let read_only = |name| VolumeConfig { is_read_only: true, ..file_config(name, &path, None) };
    let readers = (Volume::open(read_only("a")).unwrap(), Volume::open(read_only("b")).unwrap());
    assert!(matches!(open_error(file_config("v", &path, None)), VolumeError::Locked { .. }));
    drop(readers);
    let too_large = VolumeConfig { backing: Backing::Memory { size_bytes: 1 << 63 }, ..read_only("m") };
    assert!(matches!(open_error(too_large), VolumeError::Size { .. }));
}

#[test]
fn a_volume_that_is_read_only_cannot_be_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, vec![7; VOLUME_BYTES as usize]).unwrap();
    let config = VolumeConfig { is_read_only: true, ..file_config("v", &path, None) };
    let served = Served::plain(vec![Volume::open(config).unwrap()]);
    let mut client = served.connect("v", 1, true);
    assert_eq!(answered(client.write(0, &[1; 512], false)), Err(Errno::NotPermitted));
    assert_eq!(answered(client.trim(0, 512)), Err(Errno::NotPermitted));
    let mut bytes = [0; 512];
    client.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 512]);
}

/// A small file system of its own; unmounted at the end, whatever happens.
struct SmallFileSystem {
    at: PathBuf,
    _directory: tempfile::TempDir,
}

impl SmallFileSystem {
    fn mount(bytes: u64) -> Option<SmallFileSystem> {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("small");
        std::fs::create_dir(&at).unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        match mount("tmpfs", &at, "tmpfs", MountFlags::NODEV, Some(options.as_c_str())) {
            Ok(()) => Some(SmallFileSystem { at, _directory: directory }),
            Err(error) => {
                eprintln!("not run: cannot mount a tmpfs: {error}");
                None
            }
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let unmounted = unmount(&self.at, UnmountFlags::DETACH);
        assert!(unmounted.is_ok() || std::thread::panicking());
    }
}

/// Promise: volume-full-disk.
#[test]
fn a_full_disk_fails_the_writes_that_met_it_and_no_others() {
    const SPACE_BYTES: u64 = 1 << 20;
    const PIECE_BYTES: usize = 64 * 1024;
    let Some(small) = SmallFileSystem::mount(SPACE_BYTES) else { return };
    let volume = Volume::open(file_config("v", &small.at.join("disk"), Some(VOLUME_BYTES))).unwrap();
    let served = Served::plain(vec![volume, memory("other", VOLUME_BYTES, 1 << 30)]);
    let (mut client, mut other) = (served.connect("v", 1, true), served.connect("other", 1, true));
    let offsets = || (0..VOLUME_BYTES).step_by(PIECE_BYTES);
    let mut written = Vec::new();
    for offset in offsets() {
        let data = vec![(offset / PIECE_BYTES as u64) as u8 + 1; PIECE_BYTES];
        match answered(client.write(offset, &data, false)) {
            Ok(()) => written.push((offset, data)),
            Err(errno) => assert_eq!(errno, Errno::NoSpace),
        }
        other.write(offset, &[1; 512], true).unwrap();
    }
    let fit = (SPACE_BYTES as usize / PIECE_BYTES - 2)..=(SPACE_BYTES as usize / PIECE_BYTES);
    assert!(fit.contains(&written.len()), "{} pieces fitted", written.len());
    for (offset, data) in &written {
        let mut bytes = vec![0; PIECE_BYTES];
        client.read(*offset, &mut bytes).unwrap();
        assert!(bytes == *data, "what was acknowledged is there");
    }
    client.flush().unwrap();
    client.trim(written[0].0, PIECE_BYTES as u32).unwrap();
    let last = VOLUME_BYTES - PIECE_BYTES as u64;
    assert_eq!(answered(client.write(last, &[9; PIECE_BYTES], false)), Ok(()), "there is room again");
    let failed = served.engine.status().unwrap().accounts[0].failed;
    assert_eq!(failed, offsets().count() as u64 - written.len() as u64);
    drop((client, other));
    served.wait_until_all_have_gone();
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}

#[test]
fn a_backing_file_that_was_truncated_fails_reads_and_one_that_was_removed_goes_on() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("disk");
    let volume = Volume::open(file_config("v", &path, Some(VOLUME_BYTES))).unwrap();
    let served = Served::plain(vec![volume]);
    let mut client = served.connect("v", 1, false);
    client.write(0, &[5; 8192], true).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let mut bytes = [0; 4096];
    client.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 4096]);
    assert_eq!(answered(client.read(4096, &mut bytes)), Err(Errno::InputOutput));
    let mut both = [0; 8192];
    assert_eq!(answered(client.read(0, &mut both)), Err(Errno::InputOutput), "a part is not enough");
    client.write(4096, &[6; 4096], true).unwrap();
    client.read(0, &mut both).unwrap();
    assert_eq!((both[4095], both[4096]), (5, 6));
    let still_open = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    client.write(0, &[8; 512], true).unwrap();
    client.disconnect().unwrap();
    served.wait_until_all_have_gone();
    served.engine.remove_volume("v").unwrap();
    let mut first = [0];
    still_open.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first, [8]);
}

/// Promise: volume-hostile-bytes.
#[test]
fn garbage_closes_the_connection_that_sent_it_and_no_other() {
    let volume = memory("v", VOLUME_BYTES, 0);
    let info = volume.info().clone();
    let served = Served::plain(vec![volume]);
    let mut good = served.connect("v", 1, true);
    let too_long =
        Request { flags: CommandFlags::NONE, command: Command::Write, cookie: 1, offset: 0, length: (32 << 20) + 512 };
    let garbage: [Vec<u8>; 4] =
        [vec![0xFF; 28], vec![0; 100_000], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n..".to_vec(), too_long.encode().to_vec()];
    for bytes in garbage {
        let mut bad = raw_connection(&served.engine, &info);
        let _ = bad.write_all(&bytes);
        let mut answer = Vec::new();
        // A reset is as good as an end.
        let _ = bad.read_to_end(&mut answer);
        assert!(answer.is_empty(), "nothing is answered");
        good.write(0, &[3; 512], false).unwrap();
    }
    good.disconnect().unwrap();
    served.wait_until_all_have_gone();
}

#[test]
fn refused_requests_are_answered_and_the_connection_goes_on() {
    let volume = memory("v", VOLUME_BYTES, 0);
    let info = volume.info().clone();
    let served = Served::plain(vec![volume]);
    let mut raw = raw_connection(&served.engine, &info);
    let request = |command, cookie, offset, length| {
        Request { flags: CommandFlags::NONE, command, cookie, offset, length }.encode().to_vec()
    };
    let mut bytes = request(Command::Write, 1, VOLUME_BYTES, 300_000);
    bytes.extend(vec![0xAB; 300_000]);
    bytes.extend(request(Command::Read, 2, 100, 512));
    bytes.extend(request(Command::Unknown(99), 3, 0, 512));
    bytes.extend(request(Command::Flush, 4, 0, 0));
    raw.write_all(&bytes).unwrap();
    let mut replies = [0; 4 * 16];
    raw.read_exact(&mut replies).unwrap();
    let mut answers: Vec<(u8, u8)> = replies.chunks(16).map(|reply| (reply[15], reply[7])).collect();
    answers.sort_unstable();
    assert_eq!(answers, [(1, 22), (2, 22), (3, 22), (4, 0)], "cookies with their errors");
    drop(raw);
    served.wait_until_all_have_gone();
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let model = plimsoll_devices::build("hdd.deskstar-120", 1).expect("the model is in the registry");
    let volume = memory("v", VOLUME_BYTES, 0);
    let info = volume.info().clone();
    let served = Served::new(EngineConfig::emulated(model, "zygaria"), vec![volume]);
    let mut last = None::<Client>;
    for round in 0u64..4 {
        let mut raw = raw_connection(&served.engine, &info);
        for cookie in 0..50u64 {
            let (command, length) = if cookie % 2 == 0 { (Command::Read, 4096) } else { (Command::Write, 512) };
            let request = Request { flags: CommandFlags::NONE, command, cookie, offset: cookie * 4096, length };
            raw.write_all(&request.encode()).unwrap();
            if command == Command::Write {
                raw.write_all(&[1; 512]).unwrap();
            }
        }
        // One that ends in the middle of a payload.
        let half =
            Request { flags: CommandFlags::NONE, command: Command::Write, cookie: 99, offset: 0, length: 1 << 20 };
        raw.write_all(&half.encode()).unwrap();
        raw.write_all(&vec![2; 1000 * round as usize]).unwrap();
        drop(raw);
        let mut client = served.connect("v", 4, true);
        client.submit(0, Command::Read, CommandFlags::NONE, 0, 4096).unwrap();
        client.send_submitted().unwrap();
        last = Some(client);
    }
    drop(last);
    served.wait_until_all_have_gone();
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}
