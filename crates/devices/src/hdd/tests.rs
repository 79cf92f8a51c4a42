//! Each rule of the drive against a slow and obvious oracle.

use super::geometry::{Geometry, SECTOR_BYTES, SeekCurve};
use super::parameters::{BufferParameters, DESKSTAR_120, HddParameters, SAS_15K, SeekTimes, WD_AAKX};
use super::{Hdd, WriteCache};
use crate::random::Random;
use crate::{DeviceModel, DeviceRequest};
use plimsoll_core::{Operation, Span, Time};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A drive so small that an oracle can walk over all of it.
fn small() -> HddParameters {
    HddParameters {
        name: "small",
        capacity_bytes: 1_000 * SECTOR_BYTES,
        heads: 3,
        zones: 4,
        sectors_per_track_outer: 23,
        sectors_per_track_inner: 11,
        revolution_ns: 1_000_003,
        seek: SeekTimes {
            track_to_track_us: 170,
            average_us: 700,
            full_stroke_us: 1_300,
            write_settle_us: 50,
            start_us: 20,
        },
        head_switch_us: 90,
        command_overhead_us: 10,
        age_max_us: u64::MAX / 1_000,
        ..WD_AAKX
    }
}

/// One sector as the oracle sees it: cylinder, head, stream time of beginning and end.
type Walked = (u64, u64, u64, u64);

/// Walks from sector to sector, track to track, cylinder to cylinder.
fn walk(parameters: &HddParameters, cylinders: u64) -> Vec<Walked> {
    let mut walked = Vec::new();
    let (mut track_ns, cylinders_per_zone) = (0, cylinders / parameters.zones);
    for cylinder in 0..cylinders {
        let zone = cylinder / cylinders_per_zone;
        let fewer = (parameters.sectors_per_track_outer - parameters.sectors_per_track_inner) * zone;
        let sectors = parameters.sectors_per_track_outer - fewer / (parameters.zones - 1);
        for head in 0..parameters.heads {
            for sector in 0..sectors {
                let at = |sector| track_ns + sector * parameters.revolution_ns / sectors;
                walked.push((cylinder, head, at(sector), at(sector + 1)));
            }
            let is_last = head + 1 == parameters.heads;
            let gap_us = if is_last { parameters.seek.track_to_track_us } else { parameters.head_switch_us };
            track_ns += parameters.revolution_ns + gap_us * 1_000;
        }
    }
    walked
}

#[test]
fn every_sector_lies_where_a_walk_over_the_platters_finds_it() {
    let parameters = small();
    let geometry = Geometry::new(&parameters);
    let walked = walk(&parameters, geometry.cylinders());
    assert!(walked.len() as u64 >= geometry.sectors() && geometry.sectors() == 1_000);
    for (sector, &(cylinder, head, begin_ns, end_ns)) in walked.iter().enumerate().take(1_000) {
        for sectors in [1, 2, 11, 12, 24, 70].into_iter().filter(|sectors| sector + sectors <= 1_000) {
            let stretch = geometry.stretch(sector as u64, (sector + sectors) as u64);
            let (_, _, _, last_ns) = walked[sector + sectors - 1];
            assert_eq!((stretch.track.cylinder, stretch.track.head), (cylinder, head));
            assert_eq!((stretch.begin_ns, stretch.end_ns, stretch.sectors()), (begin_ns, last_ns, sectors as u64));
            assert_eq!(stretch.angle_ns, begin_ns % parameters.revolution_ns);
        }
        assert_eq!(geometry.sectors_passed(end_ns), sector as u64 + 1, "just passed");
        assert_eq!(geometry.sectors_passed(end_ns - 1), sector as u64, "not quite passed");
    }
}

#[test]
fn a_seek_takes_on_average_what_the_data_sheet_says() {
    for parameters in [WD_AAKX, DESKSTAR_120, SAS_15K] {
        let cylinders = Geometry::new(&parameters).cylinders();
        let seek = SeekCurve::new(&parameters, cylinders);
        let mut random = Random::new(7);
        let pairs = 200_000;
        let sum_ns: u64 =
            (0..pairs).map(|_| seek.seek_ns(random.below(cylinders).abs_diff(random.below(cylinders)))).sum();
        let mean_us = sum_ns as f64 / f64::from(pairs) / 1e3;
        let known_us = parameters.seek.average_us as f64;
        assert!((mean_us / known_us - 1.0).abs() < 0.005, "{}: {mean_us} us", parameters.name);
        assert_eq!(seek.seek_ns(0), 0);
        assert_eq!(seek.seek_ns(1), parameters.seek.track_to_track_us * 1_000);
        assert!(seek.seek_ns(cylinders).abs_diff(parameters.seek.full_stroke_us * 1_000) <= 1);
        let by_distance: Vec<_> = (0..cylinders).step_by(97).map(|distance| seek.seek_ns(distance)).collect();
        assert!(by_distance.is_sorted(), "{}: a longer seek is never faster", parameters.name);
    }
}

