//! A client and a device that answers at once, or when it is told to.

use super::*;
use plimsoll_core::Span;

const BLOCK: u32 = 4096;
const VOLUME_BYTES: u64 = 1 << 44;
const SETTINGS: u64 = 1 << 20;
const CHUNK: u64 = 128 << 10;

struct Client {
    reader: Reader,
    now: Time,
    /// Reads that the device had from the client itself.
    alone: u32,
    fetches: Vec<Fetch>,
    /// Most bytes ahead of the only stream.
    ahead_bytes_max: u64,
}

impl Client {
    fn new() -> Client {
        let reader = Reader::new(ReadAhead::new(SETTINGS).unwrap(), VOLUME_BYTES);
        Client { reader, now: Time::ZERO, alone: 0, fetches: Vec::new(), ahead_bytes_max: 0 }
    }

    fn read(&mut self, offset: u64, length: u32) {
        self.now += Span::from_micros(100);
        match self.reader.read(self.now, offset, length) {
            Lookup::Miss => self.alone += 1,
            Lookup::Hit(fetch) => {
                let mut length_so_far = 0;
                self.reader.hand_out(offset, length, |part| length_so_far += part.length);
                assert_eq!(length_so_far, length);
                if let Some(fetch) = fetch {
                    self.reader.ended(fetch.slot, true);
                    self.fetches.push(fetch);
                }
            }
        }
        while let Some(fetch) = self.reader.next_ahead(self.now) {
            self.reader.ended(fetch.slot, true);
            self.fetches.push(fetch);
            let ahead_bytes = (fetch.offset + u64::from(fetch.length)).saturating_sub(offset + u64::from(length));
            self.ahead_bytes_max = self.ahead_bytes_max.max(ahead_bytes);
        }
    }

    fn read_from(&mut self, offset: u64, blocks: u64) {
        (0..blocks).for_each(|number| self.read(offset + number * u64::from(BLOCK), BLOCK));
    }
}

/// Planted breaks that were seen red: a window without a bound; nothing is fetched before it is missed.
/// Promise: read-ahead-large.
#[test]
fn small_reads_in_sequence_become_few_large_ones_and_no_more_than_the_window_is_ahead() {
    let mut client = Client::new();
    client.read_from(0, 3);
    assert_eq!(client.fetches, [Fetch { slot: 0, offset: 8192, length: CHUNK as u32 }], "it begins small");
    client.read_from(3 * 4096, 4096);
    assert_eq!(client.alone, 2, "only those that made the stream");
    let fetched: u64 = client.fetches.iter().map(|fetch| u64::from(fetch.length)).sum();
    assert!(client.fetches.len() <= 4096 * 4096 / CHUNK as usize + 10, "{}", client.fetches.len());
    assert!(client.fetches.windows(2).all(|pair| pair[0].offset + u64::from(pair[0].length) == pair[1].offset));
    assert_eq!(fetched, client.reader.figures().fetched_bytes);
    assert!(client.ahead_bytes_max > SETTINGS - CHUNK, "it grows: {}", client.ahead_bytes_max);
    assert!(client.ahead_bytes_max <= SETTINGS + CHUNK / 2, "and is bounded: {}", client.ahead_bytes_max);
    assert_eq!(client.reader.figures().wasted_bytes, 0);
}

#[test]
fn random_reads_cause_nothing() {
    let mut client = Client::new();
    let mut place = 1u64;
    for _ in 0..10_000 {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        client.read((place >> 24) % (VOLUME_BYTES / 4096) * 4096, BLOCK);
    }
    assert_eq!((client.alone, client.fetches.len()), (10_000, 0));
}

