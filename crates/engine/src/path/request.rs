//! Requests under way, and the pieces that the scheduler sees of them.
//!
//! A front end asks for up to 32 MiB at once. Schedulers need smaller pieces, or one request would hold the device
//! while others' deadlines pass. So each request is cut, and is done when its last piece is.

use super::asker::Asker;
use crate::backend::{FileStep, VolumeInfo};
use crate::block_tags::{BlockTag, session_of};
use crate::buffer::Buffer;
use crate::submission::{PAYLOAD_BYTES_MAX, Payload, Submission};
use plimsoll_core::{AccountId, BlockRequest, Class, Operation, RequestId, Span, Time};
use rustix::io::Errno;

/// Largest piece of a read or write, in bytes. On a disk of 100 MB/s it takes 2.6 ms, less than a seek.
pub(crate) const TRANSFER_PIECE_BYTES_MAX: u32 = 256 * 1024;
/// Largest piece of a write-zeroes, in bytes. A file system makes zeroes faster than it writes them.
const ZEROES_PIECE_BYTES_MAX: u32 = 1 << 20;
/// Largest piece of a trim, in bytes. It moves no data, but frees up to 4096 pages of a volume in memory.
const TRIM_PIECE_BYTES_MAX: u32 = 16 << 20;
/// Pieces of one request that are under way at a time. They are enough for 32 MiB, so that only trims and write-zeroes,
/// which may be 4 GiB long, are cut as they go.
const PIECES_MAX: u32 = PAYLOAD_BYTES_MAX / TRANSFER_PIECE_BYTES_MAX;
/// The same for a request without a buffer, which no memory bound covers. With its place in the scheduler a piece takes
/// some 300 bytes, and a client may have hundreds of such requests.
const PIECES_WITHOUT_BUFFER_MAX: u32 = 4;

/// A request: of a front end, of a cache, or of reading ahead.
pub(crate) struct Request {
    pub(crate) asker: Asker,
    pub(crate) volume: u32,
    pub(crate) session: AccountId,
    /// The account that its latency counts as: that of its first piece.
    pub(crate) metered: AccountId,
    /// What was submitted; its token counts for nothing.
    pub(crate) asked: Submission,
    pub(crate) arrived: Time,
    /// Bytes that have been cut into pieces; `None` as long as none was cut.
    cut_bytes: Option<u32>,
    /// Pieces under way.
    pub(crate) pieces: u32,
    /// Of these, those that wait for the scheduler.
    pub(crate) pieces_waiting: u32,
    /// Why the first piece that failed did so.
    pub(crate) error: Option<Errno>,
    /// No front end waits for it any more.
    pub(crate) is_abandoned: bool,
    /// A cache's syncer makes it: maintenance to the request executor.
    pub(crate) is_maintenance: bool,
}

impl Request {
    /// A request for the answer to go to `asker`, which has its own name for it: the submission's counts for nothing.
    #[inline]
    pub(crate) fn new(asker: Asker, volume: u32, session: AccountId, asked: Submission, now: Time) -> Request {
        Request {
            asker,
            volume,
            session,
            metered: session,
            asked,
            arrived: now,
            cut_bytes: None,
            pieces: 0,
            pieces_waiting: 0,
            error: None,
            is_abandoned: false,
            is_maintenance: false,
        }
    }

    /// The longest piece that can be cut off next, as (bytes from the request's start, length), unless all is cut or
    /// enough is under way.
    #[inline]
    pub(crate) fn uncut(&self) -> Option<(u32, u32)> {
        if self.is_cut() {
            return None;
        }
        let start = self.cut_bytes.unwrap_or(0);
        let pieces_max = match self.asked.payload {
            Payload::Buffer { .. } => PIECES_MAX,
            Payload::None | Payload::Volume(_) | Payload::Cache(_) => PIECES_WITHOUT_BUFFER_MAX,
        };
        if self.pieces >= pieces_max {
            return None;
        }
        let length_max = match self.asked.operation {
            Operation::Read | Operation::Write | Operation::Flush => TRANSFER_PIECE_BYTES_MAX,
            Operation::WriteZeroes => ZEROES_PIECE_BYTES_MAX,
            Operation::Trim => TRIM_PIECE_BYTES_MAX,
        };
        Some((start, (self.asked.length - start).min(length_max)))
    }

    /// Whether all of it is cut into pieces, or what is left is given up.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.cut_bytes == Some(self.asked.length)
    }

    /// Cuts off `length` bytes, at most what [`uncut`](Self::uncut) said.
    #[inline]
    pub(crate) fn cut(&mut self, length: u32) {
        self.cut_bytes = Some(self.cut_bytes.unwrap_or(0) + length);
        self.pieces += 1;
    }

    /// Gives up what is not yet cut.
    #[inline]
    pub(crate) fn cut_no_more(&mut self) {
        self.cut_bytes = Some(self.asked.length);
    }
}

