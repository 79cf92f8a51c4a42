//! A few lines or records of every format, and what they mean.

mod support;

use plimsoll_core::{Class, Operation::*, Time};
use plimsoll_traces::{BlockAction, Format, Order, ReadOptions, Reader, TraceRecord};
use support::{blktrace, detected, read, record, records, response, vscsi};

const SECOND: u64 = 1_000_000_000;

#[test]
fn spc_counts_blocks_and_bytes_and_takes_more_fields() {
    let content = "0,20941264,8192,W,0.551706\n 1 , 3, 512,r,0.554041 ,anything, else\n";
    assert_eq!(detected(content), Format::Spc);
    let second = TraceRecord { device: 1, ..record(554_041_000, Read, 3 * 512, 512) };
    assert_eq!(records(content), [record(551_706_000, Write, 20_941_264 * 512, 8192), second]);
}

#[test]
fn msr_times_become_unix_times_and_hosts_are_kept_apart() {
    let content = "128166372003061629,hm,1,Read,383496192,32768,113736\n\
                   128166372003061630,src1,1,Write,0,512,0\n\
                   128166372003061631,hm,0,Write,4096,512,20\n";
    assert_eq!(detected(content), Format::Msr);
    // 128166372003061629 / 1e7 - 11644473600 s: 22 February 2007, 17:00:00.3061629 UTC.
    let at = 1_172_163_600 * SECOND + 306_162_900;
    let mut reader = Reader::new("trace", content.as_bytes(), ReadOptions::default()).unwrap();
    let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    let hm = TraceRecord { device: 1, response: response(11_373_600), ..record(at, Read, 383_496_192, 32_768) };
    let src1 = TraceRecord { device: 65_537, response: response(0), ..record(at + 100, Write, 0, 512) };
    assert_eq!(read, [hm, src1, TraceRecord { response: response(2000), ..record(at + 200, Write, 4096, 512) }]);
    assert_eq!(reader.device_name(65_537).as_deref(), Some("src1 disk 1"));
    assert_eq!(reader.device_name(3 * 65_536), None);
}

#[test]
fn systor_is_sorted_and_leaves_out_what_has_no_type() {
    let content = "Timestamp,Response,IOType,LUN,Offset,Size\n\
                   1456095145.133076000,0.000806000,R,0,899056122368,131072\n\
                   1456095145.200000000,,,0,0,0\n\
                   1456095145.126285000,0.008044000,W,4,4256049987072,122880\n";
    assert_eq!(detected(content), Format::Systor17);
    let base = 1_456_095_145 * SECOND;
    let early = record(base + 126_285_000, Write, 4_256_049_987_072, 122_880);
    let late = record(base + 133_076_000, Read, 899_056_122_368, 131_072);
    let early = TraceRecord { device: 4, response: response(8_044_000), ..early };
    let late = TraceRecord { response: response(806_000), ..late };
    assert_eq!(records(content), [early, late]);
    let options = ReadOptions { order: Order::AsRecorded, ..ReadOptions::default() };
    assert_eq!(read(content, options).0, [late, early]);
    let mut reader = Reader::new("trace", content.as_bytes(), options).unwrap();
    assert_eq!(reader.by_ref().count(), 2);
    assert_eq!(reader.left_out(), 2, "the header and the line without a type");
}

#[test]
fn alibaba_has_bytes_and_microseconds() {
    let content = "device_id,opcode,offset,length,timestamp\n419,W,8792731648,16384,1577808144360767\n";
    let expected = record(1_577_808_144_360_767_000, Write, 8_792_731_648, 16_384);
    assert_eq!(records(content), [TraceRecord { device: 419, ..expected }]);
    assert_eq!(detected(content.lines().nth(1).unwrap()), Format::Alibaba, "without the header too");
}

#[test]
fn tencent_has_seconds_and_sectors() {
    let content = "1538323200,4247200,128,1,1058\n1538323199,13896880,8,0,1063\n";
    assert_eq!(detected(content), Format::Tencent);
    let read = TraceRecord { device: 1063, ..record(1_538_323_199 * SECOND, Read, 13_896_880 * 512, 4096) };
    let write = TraceRecord { device: 1058, ..record(1_538_323_200 * SECOND, Write, 4_247_200 * 512, 65_536) };
    assert_eq!(records(content), [read, write]);
}

