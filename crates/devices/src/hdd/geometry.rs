//! Where a sector lies on the platters, and when the head can be there.
//!
//! The intuition: imagine the drive read every sector from the first to the last without a pause. Each sector then has
//! a moment in that journey, its **stream time**. Tracks follow each other with a skew, so that the switch to the next
//! track takes exactly as long as the gap. Hence one number answers three questions:
//!
//! ```text
//!   stream time   0 ........ revolution .. +skew ........ +revolution .. +skew ...
//!                 | track 0 (head 0)  | gap | track 1 (head 1)   | gap | ...
//!
//!   angle of a sector        = its stream time modulo one revolution
//!   time to transfer [a, b)  = stream time of b's predecessor's end - stream time of a
//!   how far a stream that passed a at t has come by u = the sector at stream time (a) + u - t
//! ```
//!
//! The rule: sectors fill a track, tracks a cylinder (head by head), cylinders the disk from the rim inwards. The
//! complication: outer tracks hold more sectors. So the stroke is cut into zones of equally many cylinders, each with
//! its own number of sectors per track.

use super::parameters::HddParameters;
use plimsoll_core::Span;

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// What the arm can stand at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Cylinder, 0 at the rim.
    pub cylinder: u64,
    /// Head within the cylinder.
    pub head: u64,
}

/// Sectors that follow each other, and where they lie: what costs divisions, worked out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First sector.
    pub start: u64,
    /// The sector after the last one; above `start`.
    pub end: u64,
    /// Where the first one is.
    pub track: Track,
    /// Where on its track, as a part of a revolution, ns.
    pub angle_ns: u64,
    /// Stream time of the first one's beginning, ns.
    pub begin_ns: u64,
    /// Stream time of the last one's end, ns.
    pub end_ns: u64,
}

impl Stretch {
    /// Number of sectors.
    pub fn sectors(&self) -> u64 {
        self.end - self.start
    }

    /// From the first one's beginning to the last one's end.
    pub fn transfer(&self) -> Span {
        Span::from_nanos(self.end_ns - self.begin_ns)
    }
}

/// Where a sector is.
struct Place<'a> {
    zone: &'a Zone,
    track: Track,
    /// Stream time of the track's beginning, ns.
    track_ns: u64,
    in_track: u64,
}

#[derive(Clone, Debug)]
struct Zone {
    sector_first: u64,
    cylinder_first: u64,
    stream_first_ns: u64,
    sectors_per_track: u64,
}

/// The layout of one drive.
#[derive(Clone, Debug)]
pub struct Geometry {
    zones: Vec<Zone>,
    heads: u64,
    cylinders: u64,
    sectors: u64,
    revolution_ns: u64,
    head_skew_ns: u64,
    /// Stream time of a whole cylinder, the gaps included.
    cylinder_ns: u64,
}

impl Geometry {
    /// Lays a drive out: as many cylinders as its capacity needs, in zones with track lengths that fall evenly from the
    /// outermost to the innermost.
    pub fn new(parameters: &HddParameters) -> Geometry {
        let (heads, zones) = (parameters.heads, parameters.zones);
        let (outer, inner) = (parameters.sectors_per_track_outer, parameters.sectors_per_track_inner);
        let sectors_per_track = |zone: u64| outer - (outer - inner) * zone / (zones - 1).max(1);
        let sectors = parameters.capacity_bytes / SECTOR_BYTES;
        let sectors_per_zone_cylinder: u64 = (0..zones).map(|zone| heads * sectors_per_track(zone)).sum();
        let cylinders_per_zone = sectors.div_ceil(sectors_per_zone_cylinder);
        let head_skew_ns = parameters.head_switch_us * 1_000;
        let cylinder_skew_ns = (parameters.seek.track_to_track_us * 1_000).max(head_skew_ns);
        let cylinder_ns = heads * parameters.revolution_ns + (heads - 1) * head_skew_ns + cylinder_skew_ns;
        let mut sector_first = 0;
        let zones = (0..zones)
            .map(|zone| {
                let cylinder_first = zone * cylinders_per_zone;
                let here = Zone {
                    sector_first,
                    cylinder_first,
                    stream_first_ns: cylinder_first * cylinder_ns,
                    sectors_per_track: sectors_per_track(zone),
                };
                sector_first += cylinders_per_zone * heads * here.sectors_per_track;
                here
            })
            .collect::<Vec<_>>();
        let cylinders = zones.len() as u64 * cylinders_per_zone;
        Geometry {
            zones,
            heads,
            cylinders,
            sectors,
            revolution_ns: parameters.revolution_ns,
            head_skew_ns,
            cylinder_ns,
        }
    }

    /// Number of sectors that the host sees.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Number of cylinders.
    pub fn cylinders(&self) -> u64 {
        self.cylinders
    }

