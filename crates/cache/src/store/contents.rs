//! Making a page of the map from what is in the cache and what the device says of it.

use super::bytes::Block;
use super::map::{self, AGES, ENTRIES, Entry, PageHead};
use super::marks::{Mark, Marks};
use crate::cache::Cache;
use crate::units::UnitId;

/// Writes page `head.page` as everything is now.
pub(super) fn encode_page(cache: &Cache, marks: &Marks, uuid: &[u8; 16], head: PageHead, block: &mut Block) {
    let units = &cache.units;
    // An age at which every unit has been replaced once counts as the oldest.
    let age_of = |unit| cache.policy.age(units, unit).saturating_mul(u64::from(AGES)) / u64::from(units.count());
    map::encode(block, uuid, head, |at| {
        let unit = UnitId(head.page * ENTRIES as u32 + at as u32);
        let Mark { checksum, is_recorded, is_dirty } =
            if unit.0 < units.count() { marks.get(units, unit) } else { Mark::default() };
        is_recorded.then(|| Entry {
            block: units.block(unit),
            class: units.class(unit),
            pool: units.pool(unit),
            is_dirty,
            is_again: units.is_again(unit),
            age: age_of(unit).min(u64::from(AGES) - 1) as u8,
            checksum,
        })
    });
}
