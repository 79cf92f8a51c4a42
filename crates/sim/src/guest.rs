//! A guest's disk: a file of another machine, its host.
//!
//! ```text
//!   guest:  file system -> block layer -> scheduler -> VirtualDisk
//!                                                          | request, doorbell
//!   host:                         I/O threads in the guest's account: read, write, fdatasync of the image
//!                                                          |
//!                         page cache -> file system -> scheduler -> device
//! ```
//!
//! The guest is a machine like any other, except for its device. That is a queue that threads of the host serve, as
//! QEMU's thread pool does for a virtio disk with a raw image. So the host's scheduler sees the guest's requests to its
//! disk under one account, whichever process of the guest asked. It throttles the guest as a whole (split-level paper,
//! section 7.2).
//!
//! The rule of durability: a flush completes when `fdatasync` of the image has returned, a forced write when it and an
//! `fdatasync` behind it have. So what the guest's file system thinks is durable is durable on the host's device.
//!
//! The complication: a request completes inside of a task of the host, while the guest's block layer asks its device
//! only when time is moved. What is done is kept with its time, and the device's next completion is then the present
//! instant.

use crate::calls::file::File;
use crate::calls::names::NameError;
use crate::executor::Executor;
use crate::executor::wait::WaitQueue;
use crate::machine::Machine;
use plimsoll_core::{AccountId, DeviceProfile, Operation, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Threads of the host that serve one disk at the most (QEMU `util/thread-pool.c`: `max_threads` = 64).
const IO_THREADS: u32 = 64;
/// Requests that the guest's driver keeps at the disk (QEMU `virtio-blk`: `queue-size` = 128 until 4.2).
const QUEUE_SIZE: u32 = 128;

/// How the host's threads reach the image (QEMU `-drive cache=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Through the host's page cache; durable after a flush. QEMU's default since 1.2.
    #[default]
    Writeback,
    /// Past it (O_DIRECT).
    None,
}

/// See the module's text. A [`DeviceModel`] for [`Simulation::add_machine`](crate::Simulation::add_machine).
pub struct VirtualDisk {
    profile: DeviceProfile,
    queue: Rc<Queue>,
}

/// What the guest's driver and the host's threads share.
struct Queue {
    executor: Rc<Executor>,
    waiting: RefCell<VecDeque<DeviceRequest>>,
    doorbell: WaitQueue,
    /// Requests that a thread works on.
    served: Cell<usize>,
    done: RefCell<VecDeque<Finished>>,
    /// Requests taken and not yet given back, counted apart from where they are.
    outstanding: Cell<usize>,
}

impl VirtualDisk {
    /// A disk in the file `image` of `host`, which must have its size. Its threads begin to wait for requests; what
    /// they do is done, and caused, by `account` of the host. They run until the simulation ends and count as no
    /// process.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn new(host: &Machine, image: &str, account: AccountId, cache: CacheMode) -> Result<VirtualDisk, NameError> {
        let inode = host.inode(host.inode_of(image)?);
        let profile = DeviceProfile {
            name: format!("image {image}"),
            capacity_bytes: inode.size(),
            outstanding_max: QUEUE_SIZE,
            ..host.block.borrow().device().profile().clone()
        };
        let queue = Rc::new(Queue {
            executor: host.executor.clone(),
            waiting: RefCell::default(),
            doorbell: WaitQueue::default(),
            served: Cell::new(0),
            done: RefCell::default(),
            outstanding: Cell::new(0),
        });
        let opened = File::new(host.thread(image, account), inode);
        let opened = if cache == CacheMode::None { opened.direct() } else { opened };
        for _ in 0..IO_THREADS {
            let (file, queue) = (opened.in_thread(host.thread(image, account)), queue.clone());
            host.spawn_kernel(async move {
                loop {
                    let request = queue.take().await;
                    perform(&file, &request).await;
                    queue.finish(request.token);
                }
            });
        }
        Ok(VirtualDisk { profile, queue })
    }
}

/// One request of the guest as calls of the host.
async fn perform(file: &File, request: &DeviceRequest) {
    let (offset, length) = (request.offset, u64::from(request.length));
    match request.operation {
        Operation::Read => drop(file.read(offset, length).await),
        Operation::Write | Operation::WriteZeroes => file.write(offset, length).await,
        Operation::Flush => {}
        // QEMU's default is discard=ignore.
        Operation::Trim => return,
    }
    if request.operation == Operation::Flush || request.is_forced {
        file.fdatasync().await;
    }
}

impl Queue {
    /// The next request, for a thread; the first that came is the first taken.
    async fn take(&self) -> DeviceRequest {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            if let Some(request) = next {
                self.served.set(self.served.get() + 1);
                return request;
            }
            self.doorbell.wait(&self.executor).await;
        }
    }

    fn finish(&self, token: u64) {
        self.served.set(self.served.get() - 1);
        self.done.borrow_mut().push_back(Finished { token, at: self.executor.now() });
    }
}

impl DeviceModel for VirtualDisk {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, _now: Time, request: DeviceRequest) {
        let end = request.offset + u64::from(request.length);
        assert!(end <= self.profile.capacity_bytes, "a request ends at {end}, behind the image's end");
        self.queue.outstanding.set(self.queue.outstanding.get() + 1);
        self.queue.waiting.borrow_mut().push_back(request);
        self.queue.doorbell.wake_one(&self.queue.executor);
    }

    fn next_completion(&self) -> Option<Time> {
        self.queue.done.borrow().front().map(|finished| finished.at)
    }

    fn complete(&mut self, _now: Time) -> Option<Finished> {
        let finished = self.queue.done.borrow_mut().pop_front()?;
        self.queue.outstanding.set(self.queue.outstanding.get() - 1);
        Some(finished)
    }

    /// # Panics
    /// If a request was lost between the guest and the host's threads.
    fn outstanding(&self) -> usize {
        let Queue { waiting, served, done, outstanding, .. } = &*self.queue;
        let inside = waiting.borrow().len() + served.get() + done.borrow().len();
        assert_eq!(outstanding.get(), inside, "requests taken and not given back = waiting + served + done");
        inside
    }
}
