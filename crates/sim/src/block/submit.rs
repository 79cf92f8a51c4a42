//! How tasks use the block layer.

use super::{Bio, BioEnd, Plug};
use crate::executor::wait::Group;
use crate::machine::Machine;
use plimsoll_core::{Operation, RequestId, Time};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// When a request came, went to the device and was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When it reached the scheduler.
    pub arrived: Time,
    /// When the scheduler gave it to the device.
    pub dispatched: Time,
    /// When the device was done.
    pub completed: Time,
}

impl Machine {
    /// Waits for a free request, submits, and waits until the device is done.
    ///
    /// # Panics
    /// If it is longer than the longest request ([`submit`](Self::submit) cuts) or has an end of its own.
    pub async fn perform(&self, bio: Bio) -> Timing {
        assert!(bio.length <= self.config.request_bytes_max, "a request of {} bytes", bio.length);
        assert!(matches!(bio.end, BioEnd::Nothing), "the end is that the task goes on");
        self.request_slots(bio.is_sync).acquire(&self.executor).await;
        let end = BioEnd::Task(self.executor.current());
        let request = self.block.borrow_mut().add(self.executor.now(), bio, [end], &self.trace);
        self.mark_unsettled();
        Performing { machine: self, request }.await
    }

    /// Submits and does not wait until it is done: its end says what happens then. Waits for free requests, though.
    /// What is longer than a request is cut into several, and its end happens after the last.
    pub async fn submit(&self, bio: Bio) {
        let bytes_max = self.config.request_bytes_max;
        if bio.length <= bytes_max || bio.operation == Operation::Trim {
            let mut bio = bio;
            let end = std::mem::take(&mut bio.end);
            return self.add_request(bio, [end]).await;
        }
        let pieces = Group::default();
        let mut offset = bio.offset;
        while offset < bio.end_offset() {
            let length = (bio.end_offset() - offset).min(u64::from(bytes_max)) as u32;
            pieces.add();
            let piece = Bio { offset, length, end: BioEnd::Nothing, ..bio.clone() };
            self.add_request(piece, [BioEnd::Group(pieces.clone())]).await;
            offset += u64::from(length);
        }
        let machine = self.clone();
        self.executor.spawn(async move {
            pieces.wait(&machine.executor).await;
            machine.end_bio(bio.end, bio.operation);
        });
    }

    /// Submits what a plug holds, neighbours merged, in order of place.
    pub async fn unplug(&self, plug: &mut Plug) {
        self.executor.count_step();
        for (bio, ends) in plug.merged(self.config.request_bytes_max) {
            if bio.length > self.config.request_bytes_max {
                let end = ends.into_iter().next().unwrap_or_default();
                self.submit(Bio { end, ..bio }).await;
            } else {
                self.add_request(bio, ends).await;
            }
        }
    }

    async fn add_request(&self, bio: Bio, ends: impl IntoIterator<Item = BioEnd>) {
        self.request_slots(bio.is_sync).acquire(&self.executor).await;
        self.block.borrow_mut().add(self.executor.now(), bio, ends, &self.trace);
        self.mark_unsettled();
    }
}

struct Performing<'a> {
    machine: &'a Machine,
    request: RequestId,
}

impl Future for Performing<'_> {
    type Output = Timing;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Timing> {
        self.machine.block.borrow_mut().take_timing(self.request).map_or(Poll::Pending, Poll::Ready)
    }
}