#[test]
fn cloudphysics_text_and_binary_say_the_same() {
    let text = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,12,36,0\n1,5633900,28,6656,40409911\n";
    assert_eq!(detected(text), Format::CloudPhysics);
    let expected = [
        record(5_633_898 * SECOND, Write, 42_932_745 * 512, 512),
        record(5_633_900 * SECOND, Read, 40_409_911 * 512, 6656),
    ];
    assert_eq!(records(text), expected);
    for version in [1, 2] {
        let binary = [
            vscsi(version, 0x2a, 512, 42_932_745, 5_633_898_000_000),
            vscsi(version, 0x28, 6656, 40_409_911, 5_633_900_000_000),
            vscsi(version, 0x12, 36, 0, 5_633_901_000_000),
            vscsi(version, 0x35, 4096, 9, 5_633_902_000_001),
        ]
        .concat();
        assert_eq!(detected(&binary), Format::Vscsi);
        let flush = record(5_633_902 * SECOND + 1000, Flush, 9 * 512, 0);
        assert_eq!(records(&binary), [expected[0], expected[1], flush], "version {version}");
    }
}

#[test]
fn vscsi_may_begin_with_another_command_if_it_is_named() {
    let content = [vscsi(2, 0x12, 36, 0, 1), vscsi(2, 0x8a, 512, 1, 2)].concat();
    let options = ReadOptions { format: Some(Format::Vscsi), ..ReadOptions::default() };
    let (records, error) = read(&content, options);
    assert!(error.is_none() && records == [record(2000, Write, 512, 512)]);
}

#[test]
fn fio_2_knows_time_from_waits() {
    let content = "fio version 2 iolog\n/dev/a add\n/dev/b add\n/dev/a open\n/dev/b open\n/dev/a wait 250 0\n\
                   /dev/b write 4096 8192\n/dev/a read 0 512\n/dev/a wait 1000 0\n/dev/a datasync 0 0\n/dev/b trim 0 4096\n\
                   /dev/a close\n";
    let mut reader = Reader::new("trace", content.as_bytes(), ReadOptions::default()).unwrap();
    assert_eq!(reader.format(), Format::Fio2);
    let on_b = |record| TraceRecord { device: 1, ..record };
    let expected = [
        on_b(record(250_000, Write, 4096, 8192)),
        record(250_000, Read, 0, 512),
        record(1_250_000, Flush, 0, 0),
        on_b(record(1_250_000, Trim, 0, 4096)),
    ];
    assert_eq!(reader.by_ref().map(Result::unwrap).collect::<Vec<_>>(), expected);
    assert_eq!(reader.device_name(1).as_deref(), Some("/dev/b"));
}

#[test]
fn fio_3_has_microseconds() {
    let content = "fio version 3 iolog\n2 f add\n872 f open\n878 f write 0 16384\n888\tf sync 0 0\n10001677 f close\n";
    assert_eq!(detected(content), Format::Fio3);
    assert_eq!(records(content), [record(878_000, Write, 0, 16_384), record(888_000, Flush, 0, 0)]);
}

const READ: u32 = 1 << 16;
const WRITE: u32 = 2 << 16;
const QUEUE: u32 = 0x10 << 16 | 1;
const ISSUE: u32 = 0x40 << 16 | 7;
const COMPLETE: u32 = 0x80 << 16 | 8;
const FLUSH: u32 = 4 << 16;
const DISCARD: u32 = 0x2000 << 16;
const PASSTHROUGH: u32 = 0x200 << 16;
const NOTIFY: u32 = 0x400 << 16;
const CGROUP: u32 = 1 << 8;

#[test]
fn blktrace_reads_both_byte_orders_and_the_event_that_is_asked_for() {
    for big in [false, true] {
        let content = [
            blktrace(big, 5, 0, 0, NOTIFY, b"kjournald"),
            blktrace(big, 10, 223_490, 4096, WRITE | QUEUE | CGROUP, &[0; 8]),
            blktrace(big, 20, 8, 512, READ | QUEUE, b""),
            blktrace(big, 30, u64::MAX, 0, WRITE | FLUSH | QUEUE, b""),
            blktrace(big, 40, 16, 1 << 30, WRITE | DISCARD | QUEUE, b""),
            blktrace(big, 45, 0, 36, READ | PASSTHROUGH | QUEUE, b"\x12"),
            blktrace(big, 50, 223_490, 8192, WRITE | ISSUE, b""),
            blktrace(big, 60, 223_490, 8192, WRITE | COMPLETE, b""),
        ]
        .concat();
        assert_eq!(detected(&content), Format::Blktrace);
        let known = |record| TraceRecord { device: 8 << 20 | 16, process: Some(697), ..record };
        let queued = [
            known(record(10, Write, 223_490 * 512, 4096)),
            known(record(20, Read, 8 * 512, 512)),
            known(record(30, Flush, 0, 0)),
            known(record(40, Trim, 16 * 512, 1 << 30)),
        ];
        assert_eq!(records(&content), queued);
        let options = ReadOptions { action: BlockAction::Issue, ..ReadOptions::default() };
        assert_eq!(read(&content, options).0, [known(record(50, Write, 223_490 * 512, 8192))]);
    }
}

