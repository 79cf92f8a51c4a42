//! The driver for mounts: files that this process serves through FUSE, and, for bytes that no kernel sends, a socket in
//! the place of `/dev/fuse`.

use crate::front::{Answer, Begun, Client, Driver, Front, Gone, Limits, Told};
use plimsoll_core::{Operation, Span};
use plimsoll_engine::EngineHandle;
use plimsoll_engine::backend::VolumeInfo;
use plimsoll_protocols::fuse::limits::PAYLOAD_BYTES_MAX;
use plimsoll_serve::attach::{AttachPlan, Attachment, isolated, recover};
use plimsoll_serve::fuse::FuseConnection;
use plimsoll_testkit::{BLOCK, pause, session};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use tempfile::TempDir;

pub const DRIVER: Driver = Driver {
    name: "mount",
    not_run,
    // The kernel cuts what is larger.
    limits: Limits { bytes_max: PAYLOAD_BYTES_MAX, larger_read: Ok(()), larger_write: Ok(()) },
    serve: |site| Box::new(Fuse { engine: site.engine.clone(), volume: site.volume.clone() }),
};

fn not_run() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounts take root".to_owned());
    }
    let error = File::open("/dev/fuse").err()?;
    Some(format!("/dev/fuse: {error}"))
}

struct Fuse {
    engine: EngineHandle,
    volume: VolumeInfo,
}

impl Fuse {
    fn mount(&self) -> Mounted {
        let directory = tempfile::tempdir().unwrap();
        let (state, _) = recover(&directory.path().join("state")).unwrap();
        let VolumeInfo { name, size_bytes, block_bytes, is_read_only } = self.volume.clone();
        let plan = AttachPlan { volume: name, size_bytes, block_bytes, is_read_only, file_system: None };
        let (attachment, device) = Attachment::mount_disk(&state, plan).unwrap();
        let front_end = Box::new(FuseConnection::new(device));
        self.engine.attach(&self.volume.name, session("mount"), front_end).unwrap();
        Mounted { attachment, _directory: directory }
    }
}

impl Front for Fuse {
    fn connect(&self) -> Box<dyn Client> {
        Box::new(self.mount())
    }

    fn begin(&self, begun: Begun) -> Option<Box<dyn Gone>> {
        let Begun::Whole(operation, block) = begun else {
            println!("not run: mount: the kernel sends whole requests");
            return None;
        };
        let mounted = self.mount();
        let path = mounted.attachment.disk_path();
        let waiting = std::thread::spawn(move || {
            isolated(|| {
                let (file, mut bytes) = (open(&path), [1; BLOCK as usize]);
                match operation {
                    Operation::Read => file.read_exact_at(&mut bytes, block * BLOCK),
                    _ => file.write_all_at(&bytes, block * BLOCK),
                }
                .map_err(|error| Errno::from_io_error(&error))
            })
            .unwrap()
        });
        Some(Box::new(Waiting { mounted, waiting: Some(waiting) }))
    }

    fn messages(&self) -> Vec<Vec<u8>> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        // Number of the file, offset, size; then the rest of a read's or write's head.
        let transfer = |size: u32| words(&[1, 0, 8192, 0, size, 0, 0, 0, 0, 0]);
        vec![
            message(26, &words(&[7, 38, 128 << 10, u32::MAX])),
            message(3, &words(&[0, 0, 0, 0])),
            message(14, &words(&[2, 0])),
            message(16, &[transfer(4096), vec![3; 4096]].concat()),
            message(15, &transfer(4096)),
            message(20, &words(&[1, 0, 0, 0])),
            message(43, &words(&[1, 0, 16_384, 0, 4096, 0, 3, 0])),
            message(15, &transfer(64 << 10)),
            message(17, &[]),
        ]
    }

    fn say(&self, messages: &[Vec<u8>]) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (kernel, device) = pair.unwrap();
        let attached_now = || self.engine.status().unwrap().volumes[0].front_ends;
        let before = attached_now();
        let front_end = Box::new(FuseConnection::new(device));
        let attached = self.engine.attach(&self.volume.name, session("hostile"), front_end).unwrap();
        let mut answer = vec![0; 512 << 10];
        for message in messages {
            // A message of nothing would be the end; one that finds no room is not sent.
            if !message.is_empty() {
                let _ = rustix::net::send(&kernel, message, SendFlags::NOSIGNAL);
            }
            while rustix::net::recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT).is_ok() {}
        }
        pause();
        self.engine.detach(attached, Span::ZERO).unwrap();
        while attached_now() > before {
            pause();
        }
    }
}

/// A request of the kernel: `fuse_in_header` and what follows it.
fn message(number: u32, body: &[u8]) -> Vec<u8> {
    let length = 40 + body.len() as u32;
    let head = [length, number, 7, 0, 1, 0, 0, 0, 1, 0];
    head.into_iter().flat_map(u32::to_ne_bytes).chain(body.iter().copied()).collect()
}

/// A process that waits for a file, while its mount is ended under it.
struct Waiting {
    mounted: Mounted,
    waiting: Option<JoinHandle<Result<(), Option<Errno>>>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.mounted.attachment.detach_from_failed_engine();
        let told = self.waiting.take().unwrap().join().unwrap();
        assert!(std::thread::panicking() || told.is_err(), "the process was told that it has ended");
    }
}

/// The volume as a file, mounted for one client.
struct Mounted {
    attachment: Attachment,
    _directory: TempDir,
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

impl Mounted {
    fn with(&self, work: impl FnOnce(&File) -> std::io::Result<()> + Send) -> Answer {
        let path: PathBuf = self.attachment.disk_path();
        isolated(|| work(&open(&path))).unwrap().map_err(told)
    }

    fn allocate(&self, mode: FallocateFlags, offset: u64, length: u32) -> Answer {
        let mode = mode | FallocateFlags::KEEP_SIZE;
        self.with(|file| Ok(fallocate(file, mode, offset, length.into())?))
    }
}

fn told(error: std::io::Error) -> Told {
    match Errno::from_io_error(&error) {
        // A file ends where the volume does.
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => Told::Refused,
        Some(Errno::INVAL | Errno::NOSPC | Errno::FBIG | Errno::PERM) => Told::Refused,
        Some(Errno::NOTCONN | Errno::CONNABORTED) => Told::Ended,
        _ => Told::Failed,
    }
}

impl Client for Mounted {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Answer {
        self.with(|file| file.read_exact_at(bytes, offset))
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.with(|file| file.write_all_at(bytes, offset))
    }

    /// As a loop device does it.
    fn write_forced(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.with(|file| file.write_all_at(bytes, offset).and_then(|()| file.sync_data()))
    }

    fn flush(&mut self) -> Answer {
        self.with(File::sync_data)
    }

    fn trim(&mut self, offset: u64, length: u32) -> Answer {
        self.allocate(FallocateFlags::PUNCH_HOLE, offset, length)
    }

    fn zero(&mut self, offset: u64, length: u32) -> Answer {
        self.allocate(FallocateFlags::ZERO_RANGE, offset, length)
    }
}