fn request(token: u64, operation: Operation, sector: u64, sectors: u64) -> DeviceRequest {
    let (offset, length) = (sector * SECTOR_BYTES, (sectors * SECTOR_BYTES) as u32);
    DeviceRequest { token, operation, offset, length, is_forced: false }
}

fn forced(request: DeviceRequest) -> DeviceRequest {
    DeviceRequest { is_forced: true, ..request }
}

/// Comes back for every completion until nothing is outstanding: token and time, in the order in which they came.
fn drain(device: &mut dyn DeviceModel) -> Vec<(u64, Time)> {
    let mut finished = Vec::new();
    while let Some(at) = device.next_completion() {
        while let Some(done) = device.complete(at) {
            finished.push((done.token, done.at));
        }
    }
    finished
}

/// The drive as a person would work it out: all writes that have come and are in the window are tried one by one, the
/// platters are turned until the sector comes, and the best is done.
fn oracle(drive: &Hdd, walked: &[Walked], writes: &[(u64, u64, u64)]) -> Vec<(u64, Time)> {
    let parameters = &drive.parameters;
    let (mut free_ns, mut head) = (0, walked[0]);
    let mut waiting: Vec<u64> = (0..writes.len() as u64).collect();
    let mut finished = Vec::new();
    while let Some(&first) = waiting.first() {
        let decided_ns = free_ns.max(writes[first as usize].0 + 1);
        let begin_ns = |token: u64| {
            let (arrived_ns, sector, _) = writes[token as usize];
            let start_ns = free_ns.max(arrived_ns + parameters.command_overhead_us * 1_000);
            let (cylinder, track, stream_ns, _) = walked[sector as usize];
            let distance = cylinder.abs_diff(head.0);
            let switch_ns = if track == head.1 { 0 } else { parameters.head_switch_us * 1_000 };
            let far_us = parameters.seek.start_us + parameters.seek.write_settle_us;
            let far_ns = if distance > 1 { far_us * 1_000 } else { 0 };
            let there_ns = start_ns + drive.seek.seek_ns(distance).max(switch_ns) + far_ns;
            // Every turn brings the sector under the head once; the first one after the arm is there counts.
            let turns = (0..).map(|turn| turn * parameters.revolution_ns + stream_ns % parameters.revolution_ns);
            turns.filter_map(|ns| ns.checked_sub(drive.phase_ns)).find(|ns| *ns >= there_ns).unwrap()
        };
        let seen = waiting.iter().take(parameters.window).filter(|&&token| writes[token as usize].0 < decided_ns);
        let next = *seen.min_by_key(|&&token| begin_ns(token)).unwrap();
        let (_, sector, sectors) = writes[next as usize];
        let last = walked[(sector + sectors - 1) as usize];
        free_ns = begin_ns(next) + last.3 - walked[sector as usize].2;
        head = last;
        waiting.retain(|&token| token != next);
        finished.push((next, Time::from_nanos(free_ns)));
    }
    finished
}

