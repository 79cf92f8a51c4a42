//! What the cache before the device of a live run counted.

use super::HostError;
use super::disk::Disk;
use crate::results::RunResult;
use plimsoll_engine::CacheStatus;
use plimsoll_sim::cached_volume::{CacheFigures, ClassCounts};

/// What a cache had counted when it was last looked at; nothing where there is none.
pub(super) struct Counted(CacheFigures);

impl Counted {
    /// From now on.
    pub(super) fn begin(disk: &Disk) -> Result<Counted, HostError> {
        Ok(Counted(disk.cache()?.as_ref().map(figures).unwrap_or_default()))
    }

    /// What was counted since, while those called `names` did something.
    pub(super) fn add<'a>(
        &mut self,
        disk: &Disk,
        names: impl IntoIterator<Item = &'a String>,
        result: &mut RunResult,
    ) -> Result<(), HostError> {
        let Some(status) = disk.cache()? else { return Ok(()) };
        let now = figures(&status);
        result.cache.extend(names.into_iter().map(|name| (name.clone(), now.since(&self.0))));
        result.cache_units = u64::from(status.units);
        self.0 = now;
        Ok(())
    }
}

/// What the cache has counted since it was made, in the words of the simulated one. Blocks that came in are not counted
/// by class.
fn figures(status: &CacheStatus) -> CacheFigures {
    let mut figures = CacheFigures { cleaned: status.cleaned, ..CacheFigures::default() };
    for class in &status.classes {
        figures.classes[usize::from(class.number)] = ClassCounts {
            reads: class.reads,
            read_hits: class.read_hits,
            writes: class.writes,
            write_hits: class.write_hits,
            taken: 0,
            units: u64::from(class.units),
        };
    }
    figures
}
