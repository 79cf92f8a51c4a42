//! The real server against other people's clients, and our client against other people's servers.
//!
//! A program that is not installed is reported as *not run*; Debian has them in `qemu-utils`, `libnbd-bin`, `fio`,
//! `nbdkit` and `mount` (losetup).

mod programs;

use plimsoll_engine::backend::Volume;
use plimsoll_protocols::nbd::wire::{REQUEST_BYTES, SIMPLE_REPLY_BYTES, simple_reply};
use plimsoll_protocols::nbd::{Command as NbdCommand, CommandFlags, Errno, Request, SharedExports};
use plimsoll_serve::connection::ListenerOptions;
use plimsoll_serve::nbd::client::ClientOptions;
use plimsoll_serve::nbd::{Address, Client, Listener, NbdConnection, export_info, serve};
use plimsoll_testkit::{PATIENCE, Random, Served, file_config, memory, pause, session};
use programs::{LoopDevice, is_installed, run, succeed};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// What a path is called in an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

fn socket_path(served: &Served) -> &Path {
    match served.address() {
        Address::Unix(path) => path,
        Address::Tcp(address) => panic!("{address}"),
    }
}

fn uri(served: &Served, volume: &str) -> String {
    format!("nbd+unix:///{volume}?socket={}", text(socket_path(served)))
}

/// An image with data, holes and zeroes, of a size that is not a multiple of anything large.
fn image(directory: &TempDir, bytes: u64) -> PathBuf {
    let mut random = Random(41);
    let mut content = vec![0; bytes as usize];
    for _ in 0..60 {
        let start = random.below(bytes) as usize;
        let end = content.len().min(start + random.below(300_000) as usize);
        content[start..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
    }
    let path = directory.path().join("image.raw");
    std::fs::write(&path, content).unwrap();
    path
}

/// The same size in memory (`memory`) and in a file (`file`).
fn both_kinds(directory: &TempDir, bytes: u64) -> Served {
    let mut config = file_config("file", &directory.path().join("volume"), Some(bytes));
    config.start_bytes = bytes;
    Served::plain(vec![memory("memory", bytes, 0), Volume::open(config).unwrap()])
}

/// Promise: nbd-clients.
#[test]
fn qemu_img_converts_an_image_there_and_back() {
    if !is_installed("qemu-img") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let bytes = 24 * MIB + 7 * 512;
    let (image, back) = (image(&directory, bytes), directory.path().join("back.raw"));
    let served = both_kinds(&directory, bytes);
    for volume in ["memory", "file"] {
        let uri = uri(&served, volume);
        succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&image), &uri]);
        succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &uri]);
        succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", "-W", "-m", "8", &uri, text(&back)]);
        let is_same = std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap();
        assert!(is_same, "{volume}: what came back is not what was sent");
    }
    served.wait_until_all_have_gone();
}

#[test]
fn qemu_io_reads_what_it_wrote_zeroed_and_discarded() {
    if !is_installed("qemu-io") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let served = both_kinds(&directory, 8 * MIB);
    for volume in ["memory", "file"] {
        let commands = [
            "write -P 0x11 0 1M",
            "write -f -P 0x22 1M 64k",
            "aio_write -P 0x33 2M 2M",
            "aio_flush",
            "write -z 256k 64k",
            "write -z -u 512k 64k",
            "discard 4M 1M",
            "flush",
            "read -P 0x11 0 256k",
            "read -P 0 256k 64k",
            "read -P 0x11 320k 192k",
            "read -P 0 512k 64k",
            "read -P 0x22 1M 64k",
            "read -P 0x33 2M 2M",
            "read -P 0x11 700001 12345",
        ];
        let uri = uri(&served, volume);
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&uri);
        let printed = succeed("qemu-io", &arguments);
        assert!(!printed.contains("Pattern verification failed") && !printed.contains("rror"), "{printed}");
        assert_eq!(printed.matches("read ").count(), 7, "{printed}");
    }
}