proptest! {
    #[test]
    fn the_drive_serves_what_it_can_reach_soonest(
        seed in any::<u64>(),
        command_overhead_us in 0u64..300,
        steps in proptest::collection::vec((0u64..600_000, 0u64..990, 1u64..10), 1..40),
    ) {
        let parameters = HddParameters { window: 4, command_overhead_us, ..small() };
        let mut drive = Hdd::new(&parameters, seed);
        let walked = walk(&parameters, drive.geometry.cylinders());
        let mut now_ns = 0;
        let writes: Vec<_> = steps.into_iter().map(|(pause_ns, sector, sectors)| {
            now_ns += pause_ns + 1;
            (now_ns, sector, sectors)
        }).collect();
        let expected = oracle(&drive, &walked, &writes);
        for (token, &(at_ns, sector, sectors)) in writes.iter().enumerate() {
            drive.submit(Time::from_nanos(at_ns), request(token as u64, Operation::Write, sector, sectors));
        }
        prop_assert_eq!(drain(&mut drive), expected);
    }

    #[test]
    fn the_write_cache_is_a_set_of_sectors(
        steps in proptest::collection::vec((0u8..4, 0u64..200, 1u64..30), 1..80),
    ) {
        let (mut cache, mut dirty) = (WriteCache::new(10_000 * SECTOR_BYTES), BTreeSet::new());
        for (kind, start, sectors) in steps {
            let end = start + sectors;
            match kind {
                0 | 1 => { cache.insert(start, end); dirty.extend(start..end); }
                2 => { cache.remove(start, end); dirty.retain(|sector| !(start..end).contains(sector)); }
                _ => {
                    let first = dirty.range(start..).next().or(dirty.first()).copied();
                    let piece = cache.take_next(start);
                    // An extent that began before the arm's place is left for the next sweep.
                    prop_assert_eq!(piece.is_some(), first.is_some());
                    for sector in piece.into_iter().flatten() {
                        prop_assert!(dirty.remove(&sector), "{} was clean", sector);
                    }
                }
            }
            prop_assert_eq!(cache.is_clean(), dirty.is_empty());
            prop_assert_eq!(cache.holds(start, end), (start..end).all(|sector| dirty.contains(&sector)));
            let is_first = |sector: &&u64| **sector == 0 || !dirty.contains(&(**sector - 1));
            for &first in dirty.iter().filter(is_first) {
                let end = (first..).find(|sector| !dirty.contains(sector)).unwrap();
                prop_assert!(cache.holds(first, end), "{}..{} is in one piece", first, end);
            }
            let room = 10_000 - dirty.len() as u64;
            prop_assert!(cache.has_room(room, 0) && !cache.has_room(room + 1, 0) && !cache.has_room(room, 1));
        }
    }
}

#[test]
fn a_far_command_is_not_starved_by_near_ones() {
    let age_max = Span::from_millis(100);
    let parameters = HddParameters { age_max_us: 100_000, ..with_write_cache(&DESKSTAR_120, 0) };
    let mut drive = Hdd::new(&parameters, 3);
    let mut random = Random::new(3);
    let mut near = |token| request(token, Operation::Write, random.below(2_000), 8);
    (0..8).for_each(|token| drive.submit(Time::ZERO, near(token)));
    drive.submit(Time::ZERO, request(u64::MAX, Operation::Write, 200_000_000, 8));
    let mut token = 8;
    let waited = loop {
        let at = drive.next_completion().unwrap();
        let done = drive.complete(at).unwrap();
        if done.token == u64::MAX {
            break at.since(Time::ZERO);
        }
        drive.submit(at, near(token));
        token += 1;
        assert!(token < 1_000, "starved");
    };
    // Eight came before it, each may have to age in turn, and none takes longer than a full stroke and a revolution.
    let service_max = Span::from_millis(25);
    assert!(waited > age_max, "it would have been starved: it waited {waited} among {token}");
    assert!(waited <= age_max + service_max * 10, "{waited}");
}

/// Bytes per second of `requests` of `sectors` each at one outstanding, the host thinking for `pause` in between.
fn stream(drive: &mut Hdd, operation: Operation, first: u64, sectors: u64, requests: u64, pause: Span) -> f64 {
    let (begin, mut now) = (drive.free_at, drive.free_at);
    for token in 0..requests {
        drive.submit(now, forced(request(token, operation, first + token * sectors, sectors)));
        now = drive.next_completion().unwrap() + pause;
        assert!(drive.complete(now).is_some());
    }
    (requests * sectors * SECTOR_BYTES) as f64 / now.since(begin).as_secs_f64()
}

#[test]
fn reading_ahead_saves_the_revolution_that_a_host_loses_by_thinking() {
    let pause = Span::from_micros(300);
    let ahead = stream(&mut Hdd::new(&WD_AAKX, 1), Operation::Read, 0, 256, 2_000, pause);
    assert!(ahead > 0.98 * 138e6, "{ahead}");
    let buffer = BufferParameters { read_ahead_bytes: 0, ..WD_AAKX.buffer };
    let without = HddParameters { buffer, ..WD_AAKX };
    let behind = stream(&mut Hdd::new(&without, 1), Operation::Read, 0, 256, 2_000, pause);
    assert!(behind < 0.2 * 138e6, "{behind}");
}

