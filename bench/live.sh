#!/bin/bash
# What the parts cost that watch and hold real processes: tags, without events and as the stations of a volume and of a
# disk load them, on ext4 and XFS in memory (crates/agent/examples/overhead.rs), and open gates
# (crates/gates/examples/gate_cost.rs).
#
#   bench/live.sh [ROUNDS]      (as root; a few minutes and the build)
#
# Prints medians of ROUNDS (default 12), and whether the goals of tags are met.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

[ "$(id -u)" = 0 ] || { echo "not run: bench/live.sh needs root for BPF programs, loop devices and mounts"; exit 0; }
target=${CARGO_TARGET_DIR:-target}
programs=$target/quick/examples

flags=$(scripts/build-flags.sh 2>/dev/null)
for file_system in ext4 xfs; do
  if [ -n "$flags" ]; then
    echo "not run: what tags cost on $file_system: built without BPF"
  elif ! command -v "mkfs.$file_system" >/dev/null || ! command -v losetup >/dev/null; then
    echo "not run: what tags cost on $file_system: mkfs.$file_system or losetup is missing"
  else
    cargo build --quiet --profile quick -p plimsoll-agent --example overhead
    "$programs/overhead" "$file_system" "${1:-12}"
  fi
done
cargo build --quiet --profile quick -p plimsoll-gates --example gate_cost
"$programs/gate_cost" "$target"
