//! Lengths that both ends of a connection keep to, in bytes.

/// Largest data of one received write, in bytes: 2^25. The specification tells clients not to exceed it and servers not
/// to take it for an attack ("Block size constraints"). A larger one closes the connection.
pub const PAYLOAD_BYTES_MAX: u32 = 32 * 1024 * 1024;
/// Bytes in a name or a description at the most (specification, "Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// Most data of one option that is received, in bytes: a name of full length and 4 KiB of other data.
pub const OPTION_DATA_BYTES_MAX: usize = STRING_BYTES_MAX + 4096;
