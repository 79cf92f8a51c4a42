//! Any text as a configuration: it is one, or there is at least one problem, each on a line that exists.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| plimsoll_cli::config::parse_for_fuzzing(text));
