//! What a writer wrote, its reader reads: all of it that the format can say.

mod support;

use plimsoll_core::{Operation, Span, Time};
use plimsoll_traces::{Format, ReadOptions, TraceRecord, WriteError, Writer};
use proptest::prelude::*;
use support::{drain, record};

/// The smallest thing that each format tells apart: fio microseconds, MSR 100 ns.
const FIO_NS: u64 = 1000;
const MSR_NS: u64 = 100;

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop::sample::select(vec![Read, Write, Flush, Trim, WriteZeroes])
}

/// Records in order of time, of whole sectors on a few devices.
fn traces() -> impl Strategy<Value = Vec<TraceRecord>> {
    let time = any::<u32>();
    let place = (0u64..1 << 40, 1u64..1 << 23);
    let from = (0u32..5, any::<Option<u32>>(), any::<Option<u32>>());
    let one = (time, operation(), place, from).prop_map(|(step, operation, (sector, sectors), from)| {
        let (device, process, response) = from;
        let (sector, sectors) = if operation == Operation::Flush { (0, 0) } else { (sector, sectors) };
        let response = response.map(|ns| Span::from_nanos(ns.into()));
        let at = record(step.into(), operation, sector * 512, sectors * 512);
        TraceRecord { device, process, response, ..at }
    });
    prop::collection::vec(one, 0..50).prop_map(|mut records| {
        let mut now = 0;
        for record in &mut records {
            now += record.at.as_nanos();
            record.at = Time::from_nanos(now);
        }
        records
    })
}

