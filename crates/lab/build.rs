//! Lists `scenarios/*.toml`, so that the binary has every scenario in it.

use std::fmt::Write;
use std::path::Path;

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&manifest).join("../../scenarios");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = std::fs::read_dir(&folder).expect("the folder of scenarios");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    let mut list = String::from("[\n");
    for path in paths {
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let path = std::path::absolute(&path).expect("a path that exists");
        writeln!(list, "    ({name:?}, include_str!({:?})),", path.display().to_string()).expect("memory");
    }
    list.push_str("]\n");
    std::fs::write(Path::new(&out).join("scenarios.rs"), list).expect("a writable build folder");
}
