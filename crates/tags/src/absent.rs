//! In place of `kernel` where BPF was left out when this was built.

use crate::error::TagsError;
use crate::memory::SharedMemory;
use crate::{Counters, Coverage, Options};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// Tables of the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Threads,
    Processes,
    Cgroups,
    Owners,
}

/// Programs that are loaded: none can be.
pub(crate) enum Kernel {}

type Entry = (Vec<u8>, Vec<u8>);

#[rustfmt::skip]
impl Kernel {
    pub(crate) fn load(_: &Path, _: &Options) -> Result<(Kernel, Coverage), TagsError> {
        Err(TagsError::NotRun("built without BPF: clang or libelf's headers were missing".to_owned()))
    }
    pub(crate) fn state(&self) -> &Arc<SharedMemory> { match *self {} }
    pub(crate) fn entries_of_tags(&self) -> (&Arc<SharedMemory>, u32) { match *self {} }
    pub(crate) fn lookup(&self, _: Table, _: &[u8]) -> Result<Option<Vec<u8>>, TagsError> { match *self {} }
    pub(crate) fn entries(&self, _: Table) -> Result<Vec<Entry>, TagsError> { match *self {} }
    pub(crate) fn update(&self, _: Table, _: &[u8], _: &[u8]) -> Result<(), TagsError> { match *self {} }
    pub(crate) fn delete(&self, _: Table, _: &[u8]) -> Result<bool, TagsError> { match *self {} }
    pub(crate) fn counters(&self, _: u32) -> Result<Counters, TagsError> { match *self {} }
    pub(crate) fn reset_counters(&self, _: u32) -> Result<(), TagsError> { match *self {} }
    pub(crate) fn take_flows(&self) -> Result<Vec<(Vec<u8>, u64)>, TagsError> { match *self {} }
    pub(crate) fn sweep(&self, _: u64) -> Result<u64, TagsError> { match *self {} }
    pub(crate) fn records(&self, _: &mut dyn FnMut(&[u8])) { match *self {} }
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> { match *self {} }
    pub(crate) fn wake(&self) { match *self {} }
    pub(crate) fn missed(&self) -> Result<u64, TagsError> { match *self {} }
    pub(crate) fn memory_bytes(&self) -> u64 { match *self {} }
}
