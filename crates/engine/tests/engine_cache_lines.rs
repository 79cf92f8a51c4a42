//! Which session waits behind which before a cache: sessions that write more than the slow device takes, beside one
//! that has hits.

use plimsoll_core::{Class, Operation, Span};
use plimsoll_engine::{BufferClass, EngineConfig, Finished, FrontEnd, Payload, Port, Submission};
use plimsoll_testkit::slow::Slow;
use plimsoll_testkit::{BLOCK, PATIENCE, cached, content, memory, session};
use rustix::io::Errno;
use std::sync::{Arc, Mutex};

const BLOCKS: u64 = 32_768;
/// What the slow device takes for anything.
const SLOW: Span = Span::from_micros(200);

/// The answers that all had so far, in their order: each by its session's name.
type Answers = Arc<Mutex<Vec<&'static str>>>;

/// Asks for the next block when it has an answer, so many at once, without a turn of another thread in between.
struct Stream {
    name: &'static str,
    operation: Operation,
    blocks: std::iter::Cycle<std::ops::Range<u64>>,
    depth: u64,
    /// Answers after which it asks for no more.
    left: u64,
    under_way: u64,
    answers: Answers,
    is_stopped: bool,
}

impl Stream {
    fn boxed(
        name: &'static str,
        operation: Operation,
        blocks: std::ops::Range<u64>,
        depth: u64,
        answers: &Answers,
    ) -> Box<Stream> {
        let (left, blocks) = (blocks.end - blocks.start, blocks.cycle());
        let left = if operation == Operation::Read { u64::MAX } else { left };
        Box::new(Stream {
            name,
            operation,
            blocks,
            depth,
            left,
            under_way: 0,
            answers: answers.clone(),
            is_stopped: false,
        })
    }

    fn ask(&mut self, port: &mut Port<'_>) {
        while self.under_way < self.depth && self.left > 0 && !self.is_stopped {
            let block = self.blocks.next().expect("it goes round");
            let mut buffer = port.take_buffer(BLOCK as u32).expect("there are as many as requests");
            if self.operation == Operation::Write {
                buffer.as_mut_slice().copy_from_slice(&content(block));
            }
            let (operation, payload) = (self.operation, Payload::Buffer { buffer, at: 0 });
            let (offset, length, class) = (block * BLOCK, BLOCK as u32, Class::UNCLASSIFIED);
            port.submit(Submission { token: block, operation, offset, length, is_forced: false, class, payload });
            (self.under_way, self.left) = (self.under_way + 1, self.left - 1);
        }
    }
}

impl FrontEnd for Stream {
    fn buffer_classes(&self) -> &[BufferClass] {
        &[BufferClass { bytes: BLOCK as u32, count: 512 }]
    }

    fn started(&mut self, port: &mut Port<'_>) {
        self.ask(port);
    }

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        assert_eq!(finished.result, Ok(()));
        port.give_payload(finished.payload);
        self.under_way -= 1;
        self.answers.lock().unwrap().push(self.name);
        self.ask(port);
    }

    fn turn_ended(&mut self, _: &mut Port<'_>) {}

    fn stop(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn cut(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn is_finished(&self) -> bool {
        self.is_stopped && self.under_way == 0
    }
}

fn count(answers: &[&'static str], name: &str) -> u64 {
    answers.iter().filter(|&&whose| whose == name).count() as u64
}

/// One session has hits at the fast device's speed, a second writes new blocks, many at once, a third one at a time.
/// Outcome: whenever the slow device lets some in, the third has one of them. Units become free by turns of 32 copies,
/// so that is one of 32 at the least. It is one of nine as a rule, as the third has no second request there when its
/// first is taken.
///
/// Planted break that was seen red: one clock for hits and for turns, on which a line begins at the furthest (the third
/// has 0 blocks).
/// Promise: cache-one-at-a-time.
#[test]
fn a_writer_of_one_block_at_a_time_has_its_part_beside_a_deep_one_and_a_stream_of_hits() {
    const WRITES: u64 = 3000;
    let (model, _) = Slow::new(SLOW, None);
    let (served, _directory) = cached(EngineConfig::emulated(model, "noop"), memory("v", BLOCKS * BLOCK, 0), |_| {});
    let answers = Answers::default();
    let attach = |stream: Box<Stream>| served.engine.attach("v", session(stream.name), stream).unwrap();
    let wait_for = |name: &'static str, least: u64| {
        served.wait_until(name, |_| count(&answers.lock().unwrap(), name) >= least);
    };
    // What it reads is in the cache, and stays there as it is used.
    attach(Stream::boxed("hits", Operation::Read, 0..16, 16, &answers));
    wait_for("hits", 5000);
    attach(Stream::boxed("deep", Operation::Write, 1000..1000 + 2 * WRITES, 256, &answers));
    wait_for("deep", WRITES);
    let before = answers.lock().unwrap().len();
    attach(Stream::boxed("single", Operation::Write, 20_000..20_000 + WRITES, 1, &answers));
    wait_for("deep", 2 * WRITES);
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    let to = answers.iter().rposition(|&whose| whose == "deep").unwrap();
    let [deep, single] = ["deep", "single"].map(|name| count(&answers[before..to], name));
    assert!(single * 64 > deep && deep > 500, "{deep} and {single}");
    served.engine.shutdown(PATIENCE).unwrap();
}