#[test]
fn a_read_that_continues_the_stream_holds_the_arm_until_it_is_done() {
    let mut drive = Hdd::new(&WD_AAKX, 1);
    drive.submit(Time::ZERO, request(0, Operation::Read, 0, 256));
    drive.submit(Time::ZERO, request(1, Operation::Write, 10_000, 8));
    drive.submit(Time::ZERO, request(2, Operation::Read, 256, 4_096));
    let finished = drain(&mut drive);
    assert_eq!(finished.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [0, 2, 1]);
    let streamed = finished[1].1.since(finished[0].1).as_secs_f64();
    // At the mean rate; a switch of heads more or less makes 8 %.
    let media = 4_096.0 * 512.0 / 138e6;
    assert!((streamed / media - 1.0).abs() < 0.1, "{streamed} {media}");
}

#[test]
fn the_buffer_keeps_what_was_read_until_it_is_overwritten() {
    let mut drive = Hdd::new(&WD_AAKX, 1);
    let mut now = Time::ZERO;
    let mut latency = |operation, sector| {
        let submitted = now;
        drive.submit(now, request(0, operation, sector, 8));
        now = drive.next_completion().unwrap();
        drive.complete(now).unwrap();
        now.since(submitted)
    };
    let buffered = Span::from_micros(100);
    let (home, far) = (1_000, 700_000_000);
    assert!(latency(Operation::Read, home) > buffered);
    assert!(latency(Operation::Read, far) > buffered, "the arm leaves");
    assert!(latency(Operation::Read, home) < buffered, "kept");
    assert!(latency(Operation::Write, home) > buffered);
    assert!(latency(Operation::Read, far / 2) > buffered, "the arm leaves again");
    assert!(latency(Operation::Read, home) > buffered, "overwritten");
}

#[test]
fn a_slow_reader_is_as_fast_as_it_asks() {
    // 128 KiB every 2.95 ms and a little is far below the media: the buffer must not add to that.
    let rate = stream(&mut Hdd::new(&WD_AAKX, 1), Operation::Read, 0, 256, 4_000, Span::from_micros(2_700));
    let asked = 131_072.0 / 0.002_95;
    assert!(rate > 0.9 * asked, "{rate} of {asked}");
}

#[test]
fn a_forced_append_waits_for_a_whole_revolution() {
    let appended = stream(&mut Hdd::new(&WD_AAKX, 1), Operation::Write, 1_000_000, 8, 1_000, Span::ZERO);
    let each_ms = 4096.0 / appended * 1e3;
    assert!((8.2..8.6).contains(&each_ms), "{each_ms} ms");
}

#[test]
fn outer_zones_are_faster_than_inner_ones_as_their_tracks_are_longer() {
    let inner_sector = WD_AAKX.capacity_bytes / SECTOR_BYTES - 2_000 * 256;
    let outer = stream(&mut Hdd::new(&WD_AAKX, 1), Operation::Read, 0, 256, 2_000, Span::ZERO);
    let inner = stream(&mut Hdd::new(&WD_AAKX, 1), Operation::Read, inner_sector, 256, 2_000, Span::ZERO);
    let tracks = WD_AAKX.sectors_per_track_outer as f64 / WD_AAKX.sectors_per_track_inner as f64;
    assert!((outer / inner / tracks - 1.0).abs() < 0.02, "{outer} {inner}");
}

#[test]
fn interleaved_streams_are_slower_than_one_and_faster_than_random_reads() {
    let mut drive = Hdd::new(&WD_AAKX, 1);
    let (mut next, far) = ([0, 50_000_000], 256 * 1_000);
    let mut now = Time::ZERO;
    while next[0] < far {
        for sector in &mut next {
            drive.submit(now, request(0, Operation::Read, *sector, 256));
            *sector += 256;
            now = drive.next_completion().unwrap();
            drive.complete(now).unwrap();
        }
    }
    let both = (2 * far * SECTOR_BYTES) as f64 / now.as_secs_f64();
    let random = 131_072.0 * 76.7;
    assert!(both < 0.5 * 138e6 && both > 1.2 * random, "{both}");
}

fn cached() -> HddParameters {
    with_write_cache(&WD_AAKX, 1 << 20)
}