#[test]
fn streams_side_by_side_share_the_slots_and_lose_nothing() {
    for streams in 1..=super::super::streams::STREAMS_MAX as u64 {
        let mut client = Client::new();
        for block in 0..1024 {
            (0..streams).for_each(|stream| client.read((stream << 32) + block * 4096, BLOCK));
        }
        assert_eq!(u64::from(client.alone), 2 * streams);
        let fetches = client.fetches.len() as u64;
        assert!(fetches <= streams * (1024 * 4096 / CHUNK + 9), "{fetches} fetches of {streams} streams");
        assert_eq!(client.reader.figures().wasted_bytes, 0, "{streams} streams");
    }
}

#[test]
fn eight_under_way_out_of_order_are_read_ahead_of() {
    let mut client = Client::new();
    for round in 0..512 {
        [3, 0, 7, 1, 5, 2, 4, 6].iter().for_each(|place| client.read((8 * round + place) * 4096, BLOCK));
    }
    assert!(client.alone < 24, "{}", client.alone);
    assert!(client.fetches.len() < 150, "{}", client.fetches.len());
}

/// Promise: read-ahead-stops.
#[test]
fn a_reader_of_short_stretches_is_soon_left_alone() {
    let mut client = Client::new();
    (0..1000).for_each(|stretch| client.read_from(stretch << 30, 4));
    let first = client.fetches.len();
    assert!(first <= 16, "{first} chunks in vain");
    (1000..2000).for_each(|stretch| client.read_from(stretch << 30, 4));
    assert_eq!(client.fetches.len(), first);
    // A long one is believed in again.
    client.read_from(5000 << 30, 4096);
    assert!(client.fetches.len() > first + 100, "{}", client.fetches.len());
}

/// Promise: read-ahead-stops.
#[test]
fn a_reader_that_skips_most_of_what_was_fetched_is_left_alone() {
    let mut client = Client::new();
    client.read_from(0, 4);
    (0..1000).for_each(|number| client.read(16384 + number * 65536, BLOCK));
    let fetched = client.reader.figures().fetched_bytes;
    assert!(fetched <= 8 * CHUNK, "{fetched} bytes for a stride");
}

#[test]
fn a_session_that_writes_behind_its_reads_keeps_what_is_ahead() {
    let mut client = Client::new();
    for block in 0..2048 {
        client.read(block * 4096, BLOCK);
        client.reader.changed(block * 4096, BLOCK);
    }
    let fetched = client.reader.figures().fetched_bytes;
    assert!(fetched <= 2048 * 4096 + 2 * SETTINGS, "{fetched} bytes");
    assert_eq!(client.alone, 2);
}

/// Planted break that was seen red: a fetch under way is not told of a change.
#[test]
fn what_is_written_is_dropped_also_while_it_is_fetched() {
    let mut reader = Reader::new(ReadAhead::new(SETTINGS).unwrap(), VOLUME_BYTES);
    let read = |reader: &mut Reader, block: u64| reader.read(Time::ZERO, block * 4096, BLOCK);
    assert_eq!([read(&mut reader, 0), read(&mut reader, 1)], [Lookup::Miss; 2]);
    let Lookup::Hit(Some(fetch)) = read(&mut reader, 2) else { panic!("a stream") };
    let mut parts = Vec::new();
    reader.hand_out(2 * 4096, BLOCK, |part| parts.push(part));
    assert_eq!(parts, [ReadSegment { slot: fetch.slot, at_in_slot: 0, at_in_read: 0, length: BLOCK, is_ready: false }]);
    reader.changed(5 * 4096, BLOCK);
    reader.ended(fetch.slot, true);
    // What is behind the change is kept.
    assert_eq!(read(&mut reader, 6), Lookup::Hit(None));
    let Lookup::Hit(Some(again)) = read(&mut reader, 5) else { panic!("it was changed") };
    assert_eq!((again.offset, again.length), (5 * 4096, BLOCK), "up to what is there");
    reader.changed(0, 1 << 20);
    assert!(matches!(read(&mut reader, 7), Lookup::Hit(Some(_))));
}

