//! Classes by place (`static_classes`), for volumes with a file system that runs elsewhere: in a guest, behind NBD or
//! iSCSI.
//!
//! What ext4 and XFS keep at fixed places is read from the volume ([`file_system`]) through its engine, in a session
//! `layout` of the volume. So the read sees also what only the cache has. It is repeated when the block with the
//! superblock was written (mkfs, growth; ext4 also writes it now and then), at most every [`LOOK`]. What a request says
//! itself goes before it.

use crate::config::{Configuration, Volume};
use plimsoll_classifiers::file_system::{Bytes, FileSystem, Layout};
use plimsoll_core::{Allocation, Operation};
use plimsoll_engine::backend::VolumeInfo;
use plimsoll_engine::{BlockTag, BlockTags, EngineHandle, SessionConfig};
use plimsoll_protocols::nbd::handshake::Negotiated;
use plimsoll_serve::nbd::client::{Client, ClientError, ClientOptions};
use plimsoll_serve::nbd::{NbdConnection, export_info};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to look whether a superblock was written.
const LOOK: Duration = Duration::from_secs(2);
/// Looks after a write of the superblock: the first may read the version before a write that is still under way.
const LOOKS_AFTER_WRITE: u32 = 2;
/// Reads begin and end at multiples of this, for any size of the volume's blocks.
const ALIGNMENT_BYTES: u64 = 4096;

/// The classes of a volume's fixed places, as its engine asks for them.
struct LayoutTags {
    layout: Option<Arc<Layout>>,
    is_superblock_written: Arc<AtomicBool>,
}

impl BlockTags for LayoutTags {
    fn tag(&self, operation: Operation, offset: u64) -> BlockTag {
        if offset == 0 && operation.is_write() {
            self.is_superblock_written.store(true, Ordering::Release);
        }
        let class = self.layout.as_ref().map(|layout| layout.class(offset)).unwrap_or_default();
        BlockTag { class, ..BlockTag::default() }
    }
}

/// A volume with a layout that is looked at.
struct WatchedVolume {
    name: String,
    engine: EngineHandle,
    info: VolumeInfo,
    layout: Option<Arc<Layout>>,
    is_superblock_written: Arc<AtomicBool>,
    /// Looks still to come.
    looks: u32,
}

/// Ends the thread, also in the middle of a layout. With a limit, or on a slow device, reading a layout may take
/// minutes.
#[derive(Default)]
struct ThreadEnding {
    is_near: AtomicBool,
    /// Over which the thread reads now.
    connection: Mutex<Option<UnixStream>>,
}

impl ThreadEnding {
    fn connection(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Acquire)
    }

    /// Registers the connection of the reads from now on. It is cut off at once if the end has come before.
    fn watch(&self, socket: &UnixStream) -> io::Result<()> {
        let socket = socket.try_clone()?;
        let mut connection = self.connection();
        if self.is_near() {
            socket.shutdown(Shutdown::Both)?;
        }
        *connection = Some(socket);
        Ok(())
    }

    /// Nothing is read now. A noted socket would keep the connection open.
    fn forget(&self) {
        *self.connection() = None;
    }

    fn come(&self) {
        let connection = self.connection();
        self.is_near.store(true, Ordering::Release);
        if let Some(socket) = &*connection {
            // A connection that the engine has closed reads nothing more.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// The thread that reads layouts. Dropping it ends it; the classes stay as they are.
pub(super) struct Layouts {
    stop: Option<Sender<()>>,
    ending: Arc<ThreadEnding>,
    thread: Option<JoinHandle<()>>,
}

impl Layouts {
    /// Looks after the volumes that ask for it.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        configuration: &Configuration,
        infos: &[VolumeInfo],
        engine: impl Fn(&Volume) -> EngineHandle,
    ) -> io::Result<Layouts> {
        let sections = configuration.volumes.iter().zip(infos).filter(|(section, _)| section.has_static_classes);
        let mut watched: Vec<WatchedVolume> =
            sections.map(|(section, info)| WatchedVolume::new(engine(section), info)).collect();
        // Before any client comes, so that no write of a superblock is missed.
        watched.iter().for_each(WatchedVolume::tell);
        let (stop, stopped) = channel::<()>();
        let ending = Arc::new(ThreadEnding::default());
        let seen = ending.clone();
        let work = move || {
            let mut pause = Duration::ZERO;
            while !watched.is_empty() && stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                watched.iter_mut().for_each(|volume| volume.look(&seen));
                pause = LOOK;
            }
        };
        let thread = std::thread::Builder::new().name("layouts".to_owned()).spawn(work)?;
        Ok(Layouts { stop: Some(stop), ending, thread: Some(thread) })
    }
}

