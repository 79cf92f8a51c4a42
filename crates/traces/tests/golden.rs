//! Real traces, against figures that a script in another language took from the same files by the formats' definitions.

mod support;

use plimsoll_core::{Operation, Span, Time};
use plimsoll_traces::{Format, TraceRecord, open};
use std::collections::BTreeMap;
use support::real_trace;

/// What is known of a trace.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    records: usize,
    reads: usize,
    read_bytes: u64,
    written_bytes: u64,
    devices: usize,
    first_ns: u64,
    last_ns: u64,
    /// The byte after the last one that is touched.
    end: u64,
    response_ns: u64,
    /// The sum of sector times place, counted from 1, modulo 2^64: any record in another place changes it.
    order: u64,
}

fn figures(records: &[TraceRecord]) -> Figures {
    let is_read = |record: &&TraceRecord| record.operation == Operation::Read;
    let devices: BTreeMap<_, _> = records.iter().map(|record| (record.device, ())).collect();
    let place = |(index, record): (usize, &TraceRecord)| (index as u64 + 1).wrapping_mul(record.offset / 512);
    let at = |record: Option<&TraceRecord>| record.map_or(Time::ZERO, |record| record.at).as_nanos();
    Figures {
        records: records.len(),
        reads: records.iter().filter(is_read).count(),
        read_bytes: records.iter().filter(is_read).map(|record| record.length).sum(),
        written_bytes: records.iter().filter(|record| !is_read(record)).map(|record| record.length).sum(),
        devices: devices.len(),
        first_ns: at(records.first()),
        last_ns: at(records.last()),
        end: records.iter().map(TraceRecord::end).max().unwrap_or(0),
        response_ns: records.iter().filter_map(|record| record.response).sum::<Span>().as_nanos(),
        order: records.iter().enumerate().map(place).fold(0, u64::wrapping_add),
    }
}

/// The records of the trace `name`, which must be taken for `format` and have the figures; none if the file is absent.
fn check(name: &str, format: Format, expected: Figures) -> Vec<TraceRecord> {
    let Some(path) = real_trace(name) else { return Vec::new() };
    let reader = open(path, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reader.format(), format, "{name}");
    let (records, error) = support::drain(reader);
    assert!(error.is_none(), "{}", error.unwrap());
    assert!(records.is_sorted_by_key(|record| record.at), "{name}");
    assert_eq!(figures(&records), expected, "{name}");
    records
}

#[test]
fn tencent() {
    let expected = Figures {
        records: 50_000,
        reads: 24_521,
        read_bytes: 646_755_328,
        written_bytes: 871_636_992,
        devices: 2038,
        first_ns: 1_538_323_199_000_000_000,
        last_ns: 1_538_323_200_000_000_000,
        end: 1_669_048_770_560,
        response_ns: 0,
        order: 100_044_313_732_856_459,
    };
    check("cloud_storage-sample.bz2", Format::Tencent, expected);
}

#[test]
fn cloudphysics_as_text_and_binary() {
    let text = Figures {
        records: 113_872,
        reads: 46_974,
        read_bytes: 1_797_412_352,
        written_bytes: 2_408_565_760,
        devices: 1,
        first_ns: 5_633_898_000_000_000,
        last_ns: 5_641_098_000_000_000,
        end: 33_584_938_496,
        response_ns: 0,
        order: 185_480_605_573_491_364,
    };
    let binary = Figures { first_ns: 5_633_898_368_802_000, last_ns: 5_641_098_458_687_000, ..text };
    let text = check("cloudphysics.csv.zst", Format::CloudPhysics, Figures { ..text });
    let binary = check("cloudphysics.vscsi.zst", Format::Vscsi, binary);
    let whole_seconds = |record: &TraceRecord| {
        let at_ns = record.at.as_nanos() / 1_000_000_000 * 1_000_000_000;
        TraceRecord { at: Time::from_nanos(at_ns), ..*record }
    };
    assert!(text.iter().copied().eq(binary.iter().map(whole_seconds)), "the same requests");
}

#[test]
fn disksim() {
    let expected = Figures {
        records: 100_000,
        reads: 79_634,
        read_bytes: 412_875_264,
        written_bytes: 107_663_872,
        devices: 14,
        first_ns: 13_191_135,
        last_ns: 1_532_949_045_363,
        end: 1_216_522_240,
        response_ns: 0,
        order: 4_835_620_421_022_208,
    };
    check("disksim-14-devices.ascii.zst", Format::DiskSim, expected);
}

#[test]
fn hp_with_its_classes() {
    let expected = Figures {
        records: 44_519,
        reads: 13_040,
        read_bytes: 61_527_040,
        written_bytes: 201_778_176,
        devices: 5,
        first_ns: 0,
        last_ns: 603_064_588_892_000,
        end: 669_745_152,
        response_ns: 5_195_128_829_000,
        order: 472_900_011_220_068,
    };
    let records = check("hplajw-1week-with-classes.csv.zst", Format::Hp, expected);
    let mut classes = BTreeMap::new();
    records.iter().for_each(|record| *classes.entry(record.class.number()).or_insert(0) += 1);
    let known = [(1, 11_923), (2, 17_180), (3, 4477), (4, 407), (5, 753), (6, 2640), (7, 4224), (9, 2915)];
    assert!(records.is_empty() || classes == BTreeMap::from(known), "{classes:?}");
}

#[test]
fn lis() {
    let expected = Figures {
        records: 914_145,
        reads: 914_145,
        read_bytes: 468_042_240,
        written_bytes: 0,
        devices: 1,
        first_ns: 0,
        last_ns: 0,
        end: 95_683_072,
        response_ns: 0,
        order: 28_460_343_386_821_174,
    };
    check("oltp.lis.zst", Format::Lis, expected);
}

#[test]
fn msr() {
    let expected = Figures {
        records: 1000,
        reads: 508,
        read_bytes: 6_108_672,
        written_bytes: 3_580_928,
        devices: 1,
        first_ns: 1_172_164_929_551_466_300,
        last_ns: 1_172_165_056_784_960_400,
        end: 13_575_029_248,
        response_ns: 989_497_500,
        order: 8_181_477_695_697,
    };
    check("msr-cambridge1-sample.csv", Format::Msr, expected);
}

#[test]
fn systor17() {
    let expected = Figures {
        records: 999,
        reads: 826,
        read_bytes: 36_355_584,
        written_bytes: 2_766_848,
        devices: 1,
        first_ns: 1_456_095_145_126_285_000,
        last_ns: 1_456_095_147_574_052_000,
        end: 5_029_321_633_280,
        response_ns: 3_858_071_000,
        order: 3_630_051_623_209_571,
    };
    check("systor17-traces-sample.csv.gz", Format::Systor17, expected);
}

#[test]
fn mqsim() {
    let expected = Figures {
        records: 6999,
        reads: 4381,
        read_bytes: 36_315_136,
        written_bytes: 23_403_520,
        devices: 16,
        first_ns: 938_513_000,
        last_ns: 1_075_002_000,
        end: 232_713_410_560,
        response_ns: 0,
        order: 5_760_018_566_976_705,
    };
    check("tpcc-small.mqsim.zst", Format::MqSim, expected);
}
