//! What a command does on the volume, as a row of reads and writes of limited size.
//!
//! A job is a state machine without I/O. It says what the next [`Step`] is, its owner has that carried out, and tells
//! it the result. Comparing, combining and repeating go over a scratch buffer, [`SCRATCH_BYTES`] at a time. So a
//! verification of a whole volume takes no more memory than one of a block, and lets others go between two steps.

use super::command::Compared;
use super::extents::Extent;
use super::sense::{Answer, Sense};
use plimsoll_core::{Class, Operation};
use rustix::io::Errno;

/// Bytes of the buffer that comparisons read into.
pub const SCRATCH_BYTES: u32 = 64 * 1024;

/// What a job is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// The bytes go to the initiator.
    Read,
    /// The initiator's bytes are written.
    Write,
    /// They are written, read back and compared.
    WriteAndVerify(Compared),
    /// The blocks are read and compared.
    Verify(Compared),
    /// If the blocks are the first half of the initiator's bytes, they become the second.
    CompareAndWrite,
    /// The initiator's bits are set in the blocks.
    OrWrite,
    /// All blocks become the one that the initiator sent; one of zeroes may be given back instead.
    Repeat {
        /// The initiator would like that.
        unmaps: bool,
    },
    /// The blocks become zero.
    Zero,
    /// The blocks of these extents are given back.
    Release(Vec<Extent>),
    /// What was written becomes durable.
    Flush,
}

/// A command on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What is done.
    pub work: Work,
    /// Where.
    pub extent: Extent,
    /// Bytes that the initiator sends for it.
    pub data_out_bytes: u32,
    /// What the initiator says that the blocks are.
    pub class: Class,
    /// What it writes, reads or compares must be durable before the answer.
    pub is_forced: bool,
}

impl Job {
    /// All that was written becomes durable.
    pub(super) fn flush() -> Job {
        let extent = Extent { offset: 0, length: 0 };
        Job { work: Work::Flush, extent, data_out_bytes: 0, class: Class::UNCLASSIFIED, is_forced: false }
    }

    /// What it brought or compared has to be durable before the answer. What it writes is written so.
    fn is_followed_by_a_flush(&self) -> bool {
        self.is_forced && matches!(self.work, Work::Read | Work::Verify(_))
    }

    /// The initiator has to send exactly what the job takes: with less or more, it has meant something else.
    pub fn is_strict(&self) -> bool {
        matches!(self.work, Work::CompareAndWrite | Work::Repeat { .. })
    }
}

/// What a job wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation on the volume.
    Volume {
        /// Which.
        operation: Operation,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Where the bytes are.
        place: Place,
    },
    /// It is over, with no answer but that all went well.
    Done,
}

/// Where a step's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There are none.
    Nowhere,
    /// In the buffer of the initiator's bytes, from so many on.
    Data(u32),
    /// In the scratch buffer, from its start.
    Scratch,
}

/// A job under way.
#[derive(Clone, Debug)]
pub struct JobProgress {
    job: Job,
    /// Bytes that are compared, combined or written, of the stage.
    done: u64,
    stage: Stage,
    /// Which of the extents to release; whether it is written with zeroes because the store has no holes.
    extent: usize,
    has_no_holes: bool,
    /// What to answer after the flush behind a comparison.
    verdict: Option<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Comparing or combining, before a write.
    First,
    Second,
    /// What was written becomes durable. Behind a read or a comparison, not before it: what either has seen may be
    /// newer than what an earlier flush has made durable.
    Flush,
    Over,
}

impl JobProgress {
    /// Begins. The initiator's bytes have all come: they are `data`.
    pub fn new(mut job: Job, data: &[u8]) -> JobProgress {
        if let Work::Repeat { unmaps } = job.work
            && data[..job.data_out_bytes as usize].iter().all(|&byte| byte == 0)
        {
            job.work = if unmaps { Work::Release(vec![job.extent]) } else { Work::Zero };
        }
        let stage = if job.work == Work::Flush { Stage::Flush } else { Stage::First };
        JobProgress { job, done: 0, stage, extent: 0, has_no_holes: false, verdict: None }
    }

