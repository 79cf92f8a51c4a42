//! The identity of a start of the kernel.
//!
//! Numbers that the kernel gives out (inodes of cgroups, loop devices, mounts) begin anew when it does. A note that
//! holds such numbers also holds the identity of the start; a note of another start is void.

use std::io;

/// Where the kernel tells it (random(4)).
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The identity of this start: a UUID of 36 characters. One system call for each of open, read and close.
///
/// # Errors
/// `/proc` is not mounted or not readable.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: the line end stays, so that a note written with it never compares equal to one read by lines.
    #[test]
    fn it_is_a_uuid_and_the_same_at_each_call() {
        let id = boot_id().unwrap();
        assert_eq!((id.len(), &id), (36, &boot_id().unwrap()));
        assert!(id.chars().all(|character| character.is_ascii_hexdigit() || character == '-'), "{id}");
    }
}
