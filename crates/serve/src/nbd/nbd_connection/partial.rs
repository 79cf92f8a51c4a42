//! Requests for parts of blocks, from clients that do not negotiate the block size.
//!
//! **Intuition.** Such a client may ask for any bytes (specification, "Block size constraints"); stock `nbd-client` and
//! the kernel behind it ask for multiples of 512. A volume of larger blocks is read and written in whole ones.
//!
//! **Rule.** Of a read, whole blocks are read and the rest is left out of the reply. For a write, the blocks are
//! claimed, so that no other request changes them meanwhile ([`Port::claim`]). Those at its ends are read, and then all
//! are written at once. Zeroes are written into the blocks at the ends, and the blocks between become zero as those of
//! any request. Of a trim, which is advice, blocks that it has only a part of are left as they are.
//!
//! **Complication.** Buffers are for 32 MiB. A read or write of so much that is not of whole blocks is refused.

use super::{NbdConnection, NbdTask, Phase};
use plimsoll_core::{Class, Operation};
use plimsoll_engine::{Buffer, Finished, PAYLOAD_BYTES_MAX, Payload, Port, Submission};
use plimsoll_protocols::nbd::wire::{CommandFlags, Request};
use plimsoll_protocols::nbd::{Command, Errno};
use rustix::io::Errno as SystemErrno;

/// The whole blocks in which the bytes of a request lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// The first byte of the request, and the byte behind its last.
    from: u64,
    to: u64,
    /// Of the blocks.
    start: u64,
    end: u64,
    block_bytes: u64,
}

impl Blocks {
    /// O(1). The request lies in a volume of whole blocks.
    pub(super) fn of(request: &Request, block_bytes: u32) -> Blocks {
        let (from, block_bytes) = (request.offset, u64::from(block_bytes));
        let to = from + u64::from(request.length);
        let (start, end) = (from / block_bytes * block_bytes, to.div_ceil(block_bytes) * block_bytes);
        Blocks { from, to, start, end, block_bytes }
    }

    /// Whether the request is of whole blocks.
    pub(super) fn are_whole(&self) -> bool {
        (self.start, self.end) == (self.from, self.to)
    }

    /// Bytes of the blocks, if a buffer has room for them.
    fn buffer_bytes(&self) -> Option<u32> {
        u32::try_from(self.end - self.start).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX)
    }

    /// Bytes before the request in its first block.
    fn skew(&self) -> u32 {
        (self.from - self.start) as u32
    }

    /// The blocks that the request has only a part of: none, one or two.
    fn edges(&self) -> [Option<u64>; 2] {
        let last = self.end - self.block_bytes;
        let head = (self.from != self.start || (self.to < self.end && last == self.start)).then_some(self.start);
        [head, (self.to != self.end && last != self.start).then_some(last)]
    }

    /// The whole blocks between them: first byte and length, which may be 0.
    fn middle(&self) -> (u64, u32) {
        let (first, last) =
            (self.from.div_ceil(self.block_bytes) * self.block_bytes, self.to / self.block_bytes * self.block_bytes);
        (first, last.saturating_sub(first) as u32)
    }

    /// The request's part of the block at `block`, from the block's first byte.
    fn part_of(&self, block: u64) -> std::ops::Range<usize> {
        let end = block + self.block_bytes;
        (self.from.max(block) - block) as usize..(self.to.min(end) - block) as usize
    }
}

/// What is done next about a change of parts of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Wait until no other request changes the blocks.
    Claim,
    Read(u64),
    /// Write one block, which was read and changed.
    Write(u64),
    /// Write all blocks.
    WriteAll,
    /// Make whole blocks zero.
    Zero,
}

/// A change of parts of blocks under way.
pub(super) struct Partial {
    request: Request,
    blocks: Blocks,
    step: Step,
    /// All blocks of a write, with the client's bytes in their place.
    data: Option<Buffer>,
    /// Room for one block, unless the engine has it.
    block: Option<Buffer>,
}