#[test]
fn libnbd_tells_what_is_exported() {
    if !is_installed("nbdinfo") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let served = both_kinds(&directory, 8 * MIB);
    let json = succeed("nbdinfo", &["--json", &uri(&served, "file")]);
    let info: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&info["protocol"], &info["structured"]), (&"newstyle-fixed".into(), &true.into()), "{json}");
    let export = &info["exports"][0];
    assert_eq!((&export["export-name"], &export["export-size"]), (&"file".into(), &(8 * MIB).into()), "{json}");
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_df"] {
        assert_eq!(export[can], true, "{can}: {json}");
    }
    for cannot in ["can_cache", "can_fast_zero", "is_read_only", "is_rotational"] {
        assert_eq!(export[cannot], false, "{cannot}: {json}");
    }
    assert!(export["block_size_minimum"].as_u64().unwrap() >= 512, "{json}");
    assert_eq!(export["block_size_maximum"], 32 * MIB, "{json}");
    let list = succeed("nbdinfo", &["--list", "--json", &uri(&served, "")]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let names: Vec<_> = list["exports"].as_array().unwrap().iter().map(|export| &export["export-name"]).collect();
    assert_eq!(names, ["memory", "file"]);
    assert!(!run("nbdinfo", &[&uri(&served, "no such")]).status.success());
}

#[test]
fn nbdinfo_finds_a_volume_over_tcp() {
    if !is_installed("nbdinfo") {
        return;
    }
    let volume = memory("memory", MIB, 1 << 30);
    let (exports, served) = (SharedExports::new(), Served::plain(vec![]));
    exports.add(export_info(volume.info(), false)).unwrap();
    served.engine.add_volume(volume).unwrap();
    let engine = served.engine.clone();
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap(), ListenerOptions::default()).unwrap();
    let serving = serve(listener, exports, move |socket, negotiated, _| {
        let volume = negotiated.export.name.clone();
        engine.attach(&volume, session("client"), Box::new(NbdConnection::new(socket, negotiated))).unwrap();
    });
    let serving = serving.unwrap();
    let uri = serving.address().to_string().replace("tcp:", "nbd://");
    assert_eq!(succeed("nbdinfo", &["--size", &uri]).trim(), "1048576");
}

/// Promise: nbd-clients.
#[test]
fn nbdcopy_copies_there_and_back_over_several_connections() {
    if !is_installed("nbdcopy") {
        return;
    }
    let directory = TempDir::new().unwrap();
    let bytes = 40 * MIB;
    let (image, back) = (image(&directory, bytes), directory.path().join("back.raw"));
    let served = both_kinds(&directory, bytes);
    for (volume, connections) in [("memory", "4"), ("file", "4"), ("file", "1")] {
        let connections = format!("--connections={connections}");
        let uri = uri(&served, volume);
        std::fs::write(&back, vec![9; bytes as usize]).unwrap();
        succeed("nbdcopy", &[&connections, "--requests=16", "--flush", text(&image), &uri]);
        succeed("nbdcopy", &[&connections, "--requests=64", &uri, text(&back)]);
        let is_same = std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap();
        assert!(is_same, "{volume}, {connections}: what came back is not what was sent");
    }
    served.wait_until_all_have_gone();
}

/// Promise: nbd-clients.
#[test]
fn fio_verifies_what_it_wrote() {
    if !is_installed("fio") {
        return;
    }
    if !succeed("fio", &["--enghelp"]).contains("nbd") {
        println!("not run: this fio has no nbd engine");
        return;
    }
    let directory = TempDir::new().unwrap();
    let served = both_kinds(&directory, 64 * MIB);
    for volume in ["memory", "file"] {
        let uri = format!("--uri={}", uri(&served, volume));
        let common = [
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--size=16m",
            "--fsync=64",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ];
        let depth = "--iodepth=32";
        let of_jobs: [&[&str]; 2] = [
            &["--rw=randrw", "--bsrange=512-64k", "--blockalign=512", depth, "--verify=crc32c", "--do_verify=1"],
            &["--rw=write", "--bs=1m", "--iodepth=4", "--verify=sha1", "--do_verify=1"],
        ];
        for of_job in of_jobs {
            let mut arguments = common.to_vec();
            arguments.extend(of_job);
            let printed = succeed("fio", &arguments);
            assert!(printed.contains("err= 0"), "{printed}");
        }
    }
}

/// What a hostile client sends after its handshake.
fn hostile_streams() -> Vec<(&'static str, Vec<u8>)> {
    let request = |command, offset, length| {
        Request { flags: CommandFlags::NONE, command, cookie: 1, offset, length }.encode().to_vec()
    };
    let mut random = Random(7);
    vec![
        ("noise", (0..100_000).map(|_| random.below(256) as u8).collect()),
        ("wrong magic after a request", [request(NbdCommand::Read, 0, 512), vec![0; REQUEST_BYTES]].concat()),
        ("a write above the maximum", request(NbdCommand::Write, 0, (32 << 20) + 512)),
        ("half a request", request(NbdCommand::Read, 0, 512)[..13].to_vec()),
        ("a write without its data", request(NbdCommand::Write, 0, 4096)),
        ("the largest write without its data", request(NbdCommand::Write, 0, 32 << 20)),
        ("reads whose answers nobody takes", request(NbdCommand::Read, 0, 1 << 20).repeat(2_000)),
        ("a disconnect from the last byte that a number can say", request(NbdCommand::Disconnect, u64::MAX, 1)),
        ("a disconnect of blocks that end beyond that", request(NbdCommand::Disconnect, u64::MAX, 0)),
        ("refusals that nobody takes", request(NbdCommand::Unknown(4711), 0, 0).repeat(100_000)),
    ]
}

