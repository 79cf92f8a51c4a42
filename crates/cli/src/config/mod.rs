//! The configuration: one TOML file, checked in full before anything starts.
//!
//! A file is read in three steps. [`plimsoll_settings`] turns text into tables and keeps the place of every key. Each
//! section has a file of its own. It has the keys and their descriptions, the struct, the reading (types, units,
//! ranges, unknown keys) and the checks of such sections. [`sections`] reads them one after the other. [`whole`]
//! compares sections of different kinds: references, places on the device, paths used twice, reserves that do not fit.
//! Each step continues after an error, so one run finds them all. A value that depends on a reported mistake is not
//! checked, so one mistake makes one message.
//!
//! Every message is one line: `FILE:LINE: KEY: got X, allowed Y`.
//!
//! The tables of keys in `docs/configuration.md` are made from the descriptions of the keys (`page.rs`).

mod bounds;
mod cache;
mod configuration;
mod daemon;
mod defaults;
mod device;
mod executor;
mod front_ends;
mod listen;
#[cfg(test)]
mod page;
mod paths;
mod pool;
mod profile;
mod sections;
mod volume;
mod whole;

pub use cache::{Cache, named_scheme, semantics_names, semantics_of};
pub use configuration::Configuration;
pub use daemon::DaemonSection;
pub use defaults::Defaults;
pub use device::{
    Device, OUTSTANDING_DEFAULT, SCHEDULER_DEFAULT, SCHEDULER_OF_OBSERVED_DEFAULT, SCHEDULER_WITH_TENANTS_DEFAULT,
    TAGS, TAGS_OF_SUBMITTERS,
};
pub use executor::ExecutorSection;
pub use front_ends::{Doors, Listens};
pub use listen::Listen;
pub use plimsoll_settings::{ConfigurationError, Place, Problem, name_like, name_problem, quoted};
pub use pool::Pool;
pub use profile::MeasuredProfile;
pub use volume::{Backing, Mount, Volume};

use plimsoll_settings::keys::Keys;
use plimsoll_settings::{LineIndex, syntax};
use std::path::Path;

/// Largest configuration in bytes: 1024 volumes with every key take about a quarter. Bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why nothing may be called `name`, in a line; `None` if it may.
pub fn name_refusal(name: &str) -> Option<String> {
    name_problem(name).map(|allowed| format!("got the name {}, allowed {allowed}", quoted(name)))
}

/// Reads and checks the configuration in `file`. Relative paths in it start from its own directory.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub fn load(file: &Path, defaults: &Defaults) -> Result<Configuration, ConfigurationError> {
    let text = plimsoll_settings::file::read_text(file, FILE_BYTES_MAX, "at most 4 MiB")?;
    let directory = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    parse(&text, file, directory.parent().unwrap_or(Path::new("/")), defaults)
}

/// Checks `text`, which came from `file`; relative paths in it start from `directory`.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines.
pub fn parse(
    text: &str,
    file: &Path,
    directory: &Path,
    defaults: &Defaults,
) -> Result<Configuration, ConfigurationError> {
    let mut problems = Vec::new();
    let lines = LineIndex::new(text);
    let (table, is_usable) = syntax::parse_past_unquoted(text, &lines, &mut problems);
    let of_syntax = problems.len();
    let configuration = is_usable.then(|| {
        let sections = sections::read(&table, &lines, directory, defaults, &mut problems);
        whole::check(sections, file, &mut problems)
    });
    syntax::without_follow_ups(of_syntax, &mut problems);
    match configuration {
        Some(configuration) if problems.is_empty() => Ok(Configuration { keys: Keys::of(&table), ..configuration }),
        _ => {
            problems.sort_by_key(|problem| problem.line);
            Err(ConfigurationError { file: file.to_owned(), problems })
        }
    }
}