impl Partial {
    /// What follows the step that has ended; `None`: it is done.
    fn next(&self) -> Option<Step> {
        let edges = self.blocks.edges();
        let [head, tail] = edges.map(|edge| edge.map(Step::Read));
        let middle = || match self.data {
            Some(_) => Some(Step::WriteAll),
            None => (self.blocks.middle().1 > 0).then_some(Step::Zero),
        };
        match self.step {
            Step::Claim => head.or(tail).or_else(middle),
            // Zeroes are written at once; what is to be written waits for the rest.
            Step::Read(block) if self.data.is_none() => Some(Step::Write(block)),
            Step::Read(block) | Step::Write(block) if Some(block) == edges[0] => tail.or_else(middle),
            Step::Read(_) | Step::Write(_) => middle(),
            Step::WriteAll | Step::Zero => None,
        }
    }

    /// The block at `block` was read into `self.block`: combines it with the client's bytes.
    fn was_read(&mut self, block: u64) {
        let Some(read) = &mut self.block else { return };
        let (part, bytes) = (self.blocks.part_of(block), self.blocks.block_bytes as usize);
        let read = &mut read.as_mut_slice()[..bytes];
        match &mut self.data {
            None => read[part].fill(0),
            Some(data) => {
                let whole = &mut data.as_mut_slice()[(block - self.blocks.start) as usize..][..bytes];
                whole[..part.start].copy_from_slice(&read[..part.start]);
                whole[part.end..].copy_from_slice(&read[part.end..]);
            }
        }
    }
}

impl NbdConnection {
    /// Begins a request that is not of whole blocks. The answer is false if there is no room for it now.
    pub(super) fn begin_partial(&mut self, port: &mut Port<'_>, request: Request, blocks: Blocks) -> bool {
        let bytes = match request.command {
            Command::Read | Command::Write => match blocks.buffer_bytes() {
                Some(bytes) => bytes,
                None => {
                    self.inbox.skip(request.payload_bytes());
                    self.refuse(&request, Errno::InvalidArgument);
                    return true;
                }
            },
            _ => 0,
        };
        match request.command {
            Command::Read => {
                let Some(payload) = port.take_read_payload(blocks.start, bytes) else { return false };
                let place = self.take_place(NbdTask { skew: blocks.skew(), ..NbdTask::of(&request) });
                self.submit_blocks(port, place, (Operation::Read, false), (blocks.start, bytes), payload);
            }
            Command::Write => {
                let Some(data) = port.take_buffer(bytes) else { return false };
                let Some(block) = port.take_buffer(blocks.block_bytes as u32) else {
                    port.give_buffer(data);
                    return false;
                };
                self.inbox.receive_part(request, data, blocks.skew(), block);
            }
            Command::Trim => match blocks.middle() {
                (_, 0) => self.outbox.push(&super::wire::simple_reply(request.cookie, Ok(())), None),
                middle => {
                    let (place, kind) =
                        (self.take_place(NbdTask::of(&request)), (Operation::Trim, is_forced(&request)));
                    self.submit_blocks(port, place, kind, middle, Payload::None);
                }
            },
            _ => {
                let Some(block) = port.take_buffer(blocks.block_bytes as u32) else { return false };
                self.change_partially(port, request, None, block);
            }
        }
        true
    }

    /// Begins to change parts of blocks: to `data`, whole blocks with the client's bytes in place, or to zeroes.
    /// `block` has room for one.
    pub(super) fn change_partially(
        &mut self,
        port: &mut Port<'_>,
        request: Request,
        data: Option<Buffer>,
        block: Buffer,
    ) {
        let blocks = Blocks::of(&request, port.volume().block_bytes);
        let place = self.take_place(NbdTask::of(&request));
        self.partials.insert(place, Partial { request, blocks, step: Step::Claim, data, block: Some(block) });
        port.claim(place.into(), blocks.start, blocks.end - blocks.start);
    }

