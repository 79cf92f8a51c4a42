//! How far a volume is read ahead: the key `read_ahead` of `[volume.NAME]`.

use plimsoll_core::ByteCount;
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_settings::key::{Absent, Key, Quantity};
use plimsoll_settings::{Place, Problem, Section};

pub(super) const READ_AHEAD: Key<Quantity<ByteCount>> = Key {
    name: "read_ahead",
    form: Quantity {
        allowed: "a power of two from \"128KiB\" to \"8MiB\"",
        is_allowed: |bytes| ReadAhead::new(bytes.0).is_some(),
    },
    absent: Absent::Words("nothing is read ahead"),
    help: "sequential reads find their next blocks in memory, at most so far ahead ([read-ahead.md](read-ahead.md)). \
           Not with `cache` or `tenants`",
};

pub(super) fn read(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<ReadAhead> {
    READ_AHEAD.read(section, problems).and_then(|bytes| ReadAhead::new(bytes.0))
}

/// Says where it cannot be.
pub(super) fn check(place: &Place, has_cache: bool, takes_tenants: bool, problems: &mut Vec<Problem>) {
    if !place.has(READ_AHEAD.name) {
        return;
    }
    if has_cache {
        const ALLOWED: &str = "one of both: what a cache takes in, it takes in when it is read";
        problems.push(place.problem(READ_AHEAD.name, "reading ahead in a volume with a cache", ALLOWED));
    }
    if takes_tenants {
        const ALLOWED: &str = "only without tenants: the causes of such a read are not known";
        problems.push(place.problem(
            READ_AHEAD.name,
            "reading ahead in a volume that is mounted with tenants",
            ALLOWED,
        ));
    }
}
