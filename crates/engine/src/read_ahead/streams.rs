//! Which reads of a session go on where others ended.
//!
//! **Rule.** A read belongs to the run with the end nearest to it, if no more than eight reads of its length lie
//! between. So a client with eight requests under way may send them in any order, and small gaps are no end. A run
//! becomes a **stream** after some reads that each extended it, if they read about all bytes between its first and its
//! last. About means at least half, which leaves out strides, and at most twice, which leaves out a client that reads
//! one place again and again.
//!
//! **Complication.** Random reads begin runs all the time. They have a table of their own, so that they push out each
//! other and never a stream. A stream leaves only for another one, the one that was read longest ago first.

use plimsoll_core::{Span, Time};

/// Streams of a session at a time.
pub(super) const STREAMS_MAX: usize = 8;
/// Runs that may become streams.
const RUNS_MAX: usize = 16;
/// Reads that make a stream, as long as reading ahead is of use. Ours: two may be chance.
pub(super) const READS_MIN: u32 = 3;
/// Reads that make a stream at the most, after so many streams in vain.
const READS_MIN_MAX: u32 = READS_MIN << 6;
/// Time without a read after which a stream is idle: its slots may go. Ours: longer than a program thinks, shorter than
/// a user waits for one.
const IDLE_AFTER: Span = Span::from_secs(10);
/// A stream is idle, too, if its session has read so many times since. Ours: eight streams in turns are read far more
/// often, and of files that are read one after another all but the last few are.
const IDLE_AFTER_READS: u64 = 1024;
/// Reads that may lie between a run's end and the next read of it.
const REACH_READS: u64 = 8;

/// Reads one behind the other.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u64,
    /// The byte after the furthest that was read.
    end: u64,
    /// Bytes that were asked for.
    bytes: u64,
    /// Reads that took the end further.
    reads: u32,
}

impl Run {
    fn new(offset: u64, length: u32) -> Run {
        Run { start: offset, end: offset + u64::from(length), bytes: length.into(), reads: 1 }
    }

    /// Says whether the read took the end further.
    fn add(&mut self, offset: u64, length: u32) -> bool {
        let end = offset + u64::from(length);
        let is_further = end > self.end;
        self.start = self.start.min(offset);
        self.end = self.end.max(end);
        self.bytes += u64::from(length);
        self.reads += u32::from(is_further);
        is_further
    }

    fn is_dense(&self) -> bool {
        let span = self.end - self.start;
        self.bytes <= 2 * span && span <= 2 * self.bytes
    }
}

/// A run that is read ahead of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    run: Run,
    /// Chunks that may be ahead of it.
    pub(super) window: u32,
    /// The byte after the last that was fetched for it.
    pub(super) ahead_to: u64,
    /// When it was read last, by the clock and by the count of reads.
    read_at: Time,
    read_number: u64,
}

impl Stream {
    /// The byte after the furthest that was read.
    pub(super) fn end(&self) -> u64 {
        self.run.end
    }

    /// How many reads of its session there were when it was read last.
    pub(super) fn read_number(&self) -> u64 {
        self.read_number
    }
}

/// What a read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// To no stream.
    Nowhere,
    /// To this one.
    To(usize),
    /// To this one, which has begun with it; what was here before has ended.
    Begins(usize),
}

/// The runs and streams of a session.
#[derive(Debug)]
pub(super) struct Streams {
    streams: [Option<Stream>; STREAMS_MAX],
    runs: [Run; RUNS_MAX],
    /// The run that was begun longest ago.
    oldest_run: usize,
    /// Reads that make a stream.
    reads_min: u32,
    reads: u64,
    chunk_bytes: u32,
    window_max: u32,
}

impl Streams {
    pub(super) fn new(chunk_bytes: u32, window_max: u32) -> Streams {
        Streams {
            streams: [None; STREAMS_MAX],
            runs: [Run::default(); RUNS_MAX],
            oldest_run: 0,
            reads_min: READS_MIN,
            reads: 0,
            chunk_bytes,
            window_max,
        }
    }