    /// What it is about.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The next step.
    pub fn next(&self) -> Step {
        let Extent { offset, length } = self.job.extent;
        let volume =
            |operation, offset, length, place| Step::Volume { operation, offset, length: length as u32, place };
        let left = length - self.done;
        if let Work::Release(extents) = &self.job.work {
            let operation = if self.has_no_holes { Operation::WriteZeroes } else { Operation::Trim };
            let extent = extents.get(self.extent);
            return extent.map_or(Step::Done, |extent| volume(operation, extent.offset, extent.length, Place::Nowhere));
        }
        if self.stage == Stage::Flush {
            return volume(Operation::Flush, 0, 0, Place::Nowhere);
        }
        if left == 0 || self.stage == Stage::Over {
            return Step::Done;
        }
        let whole = |operation, at| volume(operation, offset, length, Place::Data(at));
        let read = volume(Operation::Read, offset + self.done, left.min(SCRATCH_BYTES.into()), Place::Scratch);
        match (&self.job.work, self.stage) {
            (Work::Read, _) => whole(Operation::Read, 0),
            (Work::Write, _) | (Work::WriteAndVerify(_), Stage::First) => whole(Operation::Write, 0),
            (Work::WriteAndVerify(_), Stage::Second) | (Work::Verify(_), _) => read,
            (Work::CompareAndWrite | Work::OrWrite, Stage::First) => read,
            (Work::CompareAndWrite, Stage::Second) => whole(Operation::Write, length as u32),
            (Work::OrWrite, Stage::Second) => whole(Operation::Write, 0),
            (Work::Repeat { .. }, _) => {
                volume(Operation::Write, offset + self.done, left.min(SCRATCH_BYTES.into()), Place::Data(0))
            }
            (Work::Zero, _) => volume(Operation::WriteZeroes, offset, length, Place::Nowhere),
            (Work::Release(_) | Work::Flush, _) | (_, Stage::Flush | Stage::Over) => unreachable!("answered above"),
        }
    }

    /// The step that [`next`](Self::next) said has ended. `read` is what it read into the scratch buffer, `data` are
    /// the initiator's bytes.
    ///
    /// # Errors
    /// What to answer: the volume failed, or what was compared differs.
    pub fn completed(&mut self, result: Result<(), Errno>, read: &[u8], data: &mut [u8]) -> Result<(), Answer> {
        let Step::Volume { operation, length, .. } = self.next() else { return Ok(()) };
        match result {
            Err(Errno::OPNOTSUPP) if operation == Operation::Trim => {
                self.has_no_holes = true;
                return Ok(());
            }
            Err(errno) => return Err(failure(operation, errno).into()),
            Ok(()) => {}
        }
        if matches!(self.job.work, Work::Release(_)) {
            self.extent += 1;
            return Ok(());
        }
        if self.stage == Stage::Flush {
            self.stage = Stage::Over;
            return self.verdict.take().map_or(Ok(()), Err);
        }
        if operation == Operation::Read && self.job.work != Work::Read {
            match self.look_at(read, data) {
                // What differs is made durable as well: the initiator was told of what lies there now.
                Err(answer) if self.job.is_followed_by_a_flush() => {
                    (self.verdict, self.stage) = (Some(answer), Stage::Flush);
                    return Ok(());
                }
                looked => looked?,
            }
        }
        self.done += u64::from(length);
        if self.done >= self.job.extent.length && self.stage == Stage::First {
            let has_second = matches!(self.job.work, Work::WriteAndVerify(_) | Work::CompareAndWrite | Work::OrWrite);
            if has_second {
                (self.stage, self.done) = (Stage::Second, 0);
            } else if self.job.is_followed_by_a_flush() {
                self.stage = Stage::Flush;
            }
        }
        Ok(())
    }

    /// Compares or combines what was read.
    fn look_at(&self, read: &[u8], data: &mut [u8]) -> Result<(), Answer> {
        let at = self.done as usize;
        let differs = |first: usize| Answer::from(Sense::miscompare(first as u64));
        match self.job.work {
            Work::OrWrite => data[at..at + read.len()].iter_mut().zip(read).for_each(|(bits, read)| *bits |= read),
            Work::Verify(Compared::Nothing) | Work::WriteAndVerify(Compared::Nothing) => {}
            Work::Verify(Compared::One) => {
                let block = &data[..self.job.data_out_bytes as usize];
                let differing = read.chunks(block.len()).find_map(|chunk| difference(chunk, block));
                differing.map_or(Ok(()), |first| Err(differs(first)))?;
            }
            _ => difference(read, &data[at..at + read.len()]).map_or(Ok(()), |first| Err(differs(at + first)))?,
        }
        Ok(())
    }
}

/// The first byte in which two stretches of one length differ.
fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other { None } else { one.iter().zip(other).position(|(one, other)| one != other) }
}

/// What to answer when the volume could not do something.
fn failure(operation: Operation, errno: Errno) -> Sense {
    match (operation, errno) {
        (_, Errno::NOSPC | Errno::DQUOT) => Sense::SPACE_ALLOCATION,
        (_, Errno::PERM | Errno::ROFS) => Sense::WRITE_PROTECTED,
        (Operation::Read, _) => Sense::READ_ERROR,
        _ => Sense::WRITE_ERROR,
    }
}