/// The bytes of the records that the format can say, and how many it cannot.
fn write(format: Format, records: &[TraceRecord]) -> (Vec<u8>, usize) {
    let mut writer = Writer::new(format, Vec::new()).unwrap();
    let mut refused = 0;
    for record in records {
        match writer.write(record) {
            Ok(()) => {}
            Err(WriteError::Unwritable { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (writer.finish().unwrap(), refused)
}

fn read(content: Vec<u8>, format: Format) -> Vec<TraceRecord> {
    let input = std::io::Cursor::new(content);
    let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    let (records, error) = drain(plimsoll_traces::Reader::new("written", input, options).unwrap());
    assert!(error.is_none(), "{}", error.unwrap());
    records
}

/// Zeroes are written as a write by every format.
fn without_zeroes(record: TraceRecord) -> TraceRecord {
    let is_zeroes = record.operation == Operation::WriteZeroes;
    TraceRecord { operation: if is_zeroes { Operation::Write } else { record.operation }, ..record }
}

fn cut(ns: u64, unit_ns: u64) -> u64 {
    ns / unit_ns * unit_ns
}

proptest! {
    #[test]
    fn fio_keeps_operation_place_device_and_microseconds(records in traces()) {
        let (content, refused) = write(Format::Fio3, &records);
        prop_assert_eq!(refused, 0);
        let origin = records.first().map_or(Time::ZERO, |first| first.at);
        let mut met = Vec::new();
        let expected: Vec<_> = records.iter().map(|&record| {
            // Devices are numbered in the order in which they are met.
            let number = met.iter().position(|device| *device == record.device).unwrap_or_else(|| {
                met.push(record.device);
                met.len() - 1
            });
            let at = Time::from_nanos(FIO_NS + cut(record.at.since(origin).as_nanos(), FIO_NS));
            let device = number as u32;
            TraceRecord { at, device, process: None, response: None, ..without_zeroes(record) }
        }).collect();
        prop_assert_eq!(read(content, Format::Fio3), expected);
    }

    #[test]
    fn msr_keeps_reads_and_writes_with_their_response(records in traces()) {
        let (content, refused) = write(Format::Msr, &records);
        let sayable = |record: &TraceRecord| !matches!(record.operation, Operation::Flush | Operation::Trim);
        prop_assert_eq!(refused, records.iter().filter(|record| !sayable(record)).count());
        let expected: Vec<_> = records.into_iter().filter(sayable).map(|record| {
            let at = Time::from_nanos(cut(record.at.as_nanos(), MSR_NS));
            let response = cut(record.response.unwrap_or(Span::ZERO).as_nanos(), MSR_NS);
            TraceRecord { at, process: None, response: Some(Span::from_nanos(response)), ..without_zeroes(record) }
        }).collect();
        prop_assert_eq!(read(content, Format::Msr), expected);
    }

    #[test]
    fn blktrace_keeps_everything_but_the_response(records in traces()) {
        let (content, refused) = write(Format::Blktrace, &records);
        prop_assert_eq!(refused, 0);
        let expected: Vec<_> = records.into_iter().map(|record| {
            let process = Some(record.process.unwrap_or(0));
            TraceRecord { process, response: None, ..without_zeroes(record) }
        }).collect();
        prop_assert_eq!(read(content, Format::Blktrace), expected);
    }
}

#[test]
fn what_is_written_is_recognised() {
    for format in Format::WRITABLE {
        let (content, _) = write(*format, &[record(1000, Operation::Write, 4096, 512)]);
        assert_eq!(support::detected(content), *format);
    }
}

#[test]
fn a_log_for_fio_names_its_files() {
    let mut writer = Writer::new(Format::Fio3, Vec::new()).unwrap();
    writer.name_device(7, "/dev/sdb").unwrap();
    writer.write(&TraceRecord { device: 7, ..record(5_000_000, Operation::Write, 4096, 512) }).unwrap();
    writer.write(&record(7_000_999, Operation::Flush, 0, 0)).unwrap();
    let log = String::from_utf8(writer.finish().unwrap()).unwrap();
    let expected = "fio version 3 iolog\n1 /dev/sdb add\n1 /dev/sdb open\n1 /dev/sdb write 4096 512\n\
                    2001 device-0 add\n2001 device-0 open\n2001 device-0 sync 0 0\n\
                    2001 device-0 close\n2001 /dev/sdb close\n";
    assert_eq!(log, expected);
}

#[test]
fn a_refusal_says_what_the_format_can_say() {
    let refused = |format, records: &[TraceRecord]| {
        let mut writer = Writer::new(format, Vec::new()).unwrap();
        let written = records.iter().map(|record| writer.write(record)).last().unwrap();
        written.unwrap_err().to_string()
    };
    let read = record(9, Operation::Read, 0, 512);
    let flush = record(9, Operation::Flush, 0, 0);
    assert_eq!(refused(Format::Msr, &[flush]), "operation: got Flush, allowed a read or a write");
    let far = TraceRecord { device: 1 << 16, ..read };
    assert_eq!(refused(Format::Msr, &[far]), "device: got 65536, allowed 0 to 65535");
    let long = TraceRecord { length: 1 << 32, ..read };
    assert_eq!(refused(Format::Fio3, &[long]), "length: got 4294967296, allowed at most 4294967295");
    let before = TraceRecord { at: Time::ZERO, ..read };
    assert_eq!(refused(Format::Fio3, &[read, before]), "at: got 0, allowed at least that of the first record, 9");
    let odd = TraceRecord { offset: 1, ..read };
    assert_eq!(refused(Format::Blktrace, &[odd]), "offset: got 1, allowed a multiple of 512");
    let empty = TraceRecord { length: 0, ..read };
    let said = "length: got 0, allowed 0 for a flush, 1 to 4294967295 for anything else";
    assert_eq!(refused(Format::Blktrace, &[empty]), said);
    let mut writer = Writer::new(Format::Fio3, Vec::new()).unwrap();
    let said = writer.name_device(0, "my disk").unwrap_err().to_string();
    assert_eq!(said, "device's name: got \"my disk\", allowed 1 to 255 bytes without blanks");
    let said = Writer::new(Format::Lis, Vec::new()).err().unwrap().to_string();
    assert_eq!(said, "format: got lis, allowed fio3, msr, blktrace");
}