/// Planted break: the blocks of a disconnect are counted as those of a read are, which ended the engine.
/// Promise: volume-hostile-bytes.
#[test]
fn hostile_bytes_close_their_own_connection_and_no_other() {
    let directory = TempDir::new().unwrap();
    let served = both_kinds(&directory, 8 * MIB);
    for volume in ["memory", "file"] {
        let mut good = served.connect(volume, 1, true);
        let pattern: Vec<u8> = (0..64 * 1024).map(|index| (index % 253) as u8).collect();
        for (what, bytes) in hostile_streams() {
            let mut hostile = handshaken(&served, volume);
            hostile.set_nonblocking(true).unwrap();
            // As much as the server takes: it may close, or wait for us to read.
            let mut rest = &bytes[..];
            while let Ok(sent) = hostile.write(rest)
                && sent > 0
            {
                rest = &rest[sent..];
            }
            good.write(4096, &pattern, false).unwrap();
            let mut read = vec![0; pattern.len()];
            good.read(4096, &mut read).unwrap();
            assert!(read == pattern, "{volume}, {what}: the other connection was harmed");
            drop(hostile);
        }
        good.disconnect().unwrap();
    }
    served.wait_until_all_have_gone();
}

#[test]
fn what_is_not_the_protocol_is_closed_by_the_server() {
    let served = Served::plain(vec![memory("memory", 8 * MIB, 0)]);
    for (what, bytes) in &hostile_streams()[..3] {
        let mut hostile = handshaken(&served, "memory");
        hostile.set_read_timeout(Some(PATIENCE.into())).unwrap();
        let _ = hostile.write_all(bytes);
        let end = hostile.read_to_end(&mut Vec::new());
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(end.as_ref().map_or_else(is_reset, |_| true), "{what}: {end:?}");
    }
}

#[test]
fn the_payload_of_a_refused_write_is_skipped() {
    let served = Served::plain(vec![memory("memory", 8 * MIB, 0)]);
    let mut stream = handshaken(&served, "memory");
    let write = |cookie, offset| {
        let flags = CommandFlags::NONE;
        let header = Request { flags, command: NbdCommand::Write, cookie, offset, length: 1 << 20 }.encode();
        [&header[..], &vec![cookie as u8; 1 << 20]].concat()
    };
    let sender = std::thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        move || stream.write_all(&[write(1, 8 * MIB), write(2, 1), write(3, MIB)].concat()).unwrap()
    });
    // This client did not ask for block sizes, so it may write from the second byte on. Where that is refused, mount of
    // ext4 fails on volumes of 4 KiB blocks.
    for expected in [(1, Err(Errno::NoSpace)), (2, Ok(())), (3, Ok(()))] {
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, simple_reply(expected.0, expected.1));
    }
    sender.join().unwrap();
}

/// A connection past its handshake, without a client behind it.
fn handshaken(served: &Served, volume: &str) -> UnixStream {
    use plimsoll_protocols::nbd::option::{EXPORT_NAME_REPLY_BYTES, GREETING_BYTES, number, option};
    let mut stream = UnixStream::connect(socket_path(served)).unwrap();
    let hello = [&[0, 0, 0, 3][..], &option(number::EXPORT_NAME, volume.len() as u32), volume.as_bytes()].concat();
    stream.write_all(&hello).unwrap();
    stream.read_exact(&mut [0; GREETING_BYTES + EXPORT_NAME_REPLY_BYTES]).unwrap();
    stream
}