    /// A read has come. O(streams + runs).
    pub(super) fn read(&mut self, now: Time, offset: u64, length: u32) -> Belongs {
        self.reads += 1;
        let reach = REACH_READS * u64::from(length);
        if let Some(number) = self.stream_of(offset, reach) {
            let stream = self.streams[number].as_mut().expect("just found");
            stream.run.add(offset, length);
            (stream.read_at, stream.read_number) = (now, self.reads);
            return Belongs::To(number);
        }
        let nearest = (0..RUNS_MAX).filter(|&number| self.runs[number].reads > 0);
        let nearest = nearest.min_by_key(|&number| self.runs[number].end.abs_diff(offset));
        let Some(number) = nearest.filter(|&number| self.runs[number].end.abs_diff(offset) <= reach) else {
            self.runs[self.oldest_run] = Run::new(offset, length);
            self.oldest_run = (self.oldest_run + 1) % RUNS_MAX;
            return Belongs::Nowhere;
        };
        let run = &mut self.runs[number];
        if !run.add(offset, length) || run.reads < self.reads_min || !run.is_dense() {
            return Belongs::Nowhere;
        }
        let run = std::mem::take(run);
        let place = (0..STREAMS_MAX).min_by_key(|&place| self.streams[place].map(|stream| stream.read_number));
        let place = place.expect("there are places");
        let (read_at, read_number) = (now, self.reads);
        // Nothing of it was fetched: what it lacks begins where it is read.
        self.streams[place] = Some(Stream { run, window: 1, ahead_to: 0, read_at, read_number });
        Belongs::Begins(place)
    }

    fn stream_of(&self, offset: u64, reach: u64) -> Option<usize> {
        let distance = |number: &usize| {
            let stream = self.streams[*number].as_ref()?;
            let distance = stream.run.end.abs_diff(offset);
            let is_ahead = (stream.run.end..stream.ahead_to).contains(&offset);
            (is_ahead || distance <= reach.max(self.chunk_bytes.into())).then_some(distance)
        };
        let near = (0..STREAMS_MAX).filter_map(|number| Some((distance(&number)?, number)));
        near.min().map(|(_, number)| number)
    }