#[test]
fn blkparse_reads_the_event_that_is_asked_for_and_no_summary() {
    let content = "\
  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000000500   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000001500   697  G   W 223490 + 8 [kjournald]
  8,0    3        0     0.000002000     0  m   N cfq697 insert
259,1    0        4     0.000002500  1234  Q FWFS [jbd2/nvme0n1-8]
  8,0    3        5     0.000003000   697  D   W 223490 + 16 [kjournald]
  8,0    3        6     0.000003500   697  Q   R 36 (12 00 00 00) [smartd]
  8,16   1        7     1.000000000    12  Q  DS 0 + 2048 [fstrim]
  8,0    3        8     1.500000000     0  C   W 223490 + 16 [0]
CPU3 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           1,        4KiB
Total (8,0):
";
    assert_eq!(detected(content), Format::Blkparse);
    let by = |device, process, record| TraceRecord { device, process: Some(process), ..record };
    let expected = [
        by(8 << 20, 697, record(500, Write, 223_490 * 512, 4096)),
        by(259 << 20 | 1, 1234, record(2500, Flush, 0, 0)),
        by(8 << 20 | 16, 12, record(SECOND, Trim, 0, 1 << 20)),
    ];
    assert_eq!(records(content), expected);
    let options = ReadOptions { action: BlockAction::Issue, ..ReadOptions::default() };
    assert_eq!(read(content, options).0, [by(8 << 20, 697, record(3000, Write, 223_490 * 512, 8192))]);
}

#[test]
fn disksim_has_milliseconds_and_mqsim_nanoseconds() {
    let disksim = "13.191135\t30\t0\t5\t1\n17.829285 20 576560 6 1002\n";
    assert_eq!(detected(disksim), Format::DiskSim);
    let first = TraceRecord { device: 30, ..record(13_191_135, Read, 0, 5 * 512) };
    let second = TraceRecord { device: 20, ..record(17_829_285, Write, 576_560 * 512, 6 * 512) };
    assert_eq!(records(disksim), [first, second]);
    let mqsim = "938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n";
    assert_eq!(detected(mqsim), Format::MqSim);
    let first = TraceRecord { device: 4, ..record(938_513_000, Write, 264_719_034 * 512, 8192) };
    let second = TraceRecord { device: 3, ..record(938_828_000, Read, 197_570_570 * 512, 8192) };
    assert_eq!(records(mqsim), [first, second]);
}

#[test]
fn hp_has_classes() {
    let content = "time_s,start_us,stop_us,size_bytes,sector,dev_hex,flags_hex,info_hex,op\n\
                   0.022479,76,10038,4096,1040,8000107,1b,70000,R\n\
                   30.183968,146,36899,8192,674032,8000008,8810a,22000f,W\n";
    assert_eq!(detected(content), Format::Hp);
    let swap =
        TraceRecord { device: 0x800_0107, class: Class::new(7).unwrap(), ..record(22_479_000, Read, 532_480, 4096) };
    let inode = TraceRecord {
        device: 0x800_0008,
        class: Class::new(2).unwrap(),
        response: response(36_899_000),
        ..record(30_183_968_000, Write, 674_032 * 512, 8192)
    };
    assert_eq!(records(content), [TraceRecord { response: response(10_038_000), ..swap }, inode]);
}

#[test]
fn lis_has_blocks_and_no_times() {
    let content = "42 8 0 0\n1 1 0 1\n";
    assert_eq!(detected(content), Format::Lis);
    assert_eq!(records(content), [record(0, Read, 42 * 512, 4096), record(0, Read, 512, 512)], "in the file's order");
    assert_eq!(records(content)[0].at, Time::ZERO);
}

#[test]
fn line_ends_empty_lines_and_a_missing_last_end_do_not_matter() {
    for content in ["1 1 0 0\n2 1 0 0\n", "1 1 0 0\r\n2 1 0 0\r\n", "\n1 1 0 0\n\n  \n2 1 0 0"] {
        assert_eq!(records(content).len(), 2, "{content:?}");
    }
}

#[test]
fn names_lead_back_to_formats() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(*format));
        assert!(!format.rule().is_empty() && !format.clock().is_empty());
    }
    let error = "vcsi".parse::<Format>().unwrap_err().to_string();
    let known = "spc, msr, systor17, alibaba, tencent, cloudphysics, vscsi, fio2, fio3, blktrace, blkparse, disksim, mqsim, \
                 hp, lis";
    assert_eq!(error, format!("format: got \"vcsi\", allowed {known}"));
}

/// The page lists every format twice: what it holds, and by what it is recognised.
#[test]
fn the_page_knows_every_format_and_its_rule() {
    let page = include_str!("../../../docs/traces.md");
    for format in Format::ALL {
        assert_eq!(
            page.matches(&format!("\n| `{format}` | ")).count(),
            2 + usize::from(Format::WRITABLE.contains(format))
        );
        assert!(page.contains(&format!("\n| `{format}` | {} |\n", format.rule())), "{format}: {}", format.rule());
    }
}