/// Promise: volume-flush.
#[test]
fn all_connections_see_what_one_was_answered() {
    let directory = TempDir::new().unwrap();
    let served = both_kinds(&directory, 8 * MIB);
    let (mut writer, mut flusher) = (served.connect("file", 8, true), served.connect("file", 1, false));
    assert!(writer.export().features.multi_connection);
    let mut random = Random(3);
    for round in 0..50u8 {
        let offsets: Vec<u64> = (0..8).map(|_| random.below(8 * MIB / 4096) * 4096).collect();
        for (tag, offset) in offsets.iter().enumerate() {
            writer.submit_write(tag as u32, CommandFlags::NONE, *offset, &[round; 4096]).unwrap();
        }
        for _ in &offsets {
            assert_eq!(writer.receive(|_, _, _| {}).unwrap().result, Ok(()));
        }
        flusher.flush().unwrap();
        // What another process would find, and what the other connection reads.
        let backing = std::fs::read(directory.path().join("volume")).unwrap();
        for offset in offsets {
            let mut read = [0; 4096];
            flusher.read(offset, &mut read).unwrap();
            assert!(read == [round; 4096] && backing[offset as usize..][..4096] == read, "round {round}");
        }
    }
}

/// Promise: volume-flush.
#[test]
fn flushes_and_forced_writes_reach_the_device() {
    let directory = TempDir::new().unwrap();
    let backing = directory.path().join("backing");
    std::fs::write(&backing, vec![0; MIB as usize]).unwrap();
    let Some(device) = LoopDevice::over(&backing) else { return };
    {
        let served = Served::plain(vec![Volume::open(file_config("loop", device.path(), None)).unwrap()]);
        let (mut writer, mut flusher) = (served.connect("loop", 1, true), served.connect("loop", 1, true));
        let start = device.flush_count();
        writer.write(0, &[1; 4096], false).unwrap();
        assert_eq!(device.flush_count(), start, "a plain write does not flush");
        flusher.flush().unwrap();
        let flushed = device.flush_count();
        assert!(flushed > start, "a flush on another connection");
        writer.write(4096, &[2; 4096], true).unwrap();
        let forced = device.flush_count();
        assert!(forced > flushed, "a forced write");
        writer.write_zeroes(8192, 4096, CommandFlags::FUA).unwrap();
        assert!(device.flush_count() > forced, "forced zeroes");
        served.engine.shutdown(PATIENCE).unwrap();
    }
}

/// A server that is killed at the end.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // Already gone is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Our client against another program's server on a Unix socket, over an image of 8 MiB.
fn talk_to_a_rival(program: &str, arguments: impl Fn(&Path, &Path) -> Vec<String>) {
    if !is_installed(program) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (image, socket) = (image(&directory, 8 * MIB), directory.path().join("rival.sock"));
    let mut content = std::fs::read(&image).unwrap();
    let server = Command::new(program).args(arguments(&image, &socket)).spawn().unwrap();
    let _server = Peer(server);
    for structured_replies in [true, false] {
        let options = ClientOptions { structured_replies, depth_max: 16, ..ClientOptions::default() };
        // A socket has a name before a server listens there.
        let connect = || Client::connect(&Address::Unix(socket.clone()), &options);
        let mut tries = (0..PATIENCE.as_nanos() / 5_000_000).map(|_| connect().inspect_err(|_| pause()));
        let mut client = tries.find_map(Result::ok).expect("it listens");
        assert_eq!(client.export().size_bytes, 8 * MIB);
        let mut read = vec![9; content.len()];
        for tag in 0..16u32 {
            client.submit(tag, NbdCommand::Read, CommandFlags::NONE, u64::from(tag) * MIB / 2, 1 << 19).unwrap();
        }
        for _ in 0..16 {
            let completed = client.receive(|tag, at, bytes| {
                read[(tag << 19) as usize + at as usize..][..bytes.len()].copy_from_slice(bytes);
            });
            assert_eq!(completed.unwrap().result, Ok(()));
        }
        assert!(read == content, "{program}: read something else");
        content[4096..12288].fill(structured_replies.into());
        client.write(4096, &content[4096..12288], true).unwrap();
        client.flush().unwrap();
        let error = client.read(8 * MIB, &mut [0; 512]).unwrap_err();
        assert_eq!(error.to_string(), "the server answered: invalid argument");
        client.disconnect().unwrap();
    }
    assert!(std::fs::read(&image).unwrap() == content, "{program}: wrote something else");
}

#[test]
fn our_client_understands_qemu_nbd() {
    talk_to_a_rival("qemu-nbd", |image, socket| {
        ["-f", "raw", "-t", "-k", text(socket), text(image)].map(str::to_owned).to_vec()
    });
}

#[test]
fn our_client_understands_nbdkit() {
    talk_to_a_rival("nbdkit", |image, socket| {
        ["-f", "-U", text(socket), "file", text(image)].map(str::to_owned).to_vec()
    });
}
