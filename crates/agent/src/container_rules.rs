//! The rules that a container's wish must meet.

use plimsoll_core::Allocation;

/// Judges what a container asks for, before its session opens.
pub trait ContainerRules: std::fmt::Debug + Send + Sync {
    /// What a container that asks for `asked` in the pool at `pool` is promised.
    ///
    /// # Errors
    /// Why it cannot be promised that, in a line.
    fn granted(&self, pool: &str, asked: Allocation) -> Result<Allocation, String>;
}
