//! Every way in which a trace can be broken, and the one line that says so.

mod support;

use plimsoll_core::Operation::*;
use plimsoll_traces::{Format, Order, ReadOptions, TraceError, open};
use std::io::Write;
use support::{blktrace, failure, read, record, vscsi};

const ALL: &str = "spc, msr, systor17, alibaba, tencent, cloudphysics, vscsi, fio2, fio3, blktrace, blkparse, disksim, mqsim, \
                   hp, lis";
const U64: &str = "a whole number below 2^64";
const U32: &str = "a whole number below 2^32";
const DECIMAL: &str = "a decimal number such as 12 or 0.5, in nanoseconds below 2^64";

/// Format, a good first line, a broken second one, and what is said of it after `trace: line 2: `.
type Case = (Format, &'static str, &'static str, String);

fn case(format: Format, good: &'static str, bad: &'static str, said: &str) -> Case {
    (format, good, bad, said.to_owned())
}

fn broken_spc_msr_and_systor() -> Vec<Case> {
    let spc = "0,1,512,R,0.5";
    let msr = "128166372003061629,hm,1,Read,0,512,7";
    let systor = "1456095145.1,0.5,R,0,0,512";
    vec![
        case(Format::Spc, spc, "0,1,512,R", "fields: got \"4\", allowed 5: ASU,LBA,size,opcode,timestamp"),
        case(Format::Spc, spc, "x,1,512,R,1", &format!("ASU: got \"x\", allowed {U32}")),
        case(Format::Spc, spc, "0,-1,512,R,1", &format!("LBA: got \"-1\", allowed {U64}")),
        case(Format::Spc, spc, "0,1,512,Q,1", "opcode: got \"Q\", allowed R or W"),
        case(Format::Spc, spc, "0,1,512,R,1e3", &format!("timestamp: got \"1e3\", allowed {DECIMAL}")),
        case(
            Format::Spc,
            spc,
            "0,36028797018963968,512,R,1",
            "LBA: got \"36028797018963968\", allowed at most 36028797018963967",
        ),
        case(
            Format::Spc,
            spc,
            "0,36028797018963967,512,R,1",
            "length: got \"512\", allowed at most 511 bytes at offset 18446744073709551104",
        ),
        case(Format::Msr, msr, "128166372003061629,hm,1,read,0,512,7", "Type: got \"read\", allowed Read or Write"),
        case(
            Format::Msr,
            msr,
            "116444735999999999,hm,1,Read,0,512,7",
            "Timestamp: got \"116444735999999999\", allowed 116444736000000000 (1970) to 300912176737095516",
        ),
        case(
            Format::Msr,
            msr,
            "128166372003061629,hm,65536,Read,0,512,7",
            "DiskNumber: got \"65536\", allowed 0 to 65535",
        ),
        case(
            Format::Msr,
            msr,
            "128166372003061629,,1,Read,0,512,7",
            "Hostname: got \"\", allowed a name of 1 to 256 bytes",
        ),
        case(Format::Systor17, systor, "1456095145.2,,R,0,0,512", &format!("Response: got \"\", allowed {DECIMAL}")),
        case(Format::Systor17, systor, "1456095145.2,0.5,,0,0,512", "IOType: got \"\", allowed R or W"),
    ]
}

fn broken_others() -> Vec<Case> {
    let hp = "0.5,1,2,512,0,8,1b,70000,R";
    let blkparse = "8,0 3 1 0.5 697 Q W 8 + 8 [x]";
    let fio = "fio version 3 iolog\n";
    vec![
        case(Format::Alibaba, "1,R,0,512,9", "1,X,0,512,9", "opcode: got \"X\", allowed R or W"),
        case(Format::Tencent, "9,0,1,0,3", "9,0,1,2,3", "IOType: got \"2\", allowed 0 (read) or 1 (write)"),
        case(Format::CloudPhysics, "1,9,2a,512,3", "3,9,2a,512,3", "version: got \"3\", allowed 1 or 2"),
        case(
            Format::CloudPhysics,
            "1,9,2a,512,3",
            "1,9,+a,512,3",
            "op: got \"+a\", allowed a SCSI operation code, 00 to ff",
        ),
        case(
            Format::DiskSim,
            "1.5 0 0 1 1",
            "2.5 0 0 1 g",
            "flags: got \"g\", allowed a hexadecimal number below 2^32",
        ),
        case(Format::MqSim, "1 0 0 1 1", "2 0 0 1 5", "type: got \"5\", allowed 0 (write) or 1 (read)"),
        case(Format::Hp, hp, "0.5,3,2,512,0,8,1b,70000,R", "stop_us: got \"2\", allowed at least start_us"),
        case(Format::Lis, "1 1 0 0", "1 1 0", "fields: got \"3\", allowed 4: start count ignored request"),
        case(
            Format::Blkparse,
            blkparse,
            "8 3 1 0.5 697 Q W",
            "device: got \"8\", allowed major,minor up to 4095,1048575",
        ),
        case(
            Format::Blkparse,
            blkparse,
            "8,0 3 1 0.5 697 Q",
            "fields: got \"6\", allowed at least 7: major,minor cpu sequence time pid action RWBS",
        ),
        case(
            Format::Blkparse,
            blkparse,
            "8,0 3 1 0.5 697 Q X 1 + 1",
            "RWBS: got \"X\", allowed D, W, R or N, behind an F or not, then flags",
        ),
        case(Format::Blkparse, blkparse, "8,0 3 1 0.5 697 Q W 8 8", "sector: got \"8\", allowed SECTOR + SECTORS"),
        case(Format::Fio3, fio, "7 f read 0 512", "filename: got \"f\", allowed a file that was added before"),
        case(
            Format::Fio3,
            fio,
            "7 f lock",
            "action: got \"lock\", allowed add, open or close, or an I/O action with offset and length",
        ),
        case(
            Format::Fio3,
            fio,
            "7 f read 0",
            "fields: got \"3\", allowed 2 or 4 behind the timestamp: filename action [offset length]",
        ),
    ]
}

