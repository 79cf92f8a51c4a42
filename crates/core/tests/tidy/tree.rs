//! The repository's files, read once for all rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Folders that hold products, corpora or another program's files.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts", "results"];
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".json", ".sh", ".c", ".h", ".py", ".ts", ".java", "Makefile", "run"];

/// One file of the repository, or one that a test plants.
pub struct Text {
    /// The path from the repository's root, with `/`.
    pub path: String,
    /// The whole content.
    pub text: String,
}

impl Text {
    /// Whether the file's name ends in one of `endings`.
    pub fn ends_in(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file of the repository, in the order of their paths; build products are left out.
pub fn house() -> &'static [Text] {
    static HOUSE: OnceLock<Vec<Text>> = OnceLock::new();
    HOUSE.get_or_init(|| below(&root()))
}

/// The file at `path`, or `None` if `texts` has none there.
pub fn find<'t>(texts: &'t [Text], path: &str) -> Option<&'t str> {
    let index = texts.binary_search_by(|text| text.path.as_str().cmp(path)).ok()?;
    Some(&texts[index].text)
}

/// Every text file below `root`, in the order of their paths.
pub fn below(root: &Path) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().unwrap().is_dir() {
                if !SKIPPED.contains(&&*name) {
                    folders.push(path);
                }
            } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                texts.push(Text { path, text });
            }
        }
    }
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    texts
}

/// Files that a test plants: pairs of path and content.
#[cfg(test)]
pub fn planted(files: &[(&str, &str)]) -> Vec<Text> {
    let mut texts: Vec<Text> =
        files.iter().map(|(path, text)| Text { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    texts
}

#[test]
fn products_are_left_out_and_the_rest_is_sorted() {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [("b/src/lib.rs", "1"), ("a.md", "2"), ("target/x.rs", "3"), ("b/data.bin", "4")] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let texts = below(folder.path());
    assert_eq!(texts.iter().map(|text| text.path.as_str()).collect::<Vec<_>>(), ["a.md", "b/src/lib.rs"]);
    assert_eq!(find(&texts, "b/src/lib.rs"), Some("1"));
    assert_eq!(find(&texts, "target/x.rs"), None);
}
