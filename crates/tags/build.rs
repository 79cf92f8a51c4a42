//! Compiles the BPF programs, if they are not left out.

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    #[cfg(feature = "bpf")]
    compile();
}

#[cfg(feature = "bpf")]
fn compile() {
    use std::path::PathBuf;
    let object = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("tags.bpf.o");
    // Version 3 of the instruction set has the atomic operations that give back what was there; clang 14 wants to be
    // asked.
    let built = libbpf_cargo::SkeletonBuilder::new()
        .source("bpf/tags.bpf.c")
        .obj(&object)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
        .build();
    if let Err(error) = built {
        panic!("the BPF programs cannot be compiled: {error:?}");
    }
}
