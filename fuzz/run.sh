#!/bin/sh
# Runs one fuzz target for so many seconds, from its corpus. Works with the stable compiler and nothing else installed
# but a C++ compiler (for libFuzzer). Without arguments: names the targets.
#
#   fuzz/run.sh nbd_handshake 60
#
# New inputs go to fuzz/found/TARGET, crashes to fuzz/crashes/TARGET; neither is part of the repository. An input that
# is worth keeping gets a telling name and goes to fuzz/corpus/TARGET, where `cargo test` replays it.
set -eu
cd "$(dirname "$0")"

target=${1:-}
seconds=${2:-60}
if [ ! -f "fuzz_targets/$target.rs" ]; then
    echo "usage: $0 TARGET [SECONDS]"
    echo "targets:" $(cd fuzz_targets && ls | sed 's/\.rs$//')
    exit 2
fi

# What `cargo fuzz build --sanitizer none` passes, in as far as the stable compiler takes it. The explicit --target
# keeps build scripts and procedural macros free of it.
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
export RUSTFLAGS
# Instrumented code does not mix with other builds.
export CARGO_TARGET_DIR="${FUZZ_TARGET_DIR:-$PWD/target}"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --target "$host" --bin "$target"

mkdir -p "found/$target" "crashes/$target"
exec "$CARGO_TARGET_DIR/$host/release/$target" -max_total_time="$seconds" -max_len=65536 -timeout=5 -rss_limit_mb=1024 \
    -artifact_prefix="crashes/$target/" -print_final_stats=1 "found/$target" "corpus/$target"