/// Promise: traces-errors.
#[test]
fn a_broken_line_is_named_with_its_field() {
    for (format, good, bad, said) in [broken_spc_msr_and_systor(), broken_others()].concat() {
        let good = good.trim_end();
        let content = format!("{good}\n{bad}\n{good}\n");
        let expected = format!("trace: line 2: {said}");
        assert_eq!(failure(&content, Some(format)), expected, "{format}");
        assert_eq!(failure(&content, None), expected, "{format}, detected");
    }
}

#[test]
fn records_before_the_broken_line_come_first() {
    let (records, error) = read("2.5 0 0 1 1\n1.5 0 0 1 1\nx\n0.5 0 0 1 1\n", ReadOptions::default());
    assert_eq!(records, [record(1_500_000, Read, 0, 512), record(2_500_000, Read, 0, 512)]);
    assert!(error.unwrap().to_string().starts_with("trace: line 3: fields: got \"1\""));
}

#[test]
fn a_fio_log_needs_its_first_line() {
    let said = "trace: line 1: first line: got \"f add\", allowed fio version 2 iolog";
    assert_eq!(failure("f add\n", Some(Format::Fio2)), said);
}

#[test]
fn a_wait_is_no_action_of_fio_3_and_a_lock_none_of_fio_2() {
    let said =
        "trace: line 3: action: got \"wait\", allowed read, write, trim, sync, datasync, syncfs or sync_file_range";
    assert_eq!(failure("fio version 3 iolog\n1 f add\n2 f wait 1 1\n", None), said);
    let said = "trace: line 3: action: got \"lock\", allowed read, write, trim, sync, datasync, syncfs, sync_file_range or wait";
    assert_eq!(failure("fio version 2 iolog\nf add\nf lock 1 1\n", None), said);
}

#[test]
fn long_fields_lines_and_lists_are_bounded() {
    let said = failure(format!("1 1 0 {}\n", "9".repeat(4000)), Some(Format::Lis));
    assert_eq!(said, format!("trace: line 1: request: got \"{}...\", allowed {U64}", "9".repeat(64)));
    let said = "trace: line 2: got no end of line for 4096 bytes, allowed are 4096";
    let padded = |bytes: usize| format!("1 1 0 0\n2 1 0 {:>width$}", 0, width = bytes - 6);
    assert_eq!(failure(padded(4097), None), said);
    assert_eq!(failure(padded(4097) + "\n", None), said);
    assert_eq!(support::records(padded(4096) + "\n").len(), 2, "the longest line");
    let hosts: String = (0..4097).map(|host| format!("128166372003061629,host{host},0,Read,0,512,7\n")).collect();
    let said = "trace: line 4097: Hostname: got \"host4096\", allowed one of the 4096 names before, not another";
    assert_eq!(failure(hosts, None), said);
}

#[test]
fn text_must_be_utf_8() {
    let said = "trace: line 2: line: got \"1 1 0 \u{fffd}\", allowed text in UTF-8";
    assert_eq!(failure(b"1 1 0 0\n1 1 0 \xff\n", None), said);
}

#[test]
fn binary_records_are_named_by_their_first_byte() {
    let good = vscsi(1, 0x2a, 512, 1, 1);
    let cut = [&good[..], &good, &good[..12]].concat();
    assert_eq!(failure(&cut, None), "trace: byte 64: got 12 bytes of a record, allowed 32");
    let other = [&good[..], &good, &vscsi(2, 0x2a, 512, 1, 1)].concat();
    assert_eq!(failure(other, None), "trace: byte 64: version: got \"0\", allowed 1 as before");
    let far = vscsi(1, 0x2a, 512, u64::MAX, 1);
    let said = "trace: byte 0: lbn: got \"18446744073709551615\", allowed at most 36028797018963967";
    assert_eq!(failure(far, None), said);

    let event = |is_big, behind| blktrace(is_big, 1, 8, 512, 0x11_0001, behind);
    let cut = [&event(false, b"")[..], &event(false, b"payload")[..50]].concat();
    assert_eq!(failure(&cut, None), "trace: byte 48: got 50 bytes of a record, allowed 55");
    let said = "trace: byte 48: magic: got \"65617407\", allowed 65617407, in the byte order of the first record";
    assert_eq!(failure([event(false, b""), event(true, b"")].concat(), None), said);
    let newer = [&[8], &event(false, b"")[1..]].concat();
    assert_eq!(failure(newer, None), "trace: byte 0: version: got \"8\", allowed 7");
}

