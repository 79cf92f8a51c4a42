//! Records a second of each format, from memory, on one core: `cargo run --release -p plimsoll-traces --example
//! throughput`. The figures in `docs/traces.md` come from here.

use plimsoll_traces::{Format, Order, ReadOptions, Reader};
use std::io::Cursor;
use std::time::Instant;

const RECORDS: u64 = 500_000;
/// Each format is read so many times; the fastest counts.
const RUNS: u32 = 3;

/// A trace of [`RECORDS`] records, a microsecond apart (a second for formats that know no less), 4 KiB each.
fn content(format: Format) -> Vec<u8> {
    let sector = |number: u64| number.wrapping_mul(2_654_435_761) % (1 << 31);
    let mut content = match format {
        Format::Fio2 => b"fio version 2 iolog\nf add\n".to_vec(),
        Format::Fio3 => b"fio version 3 iolog\n1 f add\n".to_vec(),
        _ => Vec::new(),
    };
    for number in 0..RECORDS {
        let (place, offset) = (sector(number), sector(number) * 512);
        let line = match format {
            Format::Spc => format!("0,{place},4096,W,0.{number:06}\n"),
            Format::Msr => format!("{},hm,0,Write,{offset},4096,2833\n", 128_166_372_003_061_629 + number * 10),
            Format::Systor17 => format!("1456095145.{number:06}000,0.000806000,R,0,{offset},4096\n"),
            Format::Alibaba => format!("419,W,{offset},4096,{}\n", 1_577_808_144_360_767 + number),
            Format::Tencent => format!("{},{place},8,0,1063\n", 1_538_323_200 + number),
            Format::CloudPhysics => format!("1,{},2a,4096,{place}\n", 5_633_898 + number),
            Format::Fio2 => format!("f write {offset} 4096\n"),
            Format::Fio3 => format!("{number} f write {offset} 4096\n"),
            Format::Blkparse => {
                format!("  8,0    3 {number:8}     0.{number:06}000   697  Q   W {place} + 8 [kjournald]\n")
            }
            Format::DiskSim => format!("{}.{:03}000 0 {place} 8 1\n", number / 1000, number % 1000),
            Format::MqSim => format!("{} 4 {place} 8 0\n", number * 1000),
            Format::Hp => format!("0.{number:06},146,36899,4096,{place},8000008,8810a,22000f,W\n"),
            Format::Lis => format!("{place} 8 0 {number}\n"),
            Format::Vscsi => {
                let head = [7, 4096, 1, 0x0100_002au32].map(u32::to_le_bytes).concat();
                content.extend([head, [place, number].map(u64::to_le_bytes).concat()].concat());
                continue;
            }
            Format::Blktrace => {
                let head = [0x6561_7407, number as u32].map(u32::to_le_bytes).concat();
                let place = [number * 1000, place].map(u64::to_le_bytes).concat();
                let tail = [4096, 0x12_0001, 697, 8 << 20, 0, 0].map(u32::to_le_bytes).concat();
                content.extend([head, place, tail].concat());
                continue;
            }
        };
        content.extend(line.as_bytes());
    }
    content
}

#[allow(clippy::disallowed_methods)] // A measurement is what this program is for.
fn seconds(format: Format, order: Order, content: &[u8]) -> f64 {
    let options = ReadOptions { format: Some(format), order, ..ReadOptions::default() };
    let start = Instant::now();
    let reader = Reader::new("made up", Cursor::new(content.to_vec()), options).expect("it is named");
    let count = reader.map(Result::unwrap).count();
    assert_eq!(count as u64, RECORDS, "{format}");
    start.elapsed().as_secs_f64()
}

fn main() {
    println!("million records a second: sorted, as recorded");
    for format in Format::ALL {
        let content = content(*format);
        let best = |order| {
            let runs = (0..RUNS).map(|_| seconds(*format, order, &content));
            RECORDS as f64 / 1e6 / runs.fold(f64::INFINITY, f64::min)
        };
        println!("{format:<13} {:6.1} {:6.1}", best(Order::default()), best(Order::AsRecorded));
    }
}
