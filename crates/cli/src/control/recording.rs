//! Sends a recording over the control socket, as long as the client wants it.
//!
//! The client ends a recording by closing its end for sending; the daemon by ending itself. Either way what was
//! recorded is sent, then how much it was, and the connection is closed. A client that reads too slowly loses records:
//! the engine does not wait for it, and no client's I/O does (`plimsoll_engine::Recording`).

use super::conversation::Conversation;
use super::protocol::{Record, RecordedVolume, RecordingEnd, RecordingStart, Records, Response};
use plimsoll_core::{Operation, Span, Time};
use plimsoll_engine::{RecordedRequest, Recording};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;

/// Records in a line at most: about 32 KiB.
const RECORDS_PER_LINE: usize = 512;
/// Time that new records wait to be sent: a sixteenth of the time in which the fastest volumes fill the queue.
const PAUSE: Span = Span::from_millis(20);
/// Pauses without a record after which an empty line goes out, so that the client knows that the daemon works.
const PAUSES_PER_SIGN_OF_LIFE: u32 = 50;

/// A recording that was begun for a client.
pub struct RecordingAnswer {
    device: String,
    recording: Recording,
}

impl RecordingAnswer {
    /// The answer for a recording of the device called `device`.
    pub fn new(device: String, recording: Recording) -> RecordingAnswer {
        RecordingAnswer { device, recording }
    }

    fn start(&self) -> RecordingStart {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let volumes = self.recording.volumes().iter();
        RecordingStart {
            device: self.device.clone(),
            unix_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
            volumes: volumes.map(|(number, name)| RecordedVolume { number: *number, name: name.clone() }).collect(),
        }
    }

    /// Sends everything until the client has enough, the server stops or the engine does. `is_over`: the client has
    /// said already that it wants no more.
    pub(super) fn send(mut self, conversation: &mut Conversation<'_>, mut is_over: bool) -> io::Result<()> {
        conversation.send(&Response::Recording(self.start()))?;
        let started = self.recording.started();
        let (mut requests, mut silent_pauses, mut daemon_ended) = (0, 0, false);
        loop {
            if is_over {
                self.recording.stop();
            }
            silent_pauses += 1;
            loop {
                let taken = self.recording.take(RECORDS_PER_LINE);
                let is_sign_of_life = silent_pauses >= PAUSES_PER_SIGN_OF_LIFE;
                if taken.is_empty() && !is_sign_of_life {
                    break;
                }
                silent_pauses = 0;
                requests += taken.len() as u64;
                let records = taken.iter().map(|request| record(request, started)).collect();
                conversation.send(&Response::Records(Records { records, lost: self.recording.lost() }))?;
            }
            if self.recording.is_over() {
                let daemon_ended = daemon_ended || !is_over;
                let lost = self.recording.lost();
                return conversation.send(&Response::Recorded(RecordingEnd { requests, lost, daemon_ended }));
            }
            if !is_over {
                (is_over, daemon_ended) = wait_for_the_end(conversation)?;
            }
        }
    }
}

fn record(request: &RecordedRequest, started: Time) -> Record {
    let operation = match request.operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Flush => "flush",
        Operation::Trim => "trim",
        Operation::WriteZeroes => "write_zeroes",
    };
    Record(
        request.at.since(started).as_nanos(),
        operation.into(),
        request.volume,
        request.offset,
        request.length,
        request.latency.map(Span::as_nanos),
    )
}

/// Waits a pause; says whether the recording is over, and whether because the server stops.
fn wait_for_the_end(conversation: &Conversation<'_>) -> io::Result<(bool, bool)> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
    let mut polled = [PollFd::new(&conversation.stream, PollFlags::IN), PollFd::new(conversation.stop, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) | Ok(0) => Ok((false, false)),
        Err(errno) => Err(errno.into()),
        Ok(_) => Ok((true, !polled[1].revents().is_empty())),
    }
}