/// Parses hostile text, for the fuzzer: any text gives a configuration or at least one problem.
pub fn parse_for_fuzzing(text: &str) {
    let defaults = Defaults::in_directory("/run/plimsoll".into());
    if let Err(error) = parse(text, Path::new("fuzz.toml"), Path::new("/etc"), &defaults) {
        assert!(!error.problems.is_empty(), "refused without a reason");
        let last_line = text.bytes().filter(|&byte| byte == b'\n').count() + 1;
        assert!(error.problems.iter().all(|problem| (1..=last_line).contains(&problem.line)), "{error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::account::WEIGHT_DEFAULT;
    use plimsoll_core::{Allocation, Priority, Rate, Span};
    use proptest::prelude::*;

    const WHOLE: &str = include_str!("../../tests/good/everything.toml");

    const SECTIONS: &str = "[daemon] [nbd] [device.d] [pool.p] [pool.q] [volume.v] [volume.w] [volume.v.nbd] [iscsi] [volume.v.iscsi] \
        [volume.v.mount] [executor] [cache.c] [cache.f] [device] [[pool]] [volume.\"a/b\"]";
    const KEYS: &str = "device parent pool size start file memory reserve limit weight priority deadlines worst_case \
        emulate scheduler cache read_ahead policy threads memory compression encryption key_file classes watermark_low watermark_high semantics promote_reads pools outstanding_max listen export name chap path filesystem format options read_only control_socket buffers seed";
    const VALUES: &str = "\"d\" \"p\" \"q\" \"30%\" \"9e9runs/s\" \"99999999TB\" \"4KiB\" true -1 99999999999999999999 \
        1e400 nan [] [1] [\"unix:x\"] {} {key_file=\"k\"} {read=\"1ms\"} 1979-05-27 \"noop\" \"ext4\" \"/\" \"\"";

    fn one_of(words: &'static str) -> impl Strategy<Value = String> {
        prop::sample::select(words.split_whitespace().collect::<Vec<_>>()).prop_map(str::to_owned)
    }

    /// Pieces that parse, so that random texts get past the first step.
    fn piece() -> impl Strategy<Value = String> {
        let value = prop_oneof![one_of(VALUES), "\\PC{0,8}".prop_map(|text| format!("{text:?}"))];
        prop_oneof![one_of(SECTIONS), (one_of(KEYS), value).prop_map(|(key, value)| format!("{key} = {value}"))]
    }

    #[test]
    fn sessions_inherit_priority_and_deadlines_but_no_rates() {
        let defaults = Defaults::in_directory("/run/plimsoll".into());
        let configuration = parse(WHOLE, Path::new("whole.toml"), Path::new("/etc"), &defaults).unwrap();
        let of = |name: &str| {
            let volume = configuration.volumes.iter().find(|volume| volume.name == name).unwrap();
            (configuration.volume_path(volume), configuration.session_allocation(volume))
        };
        // Each on a device with a scheduler that keeps it: all in one volume would be refused.
        let (path, session) = of("db");
        assert_eq!(path, "web/shop/db");
        assert_eq!((session.reserve, session.limit, session.weight), (Rate::ZERO, None, WEIGHT_DEFAULT));
        assert_eq!(of("mail").1.priority, Priority::Level(1), "its own");
        assert_eq!(of("index").1.priority, Priority::Idle, "that of pool night");
        let queue = of("queue").1.deadlines;
        assert_eq!(queue.read, Some(Span::from_millis(5)), "its own");
        assert_eq!(queue.write, Some(Span::from_millis(100)), "that of pool timely");
        assert_eq!(of("raw").1, Allocation::default());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}") {
            parse_for_fuzzing(&text);
        }

        #[test]
        fn no_mixture_of_pieces_makes_it_panic(pieces in prop::collection::vec(piece(), 0..30)) {
            parse_for_fuzzing(&pieces.join("\n"));
        }

        #[test]
        fn no_damage_to_a_good_file_makes_it_panic(at in 0..WHOLE.len(), length in 0usize..40, put in "\\PC{0,6}") {
            let mut text = WHOLE.as_bytes().to_vec();
            let end = (at + length).min(text.len());
            text.splice(at..end, put.bytes());
            parse_for_fuzzing(&String::from_utf8_lossy(&text));
        }
    }
}
