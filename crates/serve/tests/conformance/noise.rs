//! Bytes that no client sends: random ones, and damaged ones of a good client, from a seed.

use plimsoll_testkit::Random;

/// Bytes of a message of noise at the most.
const NOISE_BYTES_MAX: u64 = 4096;

/// Up to four messages of random bytes.
pub fn noise(random: &mut Random) -> Vec<Vec<u8>> {
    let message = |random: &mut Random| {
        let length = 1 + random.below(NOISE_BYTES_MAX);
        (0..length).map(|_| random.below(256) as u8).collect()
    };
    (0..1 + random.below(4)).map(|_| message(random)).collect()
}

/// What a good client says, damaged in one to three places: bits turned, a number replaced, bytes lost or repeated,
/// messages lost, repeated or exchanged.
pub fn damaged(random: &mut Random, good: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut messages = good.to_vec();
    for _ in 0..1 + random.below(3) {
        let which = random.below(messages.len() as u64) as usize;
        let length = messages[which].len() as u64;
        // Most of what matters stands at the start.
        let at = match random.below(2) {
            0 => random.below(length.min(64)),
            _ => random.below(length),
        } as usize;
        match random.below(8) {
            0 | 1 => messages[which][at] ^= 1 << random.below(8),
            2 => {
                let end = messages[which].len().min(at + 4);
                let number = [[0; 4], [0xff; 4], [0, 0, 0, 1], [0x80, 0, 0, 0]][random.below(4) as usize];
                messages[which][at..end].copy_from_slice(&number[..end - at]);
            }
            3 => messages[which].truncate(at.max(1)),
            4 => {
                let end = messages[which].len().min(at + 1 + random.below(100) as usize);
                let part = messages[which][at..end].to_vec();
                messages[which].splice(at..at, part);
            }
            5 if messages.len() > 1 => _ = messages.remove(which),
            6 => {
                let message = messages[which].clone();
                messages.insert(which, message);
            }
            _ => {
                let other = random.below(messages.len() as u64) as usize;
                messages.swap(which, other);
            }
        }
    }
    messages
}
