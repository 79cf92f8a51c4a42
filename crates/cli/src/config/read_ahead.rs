//! How far a volume is read ahead: the key `read_ahead` of `[volume.NAME]`.

use plimsoll_core::ByteCount;
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_settings::{Place, Problem, Section};

const ALLOWED: &str = "a power of two from \"128KiB\" to \"8MiB\"";

pub(super) fn read(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<ReadAhead> {
    let bytes =
        section.quantity("read_ahead", ALLOWED, problems, |bytes: &ByteCount| ReadAhead::new(bytes.0).is_some());
    bytes.and_then(|bytes| ReadAhead::new(bytes.0))
}

/// Says where it cannot be.
pub(super) fn check(place: &Place, has_cache: bool, takes_tenants: bool, problems: &mut Vec<Problem>) {
    if !place.has("read_ahead") {
        return;
    }
    if has_cache {
        const ALLOWED: &str = "one of both: what a cache takes in, it takes in when it is read";
        problems.push(place.problem("read_ahead", "reading ahead in a volume with a cache", ALLOWED));
    }
    if takes_tenants {
        const ALLOWED: &str = "only without tenants: nobody could say for whom it is read";
        problems.push(place.problem("read_ahead", "reading ahead in a volume that is mounted with tenants", ALLOWED));
    }
}
