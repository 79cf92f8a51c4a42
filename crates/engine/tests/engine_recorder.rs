//! Recording what a device is asked to do, while tenants go on.

use plimsoll_core::{Operation, Span};
use plimsoll_engine::{EngineError, RECORDER_EVENTS_DEFAULT, RecordedRequest, Recording};
use plimsoll_testkit::{PATIENCE, Served, memory, pause};

const VOLUME_BYTES: u64 = 4 << 20;
/// The second volume's place on the device.
const SECOND_START_BYTES: u64 = 1 << 30;

fn two_volumes() -> Served {
    Served::plain(vec![memory("first", VOLUME_BYTES, 0), memory("second", VOLUME_BYTES, SECOND_START_BYTES)])
}

/// Everything that is still to come of a recording that was stopped.
fn rest(recording: &mut Recording) -> Vec<RecordedRequest> {
    let mut all = Vec::new();
    while !recording.is_over() {
        all.extend(recording.take(1000));
        pause();
    }
    all.extend(recording.take(usize::MAX));
    all
}

#[test]
fn what_clients_asked_is_recorded_as_schedulers_get_it() {
    let served = two_volumes();
    let mut first = served.connect("first", 4, true);
    let mut second = served.connect("second", 4, true);
    first.write(0, &[1; 4096], false).unwrap();

    let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    assert_eq!(recording.volumes(), [(0, "first".to_owned()), (1, "second".to_owned())]);
    first.write(8192, &[2; 4096], false).unwrap();
    second.read(512, &mut [0; 1024]).unwrap();
    // Cut into pieces of 256 KiB.
    first.write(1 << 20, &vec![3; 600 << 10], false).unwrap();
    second.flush().unwrap();
    recording.stop();
    first.write(0, &[4; 4096], false).unwrap();

    let records = rest(&mut recording);
    let what: Vec<_> = records.iter().map(|r| (r.volume, r.operation, r.offset, r.length)).collect();
    let piece = |number: u64, length| (0, Operation::Write, (1 << 20) + number * (256 << 10), length);
    let expected = [
        (0, Operation::Write, 8192, 4096),
        (1, Operation::Read, SECOND_START_BYTES + 512, 1024),
        piece(0, 256 << 10),
        piece(1, 256 << 10),
        piece(2, 88 << 10),
        (1, Operation::Flush, SECOND_START_BYTES, 0),
    ];
    assert_eq!(what, expected, "neither what came before nor what came after");
    assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(records.iter().all(|record| record.at >= recording.started()));
    assert!(records.iter().all(|record| record.latency.is_some_and(|latency| latency < PATIENCE)));
    assert_eq!(recording.lost(), 0);
}

#[test]
fn a_reader_that_sleeps_loses_requests_and_delays_no_tenant() {
    const EVENTS_MAX: usize = 64;
    const WRITES: u64 = 500;
    let served = two_volumes();
    let mut client = served.connect("first", 4, true);
    let mut recording = served.engine.record(EVENTS_MAX).unwrap();
    for number in 0..WRITES {
        // Would never come back if the engine waited for the reader.
        client.write(number * 4096, &[1; 4096], false).unwrap();
    }
    // One after the other, each takes two places: exactly those of the beginning are there.
    assert_eq!(recording.lost(), WRITES - EVENTS_MAX as u64 / 2);
    let taken = recording.take(1000);
    assert!((0..EVENTS_MAX as u64 / 2).map(|number| number * 4096).eq(taken.iter().map(|record| record.offset)));
    client.write(0, &[1; 4096], false).unwrap();
    assert_eq!(recording.take(1000).len(), 1, "there is room again");
}

#[test]
fn one_records_a_device_at_a_time_and_its_end_is_told() {
    let served = two_volumes();
    let recording = served.engine.record(64).unwrap();
    let refused = served.engine.record(64).err().unwrap();
    assert!(matches!(&refused, EngineError::Recorded { .. }));
    assert_eq!(refused.to_string(), "device device is being recorded already");
    drop(recording);
    let mut recording = served.engine.record(64).unwrap();
    served.connect("first", 1, true).flush().unwrap();
    served.engine.shutdown(Span::ZERO).unwrap();
    assert_eq!(rest(&mut recording).len(), 1, "what was recorded is there after the engine has gone");
    assert!(served.engine.record(64).is_err());
}