/// What a piece still waits for at the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The ring operation on the backing file.
    pub(crate) for_backend: bool,
    /// The time at which the emulated device would be done.
    pub(crate) for_model: bool,
}

/// A piece of a request: what the scheduler orders and the device does.
pub(crate) struct Piece {
    /// Its request, which is gone once an early piece is done.
    pub(crate) request: u32,
    /// First byte, from the request's start.
    pub(crate) start: u32,
    pub(crate) length: u32,
    /// The session with the piece in its queue.
    pub(crate) session: AccountId,
    /// What the levels above know of it.
    pub(crate) tag: BlockTag,
    /// Runs that it counts as.
    pub(crate) runs: u64,
    /// The order in which pieces arrived.
    pub(crate) sequence: u64,
    /// The recording that knows of it, by its number.
    pub(crate) recording: Option<u32>,
    /// The scheduler that dispatched it, counted from the start; `None` while it is queued.
    pub(crate) dispatched_by: Option<u32>,
    /// When it went to the device.
    pub(crate) dispatched: Time,
    /// It went there before the scheduler let it go ([`super::early_reads`]).
    pub(crate) is_early: bool,
    /// Its number as an orphan: an abandoned write that the backend works on ([`super::orphans`]).
    pub(crate) orphan: Option<u64>,
    /// How long the device took, once it has done it.
    pub(crate) service: Option<Span>,
    pub(crate) waits: Waits,
    /// At a file: the step under way, and the bytes that are done.
    pub(crate) step: FileStep,
    pub(crate) done_bytes: u32,
    /// What is written is encrypted into this.
    pub(crate) scratch: Option<Buffer>,
    pub(crate) error: Option<Errno>,
}

impl Piece {
    #[inline]
    pub(crate) fn new(
        (index, request): (u32, &Request),
        start: u32,
        length: u32,
        tag: BlockTag,
        sequence: u64,
    ) -> Piece {
        Piece {
            request: index,
            start,
            length,
            session: match request.asked.operation {
                Operation::Flush => request.session,
                _ => session_of(&tag.causes, request.session),
            },
            tag,
            runs: request.asked.operation.runs(length),
            sequence,
            recording: None,
            dispatched_by: None,
            dispatched: Time::ZERO,
            is_early: false,
            orphan: None,
            service: None,
            waits: Waits { for_backend: false, for_model: false },
            step: FileStep::Sync,
            done_bytes: 0,
            scratch: None,
            error: None,
        }
    }

    /// Bytes that are not done.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.length - self.done_bytes
    }

    /// The piece as a scheduler sees it; `volume_start` is the place of the volume's first byte on the device.
    #[inline]
    pub(crate) fn block_request(&self, index: u32, request: &Request, volume_start: u64) -> BlockRequest {
        let mut block = BlockRequest::new(
            RequestId(u64::from(index)),
            self.session,
            request.asked.operation,
            volume_start + request.asked.offset + u64::from(self.start),
            self.length,
            request.arrived,
        );
        let is_waited_for =
            matches!(request.asked.operation, Operation::Read | Operation::Flush) || request.asked.is_forced;
        block.is_sync = is_waited_for || self.tag.is_sync;
        block.is_forced = request.asked.is_forced;
        block.causes = self.tag.causes.clone();
        block.class = if request.asked.class == Class::UNCLASSIFIED { self.tag.class } else { request.asked.class };
        block.file = self.tag.file;
        block
    }
}

