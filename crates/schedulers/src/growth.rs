//! Growing what stands by account number, among a million accounts.

/// A vector grows by this part of itself, and by so many entries at least.
const GROWTH_PART: usize = 32;
const GROWTH_MIN: usize = 4;

/// Makes room for `length` entries, and a little more. A vector that doubles wastes up to as much as it uses. One of
/// many pages that grows by a 32nd is not copied: the allocator moves its pages.
pub(crate) fn reserve_sparingly<T>(entries: &mut Vec<T>, length: usize) {
    if entries.capacity() < length {
        entries.reserve_exact(length + (length / GROWTH_PART).max(GROWTH_MIN) - entries.len());
    }
}