#[test]
fn a_failure_ends_its_stream_and_no_other() {
    let mut client = Client::new();
    client.read_from(0, 40);
    client.read_from(40 << 20, 2);
    let Lookup::Hit(Some(fetch)) = client.reader.read(client.now, (40 << 20) + 8192, BLOCK) else {
        panic!("a stream of its own")
    };
    client.reader.hand_out((40 << 20) + 8192, BLOCK, |part| assert!(!part.is_ready));
    client.reader.ended(fetch.slot, false);
    assert_eq!(client.reader.streams.count(client.now), 1);
    assert_eq!(client.reader.read(client.now, (40 << 20) + 12288, BLOCK), Lookup::Miss);
    client.read_from(40 * 4096, 1);
    // One that no read waited for.
    client.read_from(41 * 4096, 8);
    while client.reader.next_ahead(client.now).is_none() {
        let end = client.reader.streams.get(0).unwrap().end();
        assert_eq!(client.reader.read(client.now, end, BLOCK), Lookup::Hit(None));
        client.reader.hand_out(end, BLOCK, |part| assert!(part.is_ready));
    }
    let end = client.reader.streams.get(0).unwrap().end();
    let under_way = client.reader.slots.iter().position(|slot| slot.state == State::UnderWay).unwrap();
    client.reader.ended(under_way as u32, false);
    assert_eq!(client.reader.streams.count(client.now), 0);
    assert_eq!(client.reader.read(client.now, end, BLOCK), Lookup::Hit(None), "what is there stays");
    client.reader.close();
    assert!(client.reader.slots.iter().all(|slot| slot.state == State::Free));
}

#[test]
fn a_fetch_ends_with_the_volume() {
    let mut reader = Reader::new(ReadAhead::new(SETTINGS).unwrap(), 64 << 10);
    let fetches: Vec<_> = (0..3).map(|block| reader.read(Time::ZERO, block * 4096, BLOCK)).collect();
    assert_eq!(fetches[2], Lookup::Hit(Some(Fetch { slot: 0, offset: 8192, length: 56 << 10 })));
    reader.hand_out(8192, BLOCK, |_| {});
    reader.ended(0, true);
    assert_eq!(reader.next_ahead(Time::ZERO), None);
}

/// Planted break that was seen red: no stream's room is given up.
#[test]
fn streams_that_have_ended_give_up_their_room() {
    let mut client = Client::new();
    (0..8).for_each(|stream| client.read_from(stream << 32, 20));
    let of_others = |client: &Client| {
        client.reader.slots.iter().filter(|slot| slot.state == State::Ready && slot.base < 7 << 32).count()
    };
    assert!(of_others(&client) >= 14, "{}", of_others(&client));
    let alone = client.alone;
    client.now += Span::from_secs(11);
    client.read_from((7 << 32) + 20 * 4096, 2000);
    assert_eq!((client.alone, of_others(&client)), (alone, 0));
}

/// Planted breaks that were seen red: no stream makes room; files that were read long ago keep theirs.
/// Promise: read-ahead-large.
#[test]
fn files_one_after_another_are_read_ahead_of_each() {
    for (blocks, chunks_ahead) in [(256, 2), (2048, 7)] {
        let mut client = Client::new();
        for file in 0..40u64 {
            let alone = client.alone;
            client.read_from(file << 30, blocks);
            assert_eq!(client.alone - alone, 2, "{blocks}, file {file}: all but what makes the stream");
            let of_file = |slot: &&Slot| slot.state == State::Ready && slot.base >= file << 30;
            let of_file = client.reader.slots.iter().filter(of_file).count();
            assert!(of_file >= chunks_ahead, "{blocks}, file {file}: {of_file} chunks ahead");
        }
        let Figures { fetched_bytes, wasted_bytes, .. } = *client.reader.figures();
        assert!(wasted_bytes <= 40 * SETTINGS, "{wasted_bytes}");
        assert!(fetched_bytes <= 40 * (blocks * 4096 + 2 * SETTINGS), "{fetched_bytes}");
    }
}