    /// A step of a change of parts of blocks has ended.
    pub(super) fn step_ended(&mut self, port: &mut Port<'_>, mut partial: Partial, finished: Finished) {
        let place = finished.token as u8;
        if let Payload::Buffer { buffer, .. } = finished.payload {
            match partial.step {
                Step::WriteAll => partial.data = Some(buffer),
                _ => partial.block = Some(buffer),
            }
        }
        let result = match (finished.result, partial.step) {
            (Ok(()), Step::Read(block)) => {
                partial.was_read(block);
                Ok(())
            }
            (result, _) => result,
        };
        let next = partial.next().filter(|_| result.is_ok() && self.phase != Phase::Broken);
        let Some(step) = next else { return self.partial_ended(port, place, partial, result) };
        partial.step = step;
        let (one, all) = (partial.blocks.block_bytes as u32, partial.blocks.end - partial.blocks.start);
        let whole = |buffer: Option<Buffer>| buffer.map_or(Payload::None, |buffer| Payload::Buffer { buffer, at: 0 });
        let forced = is_forced(&partial.request);
        let (kind, bytes, payload) = match step {
            Step::Read(block) => ((Operation::Read, false), (block, one), whole(partial.block.take())),
            Step::Write(block) => ((Operation::Write, forced), (block, one), whole(partial.block.take())),
            Step::WriteAll => {
                ((Operation::Write, forced), (partial.blocks.start, all as u32), whole(partial.data.take()))
            }
            Step::Zero | Step::Claim => ((Operation::WriteZeroes, forced), partial.blocks.middle(), Payload::None),
        };
        self.partials.insert(place, partial);
        self.submit_blocks(port, place, kind, bytes, payload);
    }

    fn partial_ended(&mut self, port: &mut Port<'_>, place: u8, partial: Partial, result: Result<(), SystemErrno>) {
        port.give_back_claim(place.into());
        [partial.data, partial.block].into_iter().flatten().for_each(|buffer| port.give_buffer(buffer));
        self.free.push(place);
        if self.phase != Phase::Broken {
            let result = result.map_err(|errno| Errno::from_system(errno.raw_os_error()));
            self.outbox.push(&super::wire::simple_reply(partial.request.cookie, result), None);
        }
    }

    /// Submits a request of whole blocks for the request at `place`.
    fn submit_blocks(
        &mut self,
        port: &mut Port<'_>,
        place: u8,
        (operation, is_forced): (Operation, bool),
        (offset, length): (u64, u32),
        payload: Payload,
    ) {
        let (token, class) = (place.into(), Class::UNCLASSIFIED);
        port.submit(Submission { token, operation, offset, length, is_forced, class, payload });
    }
}

fn is_forced(request: &Request) -> bool {
    request.flags.contains(CommandFlags::FUA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(offset: u64, length: u32, block_bytes: u32) -> Blocks {
        let (flags, command) = (CommandFlags::NONE, Command::Write);
        Blocks::of(&Request { flags, command, cookie: 0, offset, length }, block_bytes)
    }

    proptest! {
        /// Each byte of the request is in an edge or in the middle, and no other one is.
        /// Promise: nbd-any-bytes.
        #[test]
        fn edges_and_middle_are_the_request(offset in 0..300u64, length in 1..200u32, shift in 0..7u32) {
            let blocks = blocks(offset, length, 1 << shift);
            let mut counted = vec![0u8; 1024];
            for block in blocks.edges().into_iter().flatten() {
                prop_assert_eq!(block % (1 << shift), 0);
                let part = blocks.part_of(block);
                prop_assert!(part.len() < 1 << shift, "it has only a part of it");
                part.for_each(|at| counted[block as usize + at] += 1);
            }
            let (start, bytes) = blocks.middle();
            prop_assert!(start % (1 << shift) == 0 && bytes.is_multiple_of(1 << shift));
            (0..u64::from(bytes)).for_each(|at| counted[(start + at) as usize] += 1);
            for (at, count) in (0..).zip(counted) {
                let is_asked = (offset..offset + u64::from(length)).contains(&at);
                prop_assert_eq!(count, u8::from(is_asked), "byte {}", at);
            }
            prop_assert_eq!(blocks.are_whole(), blocks.edges() == [None, None]);
        }
    }
}
