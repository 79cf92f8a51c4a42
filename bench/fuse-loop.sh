#!/bin/bash
# IOPS of a loop device on a Plimsoll volume in memory, against a loop device with direct I/O on a plain tmpfs file.
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
serve=${SERVE_DISK:-}
if [ -z "$serve" ]; then
  cargo build --quiet --release -p plimsoll-brick --example serve_disk
  serve=${CARGO_TARGET_DIR:-target}/release/examples/serve_disk
fi

work=$(mktemp -d)
plain_file=$(mktemp /dev/shm/plimsoll-bench.XXXXXX)
plain=
server=
cleanup() {
  [ -z "$plain" ] || losetup -d "$plain"
  rm -f "$plain_file"
  exec 9>&- || true
  [ -z "$server" ] || wait "$server" || true
  rm -rf "$work"
}
trap cleanup EXIT

truncate -s "${size_mib}M" "$plain_file"
plain=$(losetup --find --show --direct-io=on --sector-size 4096 "$plain_file")

# The server stops when its standard input, which this script holds open as descriptor 9, is closed.
mkfifo "$work/stop"
"$serve" "$work/state" "$size_mib" <"$work/stop" >"$work/out" 2>&1 &
server=$!
exec 9>"$work/stop"
for _ in $(seq 100); do
  grep -q ^ready "$work/out" && break
  sleep 0.1
done
ours=$(sed -n 's/^ready //p' "$work/out")
[ -b "$ours" ] || { cat "$work/out"; exit 1; }

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

for ((round = 1; round <= rounds; round++)); do
  for direction in read write; do
    plain_iops=$(iops "$plain" "$direction")
    before=$(cpu_ticks)
    ours_iops=$(iops "$ours" "$direction")
    cpu_us=$(awk -v t=$(($(cpu_ticks) - before)) -v n="$ours_iops" -v s="$seconds" 'BEGIN { print t * 10000 / (n * s) }')
    echo "$direction $plain_iops $ours_iops $cpu_us" | tee -a "$work/rounds" >&2
  done
done

awk -v target="$ratio_target" '
  function median(values, count,   i, j, swap) {
    for (i = 2; i <= count; i++) for (j = i; j > 1 && values[j - 1] > values[j]; j--) {
      swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap
    }
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
  }
  { n = ++count[$1]; plain[$1, n] = $2; ours[$1, n] = $3; ratio[$1, n] = $3 / $2; cpu[$1, n] = $4 }
  END {
    print "direction  plain tmpfs loop  Plimsoll FUSE loop  ratio  server CPU us/IO"
    split("read write", directions, " ")
    for (d = 1; d <= 2; d++) {
      name = directions[d]; n = count[name]
      for (i = 1; i <= n; i++) { a[i] = plain[name, i]; b[i] = ours[name, i]; c[i] = ratio[name, i]; e[i] = cpu[name, i] }
      r = median(c, n)
      printf "%-9s  %16d  %18d  %5.2f  %16.2f\n", name, median(a, n), median(b, n), r, median(e, n)
      if (r < target) failed = 1
    }
    if (failed) print "below the target of " target
    exit failed
  }' "$work/rounds"
