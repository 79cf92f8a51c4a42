//! Compiles the programs that run in other processes, so that the library contains them: the shim that is preloaded
//! into tenants, and the keepers of listeners.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each product, and how it is made beyond the common flags.
const PRODUCTS: &[(&str, &str, &[&str])] = &[
    ("plimsoll-gate.so", "gate.c", &["-shared", "-fPIC", "-fvisibility=hidden", "-nostdlib"]),
    ("plimsoll-keeper", "keeper.c", &[]),
    ("plimsoll-thawer", "thawer.c", &[]),
];
const FLAGS: &[&str] = &["-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-Wl,-z,relro,-z,now"];

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let sources = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("shim");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed=../classes/c");
    let compiler = cc::Build::new().cargo_metadata(false).get_compiler();
    for (product, source, flags) in PRODUCTS {
        let mut command = Command::new(compiler.path());
        command.args(FLAGS).args(*flags).arg(sources.join(source)).arg("-o").arg(out.join(product));
        let status = command.status().unwrap_or_else(|error| panic!("{}: {error}", compiler.path().display()));
        assert!(status.success(), "{command:?}: {status}");
    }
}
