//! Pools that may fill only a part of a cache, and their numbers in it.
//!
//! A cache keeps with each unit the number of its block's pool, 0 for all without a bound, and that is on its device.
//! So a pool has the same number after others were given a bound or lost theirs: it is drawn from the name. Where two
//! names draw the same number, the one that comes later in the alphabet has the next that is free.

use plimsoll_cache::Pool;
use plimsoll_core::crc32c;

/// Numbers of pools with a bound: 1 to so many.
const NUMBERS: u32 = 511;

/// The number of each of `paths`, which are different.
pub(crate) fn numbered<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<(&'p str, Pool)> {
    let mut paths: Vec<&str> = paths.collect();
    paths.sort_unstable();
    let mut numbered: Vec<(&str, Pool)> = Vec::new();
    for path in paths {
        let drawn = crc32c(path.as_bytes()) % NUMBERS;
        let mut tries = (0..NUMBERS).map(|more| (drawn + more) % NUMBERS + 1);
        let is_free = |pool: &Pool| numbered.iter().all(|(_, taken)| taken != pool);
        let pool = tries.find_map(|number| Pool::new(number as u16).filter(is_free));
        numbered.push((path, pool.expect("there are fewer pools than numbers")));
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Planted breaks that were seen red: numbers by place in the alphabet; the same for two that draw the same.
    /// Promise: cache-pool-bound.
    #[test]
    fn numbers_are_different_and_stay_what_they_were_when_others_come() {
        let names: Vec<String> = (0..60).map(|number| format!("web/pool-{number}")).collect();
        let all = numbered(names.iter().map(String::as_str));
        let numbers: BTreeSet<u16> = all.iter().map(|(_, pool)| pool.number()).collect();
        assert!(numbers.len() == 60 && !numbers.contains(&0));
        let half = numbered(names.iter().skip(30).map(String::as_str));
        let moved = half.iter().filter(|entry| !all.contains(entry)).count();
        // Those that two have drawn.
        assert!(moved <= 6, "{moved}");
    }
}