/// Says why `submission` cannot be carried out on a volume, if it cannot.
pub(crate) fn check(volume: &VolumeInfo, submission: &Submission) -> Result<(), Errno> {
    let Submission { operation, offset, length, .. } = *submission;
    if operation == Operation::Flush {
        return Ok(());
    }
    if operation.is_write() && volume.is_read_only {
        return Err(Errno::PERM);
    }
    let is_inside = offset.checked_add(length.into()).is_some_and(|end| end <= volume.size_bytes);
    if !is_inside {
        return Err(if operation == Operation::Write { Errno::NOSPC } else { Errno::INVAL });
    }
    let block_bytes = u64::from(volume.block_bytes);
    if length == 0 || !offset.is_multiple_of(block_bytes) || !u64::from(length).is_multiple_of(block_bytes) {
        return Err(Errno::INVAL);
    }
    if !matches!(operation, Operation::Read | Operation::Write) {
        return Ok(());
    }
    let fits = match &submission.payload {
        Payload::None => false,
        Payload::Buffer { buffer, at } => {
            u64::from(*at).is_multiple_of(block_bytes) && *at as usize + length as usize <= buffer.capacity()
        }
        Payload::Volume(_) => operation == Operation::Read,
        Payload::Cache(_) => false,
    };
    if fits && length <= PAYLOAD_BYTES_MAX { Ok(()) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Arena, BufferClass};

    fn submission(operation: Operation, offset: u64, length: u32) -> Submission {
        let (class, payload) = (Class::UNCLASSIFIED, Payload::None);
        Submission { token: 0, operation, offset, length, is_forced: false, class, payload }
    }

    fn request(operation: Operation, length: u32) -> Request {
        Request::new(Asker::FrontEnd(0, 0), 0, AccountId::ROOT, submission(operation, 0, length), Time::ZERO)
    }

    fn cut_all(request: &mut Request) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| request.uncut().inspect(|&(_, length)| request.cut(length))).collect()
    }

    #[test]
    fn the_largest_transfer_is_cut_at_once_and_a_flush_into_one() {
        let layout = [BufferClass { bytes: PAYLOAD_BYTES_MAX, count: 1 }];
        let mut arena = Arena::new(&layout, None).unwrap();
        let buffer = arena.take(PAYLOAD_BYTES_MAX).unwrap();
        let payload = Payload::Buffer { buffer, at: 0 };
        let submission = Submission { payload, ..submission(Operation::Read, 0, PAYLOAD_BYTES_MAX) };
        let mut read = Request::new(Asker::FrontEnd(0, 0), 0, AccountId::ROOT, submission, Time::ZERO);
        let pieces = cut_all(&mut read);
        assert_eq!(pieces.len(), 128);
        assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
        assert_eq!(pieces.iter().map(|piece| piece.1).sum::<u32>(), PAYLOAD_BYTES_MAX);
        let mut flush = request(Operation::Flush, 0);
        assert_eq!(cut_all(&mut flush), [(0, 0)]);
        if let Payload::Buffer { buffer, .. } = read.asked.payload {
            arena.give(buffer);
        }
    }

    /// Planted break: as many are under way as of one that has a buffer.
    /// Promise: volume-unbuffered.
    #[test]
    fn what_has_no_buffer_is_cut_as_it_goes() {
        for operation in [Operation::WriteZeroes, Operation::Trim] {
            let mut request = request(operation, u32::MAX - 511);
            let mut cut = 0_u64;
            loop {
                let pieces = cut_all(&mut request);
                if pieces.is_empty() && request.pieces == 0 {
                    break;
                }
                for (start, length) in pieces {
                    assert_eq!(u64::from(start), cut);
                    cut += u64::from(length);
                }
                assert!(request.pieces <= PIECES_WITHOUT_BUFFER_MAX, "{}", request.pieces);
                request.pieces -= 1;
            }
            assert_eq!(cut, u64::from(u32::MAX - 511));
        }
    }

    #[test]
    fn what_the_client_says_goes_before_what_is_known_of_the_block() {
        let known = BlockTag { class: Class::JOURNAL, ..BlockTag::default() };
        for (said, expected) in [(0, 7), (19, 19)] {
            let mut write = request(Operation::Write, 512);
            write.asked.class = Class::new(said).unwrap();
            let piece = Piece::new((0, &write), 0, 512, known.clone(), 0);
            assert_eq!(piece.block_request(0, &write, 0).class.number(), expected);
        }
    }

    #[test]
    fn what_a_volume_cannot_do_is_refused() {
        let volume = VolumeInfo { name: "v".into(), size_bytes: 1 << 20, block_bytes: 512, is_read_only: false };
        let of = |operation, offset, length| check(&volume, &submission(operation, offset, length));
        assert_eq!(of(Operation::Trim, 0, 1 << 20), Ok(()));
        assert_eq!(of(Operation::Trim, 512, 1 << 20), Err(Errno::INVAL));
        assert_eq!(of(Operation::Write, u64::MAX - 511, 512), Err(Errno::NOSPC));
        assert_eq!(of(Operation::Trim, 256, 512), Err(Errno::INVAL));
        assert_eq!(of(Operation::Trim, 512, 100), Err(Errno::INVAL));
        assert_eq!(of(Operation::Trim, 512, 0), Err(Errno::INVAL));
        assert_eq!(of(Operation::Read, 0, 512), Err(Errno::INVAL), "no room for the bytes");
        let read_only = VolumeInfo { is_read_only: true, ..volume };
        assert_eq!(check(&read_only, &submission(Operation::Trim, 0, 512)), Err(Errno::PERM));
    }
}
