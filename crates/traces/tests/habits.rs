//! What the usual writers of traces do beyond the letter of their formats.

mod support;

use plimsoll_core::Operation::*;
use plimsoll_traces::{Format, ReadOptions, Reader};
use std::io::Write;
use support::{blktrace, failure, record, records};

/// A trace of each text format, as short as it can be.
const TEXTS: &[(Format, &str)] = &[
    (Format::Spc, "0,20941264,8192,W,0.551706\n"),
    (Format::Msr, "128166372003061629,hm,1,Read,383496192,32768,113736\n"),
    (Format::Systor17, "1456095145.133076000,0.000806000,R,0,899056122368,131072\n"),
    (Format::Alibaba, "device_id,opcode,offset,length,timestamp\n419,W,8792731648,16384,1577808144360767\n"),
    (Format::Tencent, "Timestamp,Offset,Size,IOType,VolumeID\n1538323200,12910952,128,0,1063\n"),
    (Format::CloudPhysics, "version,time,op,size,lbn\n1,9,2a,512,3\n"),
    (Format::Fio2, "fio version 2 iolog\nf add\nf open\nf read 0 512\n"),
    (Format::Fio3, "fio version 3 iolog\n0 f add\n1 f open\n2 f read 0 512\n"),
    (Format::Blkparse, "8,0 3 1 0.5 697 Q W 8 + 8 [x]\n"),
    (Format::DiskSim, "1.5 0 0 1 1\n"),
    (Format::MqSim, "1 0 0 1 1\n"),
    (Format::Hp, "0.5,1,2,512,0,8,1b,70000,R\n"),
    (Format::Lis, "1 1 0 0\n"),
];

/// Promise: traces-habits.
#[test]
fn a_mark_of_utf_8_before_text_is_passed_over_in_each_format() {
    assert_eq!(TEXTS.len() + 2, Format::ALL.len(), "two are binary");
    for &(format, text) in TEXTS {
        let marked = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(support::detected(&marked), format);
        assert_eq!(records(&marked), records(text), "{format}");
    }
    assert_eq!(failure("\u{feff}1 1 0 0\nx\n", None), failure("1 1 0 0\nx\n", None), "the same line is named");
}

fn compressed(content: &[u8]) -> [(&'static str, Vec<u8>); 3] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(content).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(content).unwrap();
    let zstd = zstd::encode_all(content, 3).unwrap();
    [("gzip", gzip.finish().unwrap()), ("zstd", zstd), ("bzip2", bzip2.finish().unwrap())]
}

/// Promise: traces-habits.
#[test]
fn zeros_behind_what_is_compressed_are_passed_over() {
    for (name, bytes) in compressed(b"1 1 0 0\n2 1 0 1\n") {
        for zeros in [1, 7, 512, 70_000, 200_000] {
            let padded = [&bytes[..], &vec![0; zeros]].concat();
            assert_eq!(records(&padded).len(), 2, "{name}, {zeros} zeros");
            let twice = [&padded[..], &padded].concat();
            assert_eq!(records(&twice).len(), 4, "{name}, {zeros} zeros between two members");
        }
        let garbage = [&bytes[..], b"garbage"].concat();
        assert!(failure(garbage, None).contains("of the content: "), "{name}: what is no zero is an error");
    }
}

/// Wherever it is cut: also where what there is of it fits no format.
/// Promise: traces-habits.
#[test]
fn what_is_compressed_and_was_cut_off_ends_early_however_short_it_is() {
    for content in [&b"1 1 0 0\n2 1 0 1\n"[..], &b"12345 1 0 0\n".repeat(300)] {
        for (name, bytes) in compressed(content) {
            for cut in 4..bytes.len() {
                let said = failure(&bytes[..cut], None);
                assert!(said.ends_with("the compressed file ends early"), "{name}, {cut} bytes: {said}");
            }
        }
    }
}

/// How many records there are, and how many were left out.
fn counts(content: impl AsRef<[u8]>) -> (Vec<plimsoll_traces::TraceRecord>, u64) {
    let content = std::io::Cursor::new(content.as_ref().to_vec());
    let mut reader = Reader::new("trace", content, ReadOptions::default()).unwrap();
    let records = reader.by_ref().map(Result::unwrap).collect();
    (records, reader.left_out())
}

/// Promise: traces-habits.
#[test]
fn a_flush_before_a_write_in_the_same_record_is_counted_as_left_out() {
    let text = "8,0 0 1 0.000000001 1 Q FWFS 8 + 8 [x]\n8,0 0 2 0.000000002 1 Q WFS 8 + 8 [x]\n\
                8,0 0 3 0.000000003 1 Q FWS [x]\n8,0 0 4 0.000000004 1 Q FWFS 8 + 8 [x]\n";
    let (records, left_out) = counts(text);
    let operations: Vec<_> = records.iter().map(|record| record.operation).collect();
    assert_eq!((operations, left_out), (vec![Write, Write, Flush, Write], 2));

    let flush_and_write = 1 << 18 | 1 << 17 | 1;
    let events = [
        blktrace(false, 1, 8, 4096, flush_and_write, b""),
        blktrace(false, 2, 8, 4096, 1 << 17 | 1, b""),
        blktrace(false, 3, 8, 0, 1 << 18 | 1, b""),
    ];
    let (records, left_out) = counts(events.concat());
    let operations: Vec<_> = records.iter().map(|record| record.operation).collect();
    assert_eq!((operations, left_out), (vec![Write, Write, Flush], 1));
}

/// Promise: traces-habits.
#[test]
fn fios_sync_file_range_is_left_out_and_counted_and_syncfs_is_a_flush() {
    let second = "fio version 2 iolog\nf add\nf open\nf write 0 512\nf sync_file_range 0 512\nf syncfs 0 0\nf close\n";
    let third: String = second
        .lines()
        .enumerate()
        .map(|(line, text)| if line == 0 { text.replace('2', "3") + "\n" } else { format!("{line} {text}\n") })
        .collect();
    let (two, left_out_of_two) = counts(second);
    assert_eq!(two, [record(0, Write, 0, 512), record(0, Flush, 0, 0)]);
    let (three, left_out_of_three) = counts(&third);
    assert_eq!(three, [record(3000, Write, 0, 512), record(5000, Flush, 0, 0)]);
    assert_eq!((left_out_of_two, left_out_of_three), (5, 5), "the header, add, open, sync_file_range and close");
}
