#!/bin/sh
# What cgroups version 2 do for one tenant beside another on a slow disk, beside what Plimsoll does, as a table.
#
#   guest (QEMU, scripts/guest.sh): Debian 12's kernel, cgroup2-guest.sh, ext4 on a virtio disk
#   here:                           `plimsoll up` with that disk: hdd.wd-aakx in real time, in memory, over NBD
#
# Nothing is left behind but the guest's kernel below target/guest. It needs no root.
# Usage: bench-peers/cgroup2.sh [--seconds S] [--plimsoll PROGRAM] [--policies WORDS] [--a WORDS] [--b WORDS]
# Without the words, all that cgroup2-guest.sh knows: 20 minutes with the default of 15 s each.
set -eu
cd "$(dirname "$0")/.."
seconds=15
plimsoll=
policies="none io.max io.cost wdt gates"
a_jobs="read fsync"
b_jobs="alone read sequential random fsync"
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=${2:-} ;;
    --plimsoll) plimsoll=${2:-} ;;
    --policies) policies=${2:-} ;;
    --a) a_jobs=${2:-} ;;
    --b) b_jobs=${2:-} ;;
    *) echo "$1: allowed are --seconds S, --plimsoll PROGRAM, --policies WORDS, --a WORDS, --b WORDS" >&2; exit 2 ;;
    esac
    [ $# -ge 2 ] || { echo "$1: its value is missing" >&2; exit 2; }
    shift 2
done
case $seconds in '' | *[!0-9]*) echo "--seconds: got $seconds, allowed are whole seconds" >&2; exit 2 ;; esac
PATH=$PATH:/usr/sbin:/sbin
missing=""
for need in fio:fio python3:python3 mkfs.ext4:e2fsprogs; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
[ -z "$missing" ] || { echo "not run: these Debian packages are missing:$missing" >&2; exit 3; }
if [ -z "$plimsoll" ]; then
    cargo build --release --quiet -p plimsoll-cli
    plimsoll="${CARGO_TARGET_DIR:-target}/release/plimsoll"
fi
plimsoll=$(realpath -e "$plimsoll" 2>/dev/null) || { echo "$plimsoll: not found" >&2; exit 2; }

folder=$(mktemp -d)
guest=
daemon=
clean_up() {
    trap '' INT TERM
    for process in $guest $daemon; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

cat >"$folder/plimsoll.toml" <<TOML
[daemon]
state_directory = "$folder/state"
[nbd]
listen = ["unix:$folder/nbd.sock"]
[device.disk]
emulate = "hdd.wd-aakx"
scheduler = "noop"
[pool.all]
device = "disk"
[volume.disk]
pool = "all"
size = "3GiB"
memory = true
nbd = {}
TOML
"$plimsoll" --log error up "$folder/plimsoll.toml" >"$folder/up.log" 2>&1 &
daemon=$!
tries=0
until [ -S "$folder/nbd.sock" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] && kill -0 "$daemon" 2>/dev/null || { cat "$folder/up.log" >&2; exit 1; }
    sleep 0.1
done

# In the background, so that a signal need not wait for the guest.
scripts/guest.sh --memory 1536 --disk "$folder/nbd.sock" bench-peers/cgroup2-guest.sh "$seconds" "$plimsoll" "$policies" \
    "$a_jobs" "$b_jobs" &
guest=$!
code=0
wait "$guest" || code=$?
guest=
[ $code = 0 ] || exit $code
"$plimsoll" status --json --socket "$folder/state/control.sock" | python3 -c '
import json, sys
emulation = json.load(sys.stdin)["devices"][0]["emulation"]
late, replies = emulation["late_replies"], emulation["replies"]
verdict = ": this machine was too busy, the figures say more about it than about the disk" if late > replies / 100 else ""
print(f"{late} of {replies} replies of the disk were late{verdict}")
'