    fn place(&self, sector: u64) -> Place<'_> {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.sector_first <= sector) - 1];
        let (track, in_track) = divide(sector - zone.sector_first, zone.sectors_per_track);
        let (cylinder, head) = divide(track, self.heads);
        let track_ns =
            zone.stream_first_ns + cylinder * self.cylinder_ns + head * (self.revolution_ns + self.head_skew_ns);
        Place { zone, track: Track { cylinder: zone.cylinder_first + cylinder, head }, track_ns, in_track }
    }

    /// Stream time of the beginning of the sector that lies so many behind `place` on its track, or of the track's end.
    fn stream_ns(&self, place: &Place<'_>, sectors: u64) -> u64 {
        place.track_ns + (place.in_track + sectors) * self.revolution_ns / place.zone.sectors_per_track
    }

    /// The track of `sector`; it must be below [`sectors`](Geometry::sectors). O(log zones).
    pub fn track(&self, sector: u64) -> Track {
        self.place(sector).track
    }

    /// Stream time of the end of the last sector before `end`; there must be one. O(log zones).
    pub fn end_ns(&self, end: u64) -> u64 {
        self.stream_ns(&self.place(end - 1), 1)
    }

    /// Where the sectors `[start, end)` lie; there must be one, and none at or above [`sectors`](Geometry::sectors).
    /// O(log zones).
    pub fn stretch(&self, start: u64, end: u64) -> Stretch {
        let first = self.place(start);
        let begin_ns = self.stream_ns(&first, 0);
        let is_one_track = first.in_track + (end - start) <= first.zone.sectors_per_track;
        let end_ns = if is_one_track { self.stream_ns(&first, end - start) } else { self.end_ns(end) };
        Stretch { start, end, track: first.track, angle_ns: begin_ns % self.revolution_ns, begin_ns, end_ns }
    }

    /// The number of sectors that a stream from sector 0 has passed entirely by `stream_ns`. O(log zones).
    pub fn sectors_passed(&self, stream_ns: u64) -> u64 {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.stream_first_ns <= stream_ns) - 1];
        let (cylinder, in_cylinder_ns) = divide(stream_ns - zone.stream_first_ns, self.cylinder_ns);
        let head = (in_cylinder_ns / (self.revolution_ns + self.head_skew_ns)).min(self.heads - 1);
        let in_track_ns = in_cylinder_ns - head * (self.revolution_ns + self.head_skew_ns);
        // A sector ends at the rounded-down time, so its end belongs to it: hence the +1 before the division.
        let in_track = ((in_track_ns + 1) * zone.sectors_per_track - 1) / self.revolution_ns;
        let track = cylinder * self.heads + head;
        (zone.sector_first + track * zone.sectors_per_track + in_track.min(zone.sectors_per_track)).min(self.sectors)
    }
}

fn divide(dividend: u64, divisor: u64) -> (u64, u64) {
    (dividend / divisor, dividend % divisor)
}

/// How long the arm takes from one cylinder to another.
///
/// Short seeks accelerate half the way and brake the other half: time grows with the square root of the distance. Long
/// seeks coast at full speed: time grows linearly (Ruemmler and Wilkes, "An introduction to disk drive modeling",
/// 1994). The two meet at a third of the stroke. Data sheets give three points of the curve. The meeting point is
/// placed so that the mean over all pairs of cylinders is the data sheet's average:
///
/// ```text
///   mean = 0.2 track_to_track + 0.65185 knee + 0.14815 full_stroke
/// ```
///
/// which follows from the density 2 (1 - x) of the distance x between two random points of a line of length 1.
#[derive(Clone, Debug)]
pub struct SeekCurve {
    track_to_track_ns: f64,
    knee_ns: f64,
    full_stroke_ns: f64,
    knee_cylinders: f64,
    cylinders: f64,
}

impl SeekCurve {
    /// The curve through the three figures of the data sheet.
    pub fn new(parameters: &HddParameters, cylinders: u64) -> SeekCurve {
        let [track_to_track_ns, average_ns, full_stroke_ns] =
            [parameters.seek.track_to_track_us, parameters.seek.average_us, parameters.seek.full_stroke_us]
                .map(|us| us as f64 * 1e3);
        SeekCurve {
            track_to_track_ns,
            knee_ns: (average_ns - 0.2 * track_to_track_ns - 4.0 / 27.0 * full_stroke_ns) / (17.6 / 27.0),
            full_stroke_ns,
            knee_cylinders: cylinders as f64 / 3.0,
            cylinders: cylinders as f64,
        }
    }

    /// Nanoseconds for a seek over `distance` cylinders; none for a distance of 0.
    pub fn seek_ns(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let distance = distance as f64;
        let seek_ns = if distance < self.knee_cylinders {
            let share = (distance - 1.0) / (self.knee_cylinders - 1.0);
            self.track_to_track_ns + (self.knee_ns - self.track_to_track_ns) * share.sqrt()
        } else {
            let share = (distance - self.knee_cylinders) / (self.cylinders - self.knee_cylinders);
            self.knee_ns + (self.full_stroke_ns - self.knee_ns) * share
        };
        seek_ns as u64
    }
}