#[test]
fn a_record_behind_the_window_is_named() {
    let content = "3.0 0 0 1 1\n4.0 0 0 1 1\n2.5 0 0 1 1\n";
    let options = ReadOptions { order: Order::Sorted { window_records: 2 }, ..ReadOptions::default() };
    let (records, error) = read(content, options);
    assert_eq!(records.len(), 2);
    let said =
        "trace: line 3: time: got 500 us before a record that was already handed out, allowed 2 records out of order";
    assert_eq!(error.unwrap().to_string(), said);
    let options = ReadOptions { order: Order::Sorted { window_records: 3 }, ..ReadOptions::default() };
    assert!(read(content, options).1.is_none());
}

#[test]
fn what_fits_no_format_is_refused_with_the_list() {
    let unknown = |got: &str| format!("trace: format: got {got}, known are {ALL}");
    assert_eq!(failure("hello, world\n", None), unknown("text that begins with \"hello, world\""));
    assert_eq!(failure("", None), unknown("no content"));
    assert_eq!(failure(" \n\n", None), unknown("no content"));
    let archive = b"\x50\x4b\x03\x04\x00\x00\x00\x00\x00\x00";
    assert_eq!(failure(archive, None), unknown("content that begins with the bytes 50 4b 03 04 00 00 00 00"));
    let endless = unknown("content that begins with the bytes 78 78 78 78 78 78 78 78");
    assert_eq!(failure("x".repeat(1 << 17), None), endless);
}

#[test]
fn what_fits_two_formats_must_be_named() {
    // Seconds, sector 5, 28 sectors, write, volume 9; or version 1, second 5, a read of 1 byte at sector 9.
    let content = "1,5,28,1,9\n";
    let said = "trace: format: got content that fits tencent, cloudphysics, allowed is one: name it";
    assert_eq!(failure(content, None), said);
    let named = ReadOptions { format: Some(Format::Tencent), ..ReadOptions::default() };
    assert_eq!(read(content, named).0.len(), 1);
}

/// Content of a few thousand lines, compressed in every way that is read.
fn compressed() -> [(&'static str, Vec<u8>); 3] {
    let content: String = (0..40_000).map(|line| format!("{line} {} 0 {line}\n", line % 7 + 1)).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(content.as_bytes()).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(content.as_bytes()).unwrap();
    let zstd = zstd::encode_all(content.as_bytes(), 1).unwrap();
    [("gzip", gzip.finish().unwrap()), ("zstd", zstd), ("bzip2", bzip2.finish().unwrap())]
}

#[test]
fn compression_is_told_by_content_and_members_may_follow_each_other() {
    for (name, bytes) in compressed() {
        assert_eq!(support::records(&bytes).len(), 40_000, "{name}");
        assert_eq!(support::records([&bytes[..], &bytes].concat()).len(), 80_000, "{name} twice");
    }
}

#[test]
fn a_compressed_file_that_was_cut_off_is_an_error_behind_its_records() {
    for (name, bytes) in compressed() {
        let cut = &bytes[..bytes.len() - 5];
        let (records, error) = read(cut, ReadOptions { format: Some(Format::Lis), ..ReadOptions::default() });
        let Some(TraceError::Read { byte, source, .. }) = &error else { panic!("{name}: {error:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof, "{name}: {source}");
        assert!(
            error.as_ref().unwrap().to_string().starts_with(&format!("trace: byte {byte} of the content: ")),
            "{name}"
        );
        let lines: usize = (0..records.len()).map(|line| format!("{line} 1 0 {line}\n").len()).sum();
        assert!(lines as u64 <= *byte && records.len() <= 40_000, "{name}: {} records, byte {byte}", records.len());
        assert!(records.len() > 1000, "{name}: {} records", records.len());
        for bytes in [4, 5, 12] {
            let said = failure(&cut[..bytes], None);
            assert!(said.starts_with("trace: byte 0 of the content: "), "{name}, {bytes} bytes: {said}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let said = open("no/such/trace", None).err().unwrap().to_string();
    assert!(said.starts_with("no/such/trace: No such file"), "{said}");
    let said = open(env!("CARGO_MANIFEST_DIR"), None).err().unwrap().to_string();
    assert!(said.ends_with("Is a directory (os error 21)"), "{said}");
}
