//! What tells one disk drive from another, and the drives that are known by name.
//!
//! Every number is from a data sheet or a paper unless its comment says that it was fitted, and to what, or assumed.
//! `docs/devices.md` tells the figures that were read in the maker's document from those that are as commonly quoted.

/// The figures of a drive. All must be positive, but for the optional ones, which 0 turns off.
#[derive(Clone, Debug, PartialEq)]
pub struct HddParameters {
    /// The name in configurations.
    pub name: &'static str,
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Recording surfaces.
    pub heads: u64,
    /// Zones of equally many cylinders.
    pub zones: u64,
    /// Sectors of 512 bytes on an outermost track.
    pub sectors_per_track_outer: u64,
    /// Sectors of 512 bytes on an innermost track; at most as many as on an outermost.
    pub sectors_per_track_inner: u64,
    /// One revolution, ns.
    pub revolution_ns: u64,
    /// How long the arm takes.
    pub seek: SeekTimes,
    /// From one head to the next in the same cylinder; also the skew between their tracks.
    pub head_switch_us: u64,
    /// From the arrival of a command to the start of the seek; overlaps with the command before.
    pub command_overhead_us: u64,
    /// What the cable carries, bytes per second; it bounds what comes from the buffer.
    pub interface_bytes_per_second: u64,
    /// How many commands, the oldest, the drive looks at when it picks the next.
    pub window: usize,
    /// A command that the drive has looked at for so long goes first, whatever its place.
    pub age_max_us: u64,
    /// What the drive uses its memory for.
    pub buffer: BufferParameters,
    /// Random requests of 4 KiB per second with `outstanding_max` outstanding, reads or writes, whichever are slower,
    /// as `validate` measures them.
    pub worst_case_runs_per_second: f64,
    /// Bytes per second of one stream at the rim.
    pub sequential_bytes_per_second: f64,
    /// Requests to keep at the drive.
    pub outstanding_max: u32,
}

/// How long the arm of a drive takes, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SeekTimes {
    /// To the next cylinder, settling included.
    pub track_to_track_us: u64,
    /// The mean over all pairs of cylinders, reading.
    pub average_us: u64,
    /// From the rim to the hub, reading.
    pub full_stroke_us: u64,
    /// How much longer the head settles before a write, after a seek over more than one cylinder.
    pub write_settle_us: u64,
    /// From the end of one command to the start of the next one's seek, if it leads over more than one cylinder.
    pub start_us: u64,
}

/// What a drive uses its memory for.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferParameters {
    /// How far the drive reads on after a read when nothing else is to be done; 0 for not at all.
    pub read_ahead_bytes: u64,
    /// How many streams the memory can hold besides the one that is being read.
    pub read_segments: usize,
    /// Volatile write cache; 0 for write-through.
    pub write_cache_bytes: u64,
}

/// WD Caviar Blue WD5000AAKX, 500 GB, 7200 rpm: the drive of the split-level paper (section 6). The paper read 138 MB/s
/// from it sequentially (its figure 14).
pub const WD_AAKX: HddParameters = HddParameters {
    name: "hdd.wd-aakx",
    // Data sheet: 976,773,168 sectors.
    capacity_bytes: 976_773_168 * 512,
    // One platter of 500 GB.
    heads: 2,
    // Not published; drives of that time have 15 to 30.
    zones: 20,
    // Fitted to 138 MB/s including head and track switches (split-level paper, figure 14).
    sectors_per_track_outer: 2_705,
    // Not published; the inner rate of such drives is about half of the outer one.
    sectors_per_track_inner: 1_340,
    // Data sheet: 7200 rpm.
    revolution_ns: 8_333_333,
    seek: SeekTimes {
        // Data sheet: 2.0 ms track to track, 8.9 ms average read, 21 ms full stroke.
        track_to_track_us: 2_000,
        average_us: 8_900,
        full_stroke_us: 21_000,
        // Data sheet: average write seek 9.9 ms, 1.0 ms above the read's.
        write_settle_us: 1_000,
        // The drive decodes the next command while it serves the one before (native command queueing).
        start_us: 0,
    },
    // Not published; as the Deskstar's.
    head_switch_us: 1_400,
    // Not published; a 4 KB command that hits the buffer takes about this long on SATA drives.
    command_overhead_us: 50,
    // SATA at 6 Gbit/s with 8b/10b coding.
    interface_bytes_per_second: 600_000_000,
    // Assumed. Native command queueing takes 32, but how many of them the firmware weighs is not published; with 8 the
    // gain over one request at a time is 1.7, and 10 outstanding suffice.
    window: 8,
    age_max_us: 500_000,
    buffer: BufferParameters {
        // Data sheet: 16 MB buffer, here 7 frozen segments and the current one.
        read_ahead_bytes: 1 << 20,
        read_segments: 7,
        write_cache_bytes: 0,
    },
    worst_case_runs_per_second: 114.5,
    sequential_bytes_per_second: 138e6,
    outstanding_max: 10,
};