fn with_write_cache(drive: &HddParameters, write_cache_bytes: u64) -> HddParameters {
    HddParameters { buffer: BufferParameters { write_cache_bytes, ..drive.buffer.clone() }, ..drive.clone() }
}

#[test]
fn the_write_cache_answers_at_once_until_it_is_full() {
    let mut drive = Hdd::new(&cached(), 1);
    let mut random = Random::new(1);
    for token in 0..300 {
        drive.submit(Time::ZERO, request(token, Operation::Write, random.below(900_000_000), 8));
    }
    let finished = drain(&mut drive);
    assert_eq!(finished.len(), 300);
    let at_once = finished.iter().filter(|(_, at)| *at < Time::from_nanos(1_000_000)).count();
    // 1 MiB is 256 writes of 4 KiB; one more is on its way to the platters.
    assert!((250..=256).contains(&at_once), "{at_once}");
    assert!(finished[299].1.as_secs_f64() > 44.0 * 0.004, "the others wait for the arm");
}

#[test]
fn a_flush_ends_when_everything_written_before_is_on_the_platters() {
    let mut drive = Hdd::new(&cached(), 1);
    for token in 0..20 {
        drive.submit(Time::ZERO, request(token, Operation::Write, token * 40_000_000, 8));
    }
    let written = Time::from_nanos(1_000_000);
    while drive.complete(written).is_some() {}
    drive.submit(written, request(100, Operation::Flush, 0, 0));
    drive.submit(written, request(101, Operation::Write, 7, 8));
    let finished = drain(&mut drive);
    assert_eq!(
        finished.iter().map(|(token, _)| *token).collect::<Vec<_>>(),
        [101, 100],
        "what comes later may overtake"
    );
    let flushed_at = finished[1].1;
    // Twenty places across the whole disk: each needs a seek, and at best no rotation.
    assert!(flushed_at.as_secs_f64() > 20.0 * 0.003, "{flushed_at:?}");
    let settled = flushed_at + Span::from_secs(1);
    drive.submit(settled, request(102, Operation::Flush, 0, 0));
    assert_eq!(drive.next_completion().unwrap().since(settled), Span::from_micros(50), "nothing was left to flush");
}

#[test]
fn a_flush_waits_for_what_has_left_the_cache_and_not_reached_the_platters() {
    let mut drive = Hdd::new(&cached(), 1);
    drive.submit(Time::ZERO, request(0, Operation::Write, 500_000_000, 8));
    assert!(drive.cache.is_clean() && drive.sectors_leaving == 8, "an idle arm sets out at once");
    let on_platters = drive.free_at;
    let soon = Time::from_nanos(1_000_000);
    drive.submit(soon, request(1, Operation::Flush, 0, 0));
    drive.submit(soon, request(2, Operation::Flush, 0, 0));
    let finished = drain(&mut drive);
    assert!(finished[0].0 == 0 && finished[0].1 < soon);
    assert_eq!(finished[1..], [(1, on_platters), (2, on_platters)]);
}

#[test]
fn a_forced_write_and_the_flush_after_it_bypass_the_cache() {
    let mut drive = Hdd::new(&cached(), 1);
    drive.submit(Time::ZERO, request(1, Operation::Write, 5_000, 8));
    drive.submit(Time::ZERO, forced(request(2, Operation::Write, 500_000_000, 8)));
    let finished = drain(&mut drive);
    assert!(finished[0].0 == 1 && finished[0].1 < Time::from_nanos(200_000));
    assert!(finished[1].0 == 2 && finished[1].1 > Time::from_nanos(4_000_000), "{finished:?}");
}

#[test]
fn a_greedy_cached_writer_leaves_reads_their_turn() {
    let mut drive = Hdd::new(&cached(), 1);
    let mut random = Random::new(5);
    let mut write = |token| request(token, Operation::Write, random.below(900_000_000), 8);
    (1..400).for_each(|token| drive.submit(Time::ZERO, write(token)));
    drive.submit(Time::ZERO, request(0, Operation::Read, 123_456_789, 8));
    let mut token = 400;
    let read_at = loop {
        let at = drive.next_completion().unwrap();
        let done = drive.complete(at).unwrap();
        if done.token == 0 {
            break at;
        }
        drive.submit(at, write(token));
        token += 1;
        assert!(token < 1_000, "the read never had its turn");
    };
    assert!(read_at < Time::from_nanos(100_000_000), "{read_at:?}");
}
