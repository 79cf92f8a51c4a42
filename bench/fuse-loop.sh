#!/bin/bash
# IOPS of a loop device on a Plimsoll volume in memory, against a loop device with direct I/O on a plain tmpfs file, and
# against one on the barest FUSE server (crates/serve/examples/bare_fuse.rs): what the kernel's FUSE path leaves
# possible.
#
#   bench/fuse-loop.sh [ROUNDS] [SECONDS]      (as root; needs fio, losetup)
#
# fio, libaio, 4 KiB, random, depth 32, reads and writes. The two are measured in turns, ROUNDS times (default 7) for
# SECONDS each (default 3), because a shared machine drifts: a ratio is taken within each round, and its median counts.
# Prints medians and the ratio; exits with 1 if it is below the target.
set -euo pipefail

rounds=${1:-7}
seconds=${2:-3}
size_mib=1024
ratio_target=0.9
# Wider runs are slower on both sides alike; one job at depth 32 is what the target is stated for.
depth=32

[ "$(id -u)" = 0 ] || { echo "not run: needs root for loop devices and mounts"; exit 0; }
for program in fio losetup; do
  command -v "$program" >/dev/null || { echo "not run: $program is missing"; exit 0; }
done
[ -e /dev/fuse ] || { echo "not run: /dev/fuse is missing"; exit 0; }

cd "$(dirname "$0")/.."
cargo build --quiet --release -p plimsoll-serve --example serve_disk --example bare_fuse
programs=${CARGO_TARGET_DIR:-target}/release/examples

work=$(mktemp -d)
plain_file=$(mktemp /dev/shm/plimsoll-bench.XXXXXX)
plain=
cleanup() {
  [ -z "$plain" ] || losetup -d "$plain"
  rm -f "$plain_file"
  # The servers stop when their standard inputs, which this script holds open, are closed.
  exec 8>&- 9>&- || true
  wait
  rm -rf "$work"
}
trap cleanup EXIT

truncate -s "${size_mib}M" "$plain_file"
plain=$(losetup --find --show --direct-io=on --sector-size 4096 "$plain_file")

wait_for() { # name; prints the device that it serves
  for _ in $(seq 100); do
    grep -q ^ready "$work/$1.out" && break
    sleep 0.1
  done
  sed -n 's/^ready //p' "$work/$1.out"
}
mkfifo "$work/stop-bare" "$work/stop-ours"
"$programs/bare_fuse" "$work/bare" "$size_mib" <"$work/stop-bare" >"$work/bare.out" 2>&1 &
exec 8>"$work/stop-bare"
bare=$(wait_for bare)
"$programs/serve_disk" "$work/ours" "$size_mib" <"$work/stop-ours" >"$work/ours.out" 2>&1 &
server=$!
exec 9>"$work/stop-ours"
ours=$(wait_for ours)
[ -b "$bare" ] && [ -b "$ours" ] || { cat "$work"/*.out; exit 1; }

# Every page exists before anything is measured.
for device in "$plain" "$ours"; do
  dd if=/dev/zero of="$device" bs=1M oflag=direct status=none 2>/dev/null || true
done

iops() { # device, read or write
  local field=8
  [ "$2" = read ] || field=49
  fio --name=bench --filename="$1" --rw="rand$2" --bs=4k --iodepth="$depth" --ioengine=libaio --direct=1 \
    --runtime="$seconds" --time_based --output-format=terse --terse-version=3 | cut -d';' -f"$field"
}
cpu_ticks() { # user and system time of the server so far
  awk '{ print $14 + $15 }' "/proc/$server/stat"
}
steal_ticks() { # what the host took from this machine so far
  awk '/^cpu / { print $9 }' /proc/stat
}

for ((round = 1; round <= rounds; round++)); do
  for direction in read write; do
    stolen=$(steal_ticks)
    plain_iops=$(iops "$plain" "$direction")
    bare_iops=$(iops "$bare" "$direction")
    before=$(cpu_ticks)
    ours_iops=$(iops "$ours" "$direction")
    cpu_us=$(awk -v t=$(($(cpu_ticks) - before)) -v n="$ours_iops" -v s="$seconds" 'BEGIN { print t * 10000 / (n * s) }')
    echo "$direction $plain_iops $bare_iops $ours_iops $cpu_us $(($(steal_ticks) - stolen))" | tee -a "$work/rounds" >&2
  done
done

awk -v target="$ratio_target" '
  function median(values, count,   i, j, swap) {
    for (i = 2; i <= count; i++) for (j = i; j > 1 && values[j - 1] > values[j]; j--) {
      swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap
    }
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
  }
  function middle(column, direction, n,   i, values) {
    for (i = 1; i <= n; i++) values[i] = table[direction, i, column]
    return median(values, n)
  }
  {
    n = ++count[$1]
    for (i = 2; i <= 6; i++) table[$1, n, i] = $i
    table[$1, n, 7] = $3 / $2; table[$1, n, 8] = $4 / $2; table[$1, n, 9] = $4 / $3
  }
  END {
    print "IOPS       plain loop  bare server    ours  bare/plain  ours/plain  ours/bare  ours: CPU us/IO  stolen by the host, ms"
    split("read write", directions, " ")
    for (d = 1; d <= 2; d++) {
      name = directions[d]; n = count[name]; ratio = middle(8, name, n)
      printf "%-9s  %10d  %11d  %6d  %10.2f  %10.2f  %9.2f  %15.2f  %22d\n", name, middle(2, name, n), middle(3, name, n),
        middle(4, name, n), middle(7, name, n), ratio, middle(9, name, n), middle(5, name, n), middle(6, name, n) * 10
      if (ratio < target) failed = 1
    }
    if (failed) print "ours/plain is below the target of " target
    exit failed
  }' "$work/rounds"
