//! Names of initiators and targets (RFC 7143, 4.2.7; RFC 3722).
//!
//! **Rule.** A name is made of letters and digits of any script, `-`, `.` and `:`. So none holds what cannot be seen in
//! a list, what steers a terminal, or what shells and configurations give a meaning. **Complication.** RFC 3722 forbids
//! `_`, but hosts are called so, and their initiators after them. A peer's name need not begin with `iqn.`, `eui.` or
//! `naa.` either: testers and boot firmware leave that out. A target's own name keeps to the letter.

/// Bytes of a name at the most (RFC 7143, 4.2.7.1).
pub const NAME_BYTES_MAX: usize = 223;
/// What a name of a node begins with (RFC 7143, 4.2.7.3).
const KINDS: [&str; 3] = ["iqn.", "eui.", "naa."];

/// Whether a peer may be called so. O(bytes).
pub fn is_acceptable(name: &str) -> bool {
    let is_fine = |letter: char| letter.is_alphanumeric() || "-.:_".contains(letter);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_fine)
}

/// Whether a target may have this name. It must be of a known kind and in lower case, so that names compare without
/// preparation. O(bytes).
pub fn is_strict(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
    let has_kind = KINDS.iter().any(|kind| name.starts_with(kind) && name.len() > kind.len());
    has_kind && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Promise: iscsi-names.
    #[test]
    fn names_are_what_can_be_read() {
        for name in
            ["iqn.1993-08.org.debian:01:abcdef", "iqn.1991-05.com.microsoft:Host_7", "eui.02004567A425678D", "ü"]
        {
            assert!(is_acceptable(name), "{name}");
        }
        // Planted break that was seen red: only the length is looked at.
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a\x1b[2J", "a b", "a\nb", "a\u{202e}b", "a\u{200b}b", "a/b", "a\"b", "a$b", "a\u{7f}", &long]
        {
            assert!(!is_acceptable(name), "{name:?}");
        }
        assert!(is_strict("iqn.2026-01.org.example:disk"));
        for name in ["iqn.", "disk", "iqn.2026-01.org.example:Disk", "iqn.a_b"] {
            assert!(!is_strict(name), "{name}");
        }
    }

    proptest! {
        /// Promise: iscsi-names.
        #[test]
        fn no_name_holds_what_steers_a_terminal(name in any::<String>()) {
            let has_some = name.chars().any(|letter| letter.is_control() || letter.is_whitespace());
            prop_assert!(!(is_acceptable(&name) && (has_some || name.len() > NAME_BYTES_MAX)));
            prop_assert!(!is_strict(&name) || is_acceptable(&name));
        }
    }
}
