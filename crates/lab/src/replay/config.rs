//! What is promised in a replay: pools, and the trace's volumes in them.
//!
//! ```toml
//! [pool.database]
//! reserve = "40%"
//! volumes = [0, "src1.0"]      # by number, or by the name that the trace has
//! ```

use plimsoll_core::Allocation;
use plimsoll_settings::{ConfigurationError, LineIndex, Problem, Section, allocation, file, quoted, syntax};
use std::path::Path;

const FILE_BYTES_MAX: u64 = 1 << 20;
const POOLS_MAX: usize = 1024;

/// A volume of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeName {
    /// By its number.
    Number(u32),
    /// By its name in the trace.
    Name(String),
}

/// Pools and what is in them; empty, every volume is by itself.
#[derive(Clone, Debug, Default)]
pub struct ReplayConfig {
    pub(super) pools: Vec<Pool>,
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) allocation: Allocation,
    volumes: Vec<VolumeName>,
}

impl ReplayConfig {
    /// Reads `path`.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines.
    pub fn load(path: &Path) -> Result<ReplayConfig, ConfigurationError> {
        ReplayConfig::parse(&file::read_text(path, FILE_BYTES_MAX, "at most 1 MiB")?, path)
    }

    /// Reads `text`, which came from `path`.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines.
    pub fn parse(text: &str, path: &Path) -> Result<ReplayConfig, ConfigurationError> {
        let (lines, mut problems) = (LineIndex::new(text), Vec::new());
        let (table, is_usable) = syntax::parse(text, &lines, &mut problems);
        let mut pools: Vec<Pool> = Vec::new();
        if is_usable {
            let mut root = Section::root(&table, &lines);
            for (name, section) in root.named_sections("pool", POOLS_MAX, &mut problems) {
                let read = pool(name, section, &pools, &mut problems);
                pools.push(read);
            }
            root.finish(&mut problems);
        }
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() {
            Ok(ReplayConfig { pools })
        } else {
            Err(ConfigurationError { file: path.into(), problems })
        }
    }

    /// The pool of a volume; `None` if no pool names it.
    pub(super) fn pool_of(&self, number: u32, name: Option<&str>) -> Option<&str> {
        let is_it = |volume: &VolumeName| match volume {
            VolumeName::Number(this) => *this == number,
            VolumeName::Name(this) => Some(this.as_str()) == name,
        };
        self.pools.iter().find(|pool| pool.volumes.iter().any(is_it)).map(|pool| pool.name.as_str())
    }
}

fn pool(name: String, mut section: Section<'_>, before: &[Pool], problems: &mut Vec<Problem>) -> Pool {
    const VOLUMES: &str = "a list of the trace's volumes, such as [0, 3] or [\"src1.0\"]";
    let parent = section.read("parent", "a pool that stands before it", problems, |parent| {
        let known = before.iter().any(|pool| pool.name == parent);
        if known { Ok(parent.to_owned()) } else { Err("a pool that stands before it".to_owned()) }
    });
    let volumes = section.with("volumes", VOLUMES, problems, |value| {
        let volumes = value.as_array()?.iter().map(|item| match item.get_ref().as_str() {
            Some(name) => Some(VolumeName::Name(name.to_owned())),
            None => item.get_ref().as_integer()?.as_str().parse().ok().map(VolumeName::Number),
        });
        volumes.collect::<Option<Vec<_>>>()
    });
    let (volumes, allocation) = (volumes.unwrap_or_default(), allocation(&mut section, problems));
    let place = section.finish(problems);
    for volume in &volumes {
        if let Some(other) = before.iter().find(|pool| pool.volumes.contains(volume)) {
            let got = match volume {
                VolumeName::Number(number) => format!("volume {number}"),
                VolumeName::Name(name) => format!("volume {}", quoted(name)),
            };
            problems.push(place.problem("volumes", got, format!("what pool.{} has not", other.name)));
        }
    }
    Pool { name, parent, allocation, volumes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_found_by_number_and_by_name() {
        let text = "[pool.a]\nvolumes = [0, \"src1.0\"]\n[pool.b]\nparent = \"a\"\nvolumes = [3]\n";
        let config = ReplayConfig::parse(text, Path::new("pools.toml")).unwrap();
        assert_eq!(config.pool_of(0, None), Some("a"));
        assert_eq!(config.pool_of(9, Some("src1.0")), Some("a"));
        assert_eq!(config.pool_of(3, Some("x")), Some("b"));
        assert_eq!(config.pool_of(4, None), None);
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let text = "[pool.a]\nvolumes = [0]\n[pool.b]\nparent = \"c\"\nvolumes = [0]\nlimit = \"no\"\nvolume = 1\n";
        let error = ReplayConfig::parse(text, Path::new("pools.toml")).unwrap_err().to_string();
        let expected = [
            "pools.toml:4: pool.b.parent: got \"c\", allowed a pool that stands before it",
            "pools.toml:5: pool.b.volumes: got volume 0, allowed what pool.a has not",
            "pools.toml:6: pool.b.limit: got \"no\", allowed a rate such as \"45 runs/s\", \"10MB/s\" or \"30%\"",
            "pools.toml:7: pool.b.volume: got an unknown key, allowed deadlines, limit, parent, priority, reserve, \
             volumes, weight (did you mean \"volumes\"?)",
        ];
        assert_eq!(error.lines().collect::<Vec<_>>(), expected);
    }
}