impl Drop for Layouts {
    fn drop(&mut self) {
        self.stop = None;
        self.ending.come();
        self.thread.take().map(JoinHandle::join);
    }
}

impl WatchedVolume {
    fn new(engine: EngineHandle, info: &VolumeInfo) -> WatchedVolume {
        // As if the superblock had been written just now.
        let is_superblock_written = Arc::new(AtomicBool::new(true));
        WatchedVolume {
            name: info.name.clone(),
            engine,
            info: info.clone(),
            layout: None,
            is_superblock_written,
            looks: 0,
        }
    }

    fn look(&mut self, ending: &ThreadEnding) {
        if self.is_superblock_written.swap(false, Ordering::Acquire) {
            self.looks = LOOKS_AFTER_WRITE;
        }
        if self.looks == 0 {
            return;
        }
        self.looks -= 1;
        let found = self.read(ending);
        ending.forget();
        if ending.is_near() {
            return;
        }
        match found {
            Ok(layout) => {
                if layout.as_ref() != self.layout.as_deref() {
                    let found = layout.as_ref().map_or("none that Plimsoll knows", |layout| match layout.file_system {
                        FileSystem::Ext4 => "ext4",
                        FileSystem::Xfs => "XFS",
                    });
                    tracing::info!("volume {}: file system {found}; its fixed places have classes", self.name);
                }
                self.layout = layout.map(Arc::new);
            }
            // The file system may be half written; the thread sees the writes that follow.
            Err(why) => {
                tracing::info!("volume {}: static_classes has no effect: {why}", self.name);
                self.layout = None;
            }
        }
        self.tell();
    }

    /// Has the engine ask for the classes that are known now.
    fn tell(&self) {
        let is_superblock_written = self.is_superblock_written.clone();
        let tags = LayoutTags { layout: self.layout.clone(), is_superblock_written };
        if let Err(error) = self.engine.set_tags(&self.name, Some(Box::new(tags))) {
            tracing::warn!("volume {}: static_classes has no effect: {error}", self.name);
        }
    }

    fn read(&self, ending: &ThreadEnding) -> Result<Option<Layout>, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        ending.watch(&ours).map_err(|error| error.to_string())?;
        let export = export_info(&self.info, false);
        let negotiated = Negotiated { export: export.clone(), structured_replies: false, block_size_known: true };
        let session = SessionConfig { name: "layout".to_owned(), allocation: Allocation::default() };
        let front_end = Box::new(NbdConnection::new(OwnedFd::from(theirs), negotiated));
        self.engine.attach(&self.name, session, front_end).map_err(|error| error.to_string())?;
        let options = ClientOptions { structured_replies: false, ..ClientOptions::default() };
        let mut reader = Reader { client: Client::agreed(OwnedFd::from(ours), export, &options) };
        let layout = Layout::read(&mut reader, self.info.size_bytes).map_err(|error| error.to_string());
        // The connection ends in any case when the client is gone.
        let _ = reader.client.disconnect();
        layout
    }
}

/// A volume's bytes through its engine.
struct Reader {
    client: Client,
}

impl Bytes for Reader {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let begin = offset - offset % ALIGNMENT_BYTES;
        let end = (offset + buffer.len() as u64).next_multiple_of(ALIGNMENT_BYTES).min(self.client.export().size_bytes);
        let mut bytes = vec![0; (end - begin) as usize];
        self.client.read(begin, &mut bytes).map_err(|error| match error {
            ClientError::Socket { error, .. } => error,
            error => io::Error::other(error),
        })?;
        let from = (offset - begin) as usize;
        buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
        Ok(())
    }
}
