//! Any bytes as a line to the control socket: what is understood is written and read back as itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| plimsoll_cli::control::protocol::parse_for_fuzzing(line));