    pub(super) fn get(&self, number: usize) -> Option<&Stream> {
        self.streams.get(number)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Stream> {
        self.streams.get_mut(number)?.as_mut()
    }

    pub(super) fn is_idle(&self, now: Time, stream: &Stream) -> bool {
        now.since(stream.read_at) > IDLE_AFTER || self.reads - stream.read_number > IDLE_AFTER_READS
    }

    /// Streams that are not idle.
    pub(super) fn count(&self, now: Time) -> u32 {
        self.streams.iter().flatten().filter(|stream| !self.is_idle(now, stream)).count() as u32
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        (0..STREAMS_MAX).filter(|&number| self.streams[number].is_some())
    }

    /// A chunk of the stream was of use.
    pub(super) fn paid_off(&mut self, number: usize) {
        self.reads_min = (self.reads_min / 2).max(READS_MIN);
        let window_max = self.window_max;
        if let Some(stream) = self.get_mut(number) {
            stream.window = (2 * stream.window).min(window_max);
        }
    }

    /// A chunk of the stream was of no use. Says whether the stream has ended with it.
    pub(super) fn was_in_vain(&mut self, number: usize) -> bool {
        let Some(stream) = self.get_mut(number) else { return false };
        stream.window /= 2;
        let has_ended = stream.window == 0;
        if has_ended {
            self.streams[number] = None;
            self.distrust();
        }
        has_ended
    }

    /// The stream is read ahead of no more.
    pub(super) fn end(&mut self, number: usize) {
        self.streams[number] = None;
    }

    /// The data fetched for a stream was useless: the next streams have to prove themselves for longer.
    pub(super) fn distrust(&mut self) {
        self.reads_min = (2 * self.reads_min).min(READS_MIN_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u32 = 128 << 10;

    fn feed(streams: &mut Streams, reads: impl IntoIterator<Item = (u64, u32)>) -> Vec<Belongs> {
        let read = |(offset, length)| streams.read(Time::ZERO, offset, length);
        reads.into_iter().map(read).collect()
    }

    #[test]
    fn the_third_read_in_sequence_begins_a_stream_and_the_next_belong_to_it() {
        let mut streams = Streams::new(CHUNK, 8);
        let belongs = feed(&mut streams, (0..5).map(|number| ((1 << 30) | (number * 4096), 4096)));
        let expected = [Belongs::Nowhere, Belongs::Nowhere, Belongs::Begins(0), Belongs::To(0), Belongs::To(0)];
        assert_eq!(belongs, expected);
    }

    #[test]
    fn eight_under_way_in_any_order_are_one_stream() {
        let mut streams = Streams::new(CHUNK, 8);
        let order = [3, 0, 7, 1, 5, 2, 4, 6];
        let reads = (0..8).flat_map(|round| order.map(|place| ((8 * round + place) * 4096, 4096)));
        let belongs = feed(&mut streams, reads);
        assert!(belongs[16..].iter().all(|&belongs| belongs == Belongs::To(0)), "{belongs:?}");
        assert_eq!(streams.count(Time::ZERO), 1);
    }

    #[test]
    fn strides_repetitions_and_reads_that_go_backwards_are_no_streams() {
        let mut streams = Streams::new(CHUNK, 8);
        let strides = (0..100).map(|number| (number * 16384, 4096));
        let again = (0..100).map(|_| (1 << 40, 4096));
        let backwards = (0..100).map(|number| ((2 << 40) - number * 4096, 4096));
        assert!(feed(&mut streams, strides.chain(again).chain(backwards)).iter().all(|&b| b == Belongs::Nowhere));
    }

    #[test]
    fn random_reads_push_out_no_stream() {
        let mut streams = Streams::new(CHUNK, 8);
        feed(&mut streams, (0..3).map(|number| (number * 4096, 4096)));
        feed(&mut streams, (1..1000).map(|number| (number << 30, 4096)));
        assert_eq!(feed(&mut streams, [(3 * 4096, 4096)]), [Belongs::To(0)]);
    }

    #[test]
    fn the_ninth_stream_takes_the_place_of_the_one_that_was_read_longest_ago() {
        let mut streams = Streams::new(CHUNK, 8);
        for number in 0..8 {
            let belongs = feed(&mut streams, (0..3).map(|place| ((number << 30) | (place * 4096), 4096)));
            assert_eq!(belongs[2], Belongs::Begins(number as usize));
        }
        feed(&mut streams, [(3 * 4096, 4096)]);
        let belongs = feed(&mut streams, (0..3).map(|place| ((9 << 30) | (place * 4096), 4096)));
        assert_eq!(belongs[2], Belongs::Begins(1), "the first one was read again");
    }

    #[test]
    fn streams_in_vain_make_the_next_prove_themselves_and_use_forgives() {
        let mut streams = Streams::new(CHUNK, 8);
        for vain in 0..8u64 {
            let reads_min = (u64::from(READS_MIN) << vain).min(READS_MIN_MAX.into());
            let belongs = feed(&mut streams, (0..reads_min).map(|place| ((vain << 40) | (place * 4096), 4096)));
            assert_eq!(belongs.last(), Some(&Belongs::Begins(0)), "after {reads_min} reads");
            assert!(belongs[..belongs.len() - 1].iter().all(|&belongs| belongs == Belongs::Nowhere));
            assert!(streams.was_in_vain(0));
        }
        (0..6).for_each(|_| streams.paid_off(0));
        assert_eq!(streams.reads_min, READS_MIN);
    }

    #[test]
    fn the_window_doubles_up_to_its_bound_and_halves() {
        let mut streams = Streams::new(CHUNK, 8);
        feed(&mut streams, (0..3).map(|number| (number * 4096, 4096)));
        let window = |streams: &Streams| streams.get(0).map(|stream| stream.window);
        let windows: Vec<_> = (0..5).map(|_| (window(&streams), streams.paid_off(0)).0).collect();
        assert_eq!(windows, [1, 2, 4, 8, 8].map(Some));
        let ends: Vec<_> = (0..4).map(|_| streams.was_in_vain(0)).collect();
        assert_eq!((ends, window(&streams)), (vec![false, false, false, true], None));
    }
}
