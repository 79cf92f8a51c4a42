//! What clients ask of the server: SPC-1, and the four workloads of SFS2014, as far as the paper describes them.

use plimsoll_executor::Kind;

const KIB: u32 = 1024;

/// Requests of one sort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestStream {
    /// Part of all requests, 0 to 1; over a workload they sum up to 1.
    pub part: f64,
    /// What they do.
    pub kind: Kind,
    /// Sizes in bytes, each with its part of the stream.
    pub sizes: &'static [(u32, f64)],
    /// Whether each begins where the last ended: then reads find data that was read ahead.
    pub is_sequential: bool,
    /// Whether they may lack something: then they are suspended as often as [`FilerWorkload::restarts`] says.
    pub is_suspended: bool,
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilerWorkload {
    /// Its name in scenarios.
    pub name: &'static str,
    /// What it is made of.
    pub streams: &'static [RequestStream],
    /// Part of all requests that are suspended once, twice, three times (Table 2).
    pub restarts: [f64; 3],
}

impl FilerWorkload {
    /// The part of the streams that may be suspended.
    pub(super) fn suspended_part(&self) -> f64 {
        self.streams.iter().filter(|stream| stream.is_suspended).map(|stream| stream.part).sum()
    }
}

const fn read(part: f64, sizes: &'static [(u32, f64)]) -> RequestStream {
    RequestStream { part, kind: Kind::Read, sizes, is_sequential: false, is_suspended: true }
}

const fn write(part: f64, sizes: &'static [(u32, f64)]) -> RequestStream {
    RequestStream { part, kind: Kind::Write, sizes, is_sequential: false, is_suspended: false }
}

const fn in_sequence(stream: RequestStream) -> RequestStream {
    RequestStream { is_sequential: true, is_suspended: false, ..stream }
}

/// Sizes of sequential requests, the specification's SMIX, as NetApp's open implementation of the workload has it.
const SMIX: &[(u32, f64)] = &[(4 * KIB, 0.4), (8 * KIB, 0.24), (16 * KIB, 0.2), (32 * KIB, 0.08), (64 * KIB, 0.08)];

/// All of them. Parts of SPC-1: random and sequential reads and writes as in Gill and Modha (SARC, USENIX ATC 2005,
/// section 4.3), which the paper cites. Sizes: section 3.1. SFS2014: Table 5; what it leaves open is assumed and stands
/// beside it.
pub const WORKLOADS: [FilerWorkload; 5] = [
    FilerWorkload {
        name: "spc-1",
        streams: &[
            read(0.29, &[(4 * KIB, 1.0)]),
            in_sequence(read(0.11, SMIX)),
            write(0.32, &[(4 * KIB, 1.0)]),
            in_sequence(write(0.28, SMIX)),
        ],
        restarts: [0.1838, 0.0095, 0.00007],
    },
    // DB_TABLE: 79 % random reads, 20 % random writes, of 8 KiB. DB_LOG: 80 % sequential writes. The log's part of all
    // is assumed: a fifth.
    FilerWorkload {
        name: "database",
        streams: &[
            read(0.8 * 0.8, &[(8 * KIB, 1.0)]),
            write(0.8 * 0.2 + 0.2 * 0.2, &[(8 * KIB, 1.0)]),
            in_sequence(write(0.2 * 0.8, &[(4 * KIB, 0.5), (16 * KIB, 0.5)])),
        ],
        restarts: [0.0647, 0.0264, 0.0096],
    },
    // 70 % stat; reads and writes of the rest in equal parts, assumed. What is left of the sizes is taken as 32 KiB.
    FilerWorkload {
        name: "swbuild",
        streams: &[
            RequestStream {
                part: 0.7,
                kind: Kind::Other,
                sizes: &[(0, 1.0)],
                is_sequential: false,
                is_suspended: true,
            },
            read(0.15, &[(8 * KIB, 0.45), (32 * KIB, 0.55)]),
            write(0.15, &[(4 * KIB, 0.39), (96 * KIB, 0.36), (32 * KIB, 0.25)]),
        ],
        restarts: [0.0345, 0.0169, 0.0868],
    },
    // Streams: 64 KiB and more in sequence. Companions: 84 % random reads of 64 KiB and more. A companion for nine of a
    // stream, assumed.
    FilerWorkload {
        name: "vda",
        streams: &[in_sequence(write(0.9, &[(64 * KIB, 0.5), (128 * KIB, 0.5)])), read(0.1, &[(64 * KIB, 1.0)])],
        restarts: [0.0458, 0.0165, 0.0158],
    },
    // 20 % random reads, 64 % random writes; of the other 16 % half each in sequence, assumed.
    FilerWorkload {
        name: "vdi",
        streams: &[
            read(0.20, &[(16 * KIB, 0.41), (32 * KIB, 0.59)]),
            in_sequence(read(0.08, &[(64 * KIB, 1.0)])),
            write(0.64, &[(KIB / 2, 0.21), (4 * KIB, 0.5), (16 * KIB, 0.29)]),
            in_sequence(write(0.08, &[(64 * KIB, 1.0)])),
        ],
        restarts: [0.0573, 0.0441, 0.0132],
    },
];