/// IBM/Hitachi Deskstar 180GXP IC35L120AVV207, 120 GB, 7200 rpm: the kind of drive of the Zygaria paper (section 5). It
/// did 112 random reads of 1 KB per second over the whole disk with 10 outstanding.
pub const DESKSTAR_120: HddParameters = HddParameters {
    name: "hdd.deskstar-120",
    // Data sheet: 241,254,720 sectors.
    capacity_bytes: 241_254_720 * 512,
    // Data sheet: two platters of 60 GB.
    heads: 4,
    // Not published here; drives of that time have 15 to 30.
    zones: 20,
    // Specification: 1092 sectors on the longest track; sustained rate 56 MB/s outside and 29 MB/s inside.
    sectors_per_track_outer: 1_092,
    sectors_per_track_inner: 560,
    // Data sheet: 7200 rpm.
    revolution_ns: 8_333_333,
    seek: SeekTimes {
        // Data sheet: 1.1 ms track to track, 8.5 ms average read; specification 4.4.2.2: 14.7 ms full stroke.
        track_to_track_us: 1_100,
        average_us: 8_500,
        full_stroke_us: 14_700,
        // Specification 4.4.2.2: writes take 1.0 ms more. Left out: such drives came with their write cache on, where
        // writes are no slower than reads, and the paper promises its 112 IOPS to both.
        write_settle_us: 0,
        // Fitted to 112 IOPS: the drive has no queue and begins only now to decode; the specification allows 0.5 ms.
        start_us: 350,
    },
    // Specification 4.4.2.3: 1.4 ms.
    head_switch_us: 1_400,
    // Specification: read that hits the cache, 0.1 ms.
    command_overhead_us: 100,
    // Ultra ATA/100.
    interface_bytes_per_second: 100_000_000,
    // The paper's drive has no queue of its own; Linux' one-way elevator ordered the 10 requests in front of it, which
    // is worth about as much as the best of 5.
    window: 5,
    age_max_us: 500_000,
    buffer: BufferParameters {
        // Data sheet: 8 MB buffer.
        read_ahead_bytes: 512 << 10,
        read_segments: 7,
        write_cache_bytes: 0,
    },
    worst_case_runs_per_second: 111.5,
    sequential_bytes_per_second: 56e6,
    outstanding_max: 10,
};

/// Seagate Cheetah 15K.7 ST3450857SS, 450 GB SAS, 15000 rpm. Figures from its product manual (publication 100516226)
/// unless said otherwise.
pub const SAS_15K: HddParameters = HddParameters {
    name: "hdd.15k-sas",
    // 879,097,968 sectors.
    capacity_bytes: 879_097_968 * 512,
    // Three discs.
    heads: 6,
    // Not published; drives of that time have 15 to 30.
    zones: 20,
    // Fitted to the sustainable rates, 204 MB/s outside and 122 MB/s inside, head and track switches included.
    sectors_per_track_outer: 1_753,
    sectors_per_track_inner: 1_048,
    // 15000 rpm.
    revolution_ns: 4_000_000,
    seek: SeekTimes {
        // Read: 0.2 ms single track, 3.4 ms average, 6.6 ms full stroke.
        track_to_track_us: 200,
        average_us: 3_400,
        full_stroke_us: 6_600,
        // Average write seek 3.9 ms, 0.5 ms above the read's.
        write_settle_us: 500,
        // Tagged command queueing: decodes while it serves.
        start_us: 0,
    },
    // Not published; a usual time for drives of that kind.
    head_switch_us: 400,
    // Not published; below the 0.2 ms that 10000 rpm drives of the same maker state for controller overhead.
    command_overhead_us: 50,
    // SAS at 6 Gbit/s with 8b/10b coding.
    interface_bytes_per_second: 600_000_000,
    // Tagged command queueing; how many commands the firmware weighs is not published, taken as the SATA drive's.
    window: 8,
    age_max_us: 500_000,
    buffer: BufferParameters {
        // 16 MB buffer.
        read_ahead_bytes: 1 << 20,
        read_segments: 7,
        write_cache_bytes: 0,
    },
    worst_case_runs_per_second: 273.0,
    sequential_bytes_per_second: 204e6,
    outstanding_max: 10,
};
