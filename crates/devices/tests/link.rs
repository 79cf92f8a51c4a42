//! A reply goes over a solid-state drive's link in one piece, so a small read waits for a large one.
//!
//! One client reads 128 KiB after 128 KiB, and always has the next request at the drive before the link is free.
//! Another reads 4 KiB anywhere, one at a time. Whatever the scheduler between them chooses, how many of the large
//! requests it has at the drive and how long it keeps each small one, the large ones have 32 of 33 parts of the link at
//! least: between two small replies goes a large one. `docs/schedulers/split_token.md` builds on it.
//!
//! Planted, and red: the link is shared by all replies that are ready.

use plimsoll_core::{Operation, Span, Time};
use plimsoll_devices::flash::{FlashParameters, X25_E, X25_M};
use plimsoll_devices::{DeviceModel, DeviceRequest, flash::Flash};
use proptest::prelude::*;

const LARGE_BYTES: u64 = 128 << 10;
const SMALL_BYTES: u64 = 4096;
const SMALL_TOKEN: u64 = 0;

/// What the scheduler chooses after a reply: how many large requests are at the drive, and after how many microseconds
/// the small one goes there that came meanwhile, if it does not go at once.
#[derive(Clone, Copy, Debug)]
struct Choice {
    depth: usize,
    kept_us: u64,
    place: u64,
}

fn choice() -> impl Strategy<Value = Choice> {
    let kept_us = prop_oneof![3 => Just(0u64), 1 => 0u64..700];
    (2usize..9, kept_us, 0u64..7_000_000).prop_map(|(depth, kept_us, place)| Choice { depth, kept_us, place })
}

/// A drive with both readers.
struct Bench {
    drive: Flash,
    large_sent: u64,
    large_inside: usize,
}

impl Bench {
    fn send(&mut self, now: Time, token: u64, offset: u64, length: u64) {
        let (operation, length) = (Operation::Read, length as u32);
        self.drive.submit(now, DeviceRequest { token, operation, offset, length, is_forced: false });
    }

    fn fill(&mut self, now: Time, depth: usize) {
        while self.large_inside < depth {
            self.large_sent += 1;
            self.large_inside += 1;
            self.send(now, self.large_sent, self.large_sent * LARGE_BYTES, LARGE_BYTES);
        }
    }
}

/// The replies in order, `true` for a small one, and when the last came.
fn replies(parameters: &FlashParameters, choices: &[Choice]) -> (Vec<bool>, Time) {
    let mut bench = Bench { drive: Flash::new(parameters, 1), large_sent: 0, large_inside: 0 };
    let (mut replies, mut now, mut small_at) = (Vec::new(), Time::ZERO, Some(Time::ZERO));
    bench.fill(now, 2);
    while replies.len() < choices.len() {
        let choice = choices[replies.len()];
        let done_at = bench.drive.next_completion().expect("there are always two at the drive");
        if let Some(at) = small_at.filter(|&at| at <= done_at) {
            small_at = None;
            bench.send(at, SMALL_TOKEN, choice.place * SMALL_BYTES, SMALL_BYTES);
            continue;
        }
        now = done_at;
        let finished = bench.drive.complete(now).expect("it said so");
        let is_small = finished.token == SMALL_TOKEN;
        if is_small {
            small_at = Some(now + Span::from_micros(choice.kept_us));
        } else {
            bench.large_inside -= 1;
        }
        bench.fill(now, choice.depth);
        replies.push(is_small);
    }
    (replies, now)
}

proptest! {
    /// Promise: split-deviation.
    #[test]
    fn between_two_small_replies_goes_a_large_one(choices in proptest::collection::vec(choice(), 2..200)) {
        for parameters in [X25_M, X25_E] {
            let (replies, end) = replies(&parameters, &choices);
            prop_assert!(replies.windows(2).all(|two| two != [true, true]), "{replies:?}");
            let larges = replies.iter().filter(|&&is_small| !is_small).count() as f64;
            // All but what the first reply took to be ready.
            let seconds = end.as_secs_f64() - 200e-6;
            let rate = larges * LARGE_BYTES as f64 / seconds;
            let part = rate / parameters.link_bytes_per_second as f64;
            let part_min = LARGE_BYTES as f64 / (LARGE_BYTES + SMALL_BYTES) as f64;
            // The last large reply may lie behind the end.
            prop_assert!(part >= part_min * (1.0 - 2.0 / replies.len() as f64), "{part} of the link");
        }
    }
}
