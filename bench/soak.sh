#!/bin/bash
# Load over NBD and FUSE, kill -9 at random moments, also while it starts, restart, verification; again and again.
#
#   bench/soak.sh [MINUTES]      (default 10; as root, needs fio and qemu-io)
#
# Each life of the daemon: the content synced in the life before is verified; new content is written and synced to an
# NBD volume, an ext4 and an XFS, different in each life; then random writes, small synced files and small synced NBD
# writes go on until the kill. Fails at the first synced byte that is lost, at a mount or loop device too many, and if
# the daemon's memory grows under load by more than its bound.
# Exit code: 0 nothing was lost, 1 something was, 3 not run.
set -euo pipefail

minutes=${1:-10}
# Each volume, MiB: mkfs.xfs wants 300.
volume_mib=512
# Content that is synced and verified in each life and volume, MiB; NBD volumes are written behind it, too.
content_mib=64
# A life lasts for so many seconds of load.
life_seconds_min=3
life_seconds_max=40
# By how much the daemon may grow from two seconds of load on, MiB: connections come and go, their buffers with them.
growth_mib_max=64
# A mounted file system is two mounts and a loop device; there are two.
attached_expected=6
# Bytes of a small write over NBD.
slot_bytes=65536

cd "$(dirname "$0")/.."
. bench/daemon.sh
lives=0
synced=0
growth_mib=0

not_run() {
  echo "not run: $1"
  exit 3
}
fail() {
  echo "FAIL in life $lives: $1"
  exit 1
}
[ "$(id -u)" = 0 ] || not_run "takes root"
for device in /dev/fuse /dev/loop-control; do [ -e "$device" ] || not_run "$device is missing"; done
for program in fio qemu-io mkfs.ext4 mkfs.xfs; do
  command -v "$program" >/dev/null || not_run "$program is missing"
done
[[ "$(fio --enghelp)" = *nbd* ]] || not_run "this fio has no nbd engine"

for name in nbd ext4 xfs; do truncate -s "${volume_mib}M" "$work/$name.disk"; done
cat >"$work/plimsoll.toml" <<TOML
daemon = { state_directory = "state" }
device.disk = {}
pool.all = { device = "disk" }
[volume.nbd]
pool = "all"
size = "${volume_mib}MiB"
file = "nbd.disk"
nbd = {}
[volume.ext4]
pool = "all"
size = "${volume_mib}MiB"
file = "ext4.disk"
mount = { path = "$work/ext4", filesystem = "ext4", format = "if-empty" }
[volume.xfs]
pool = "all"
size = "${volume_mib}MiB"
file = "xfs.disk"
mount = { path = "$work/xfs", filesystem = "xfs", format = "if-empty" }
TOML
url="nbd+unix:///nbd?socket=$work/state/nbd.sock"

# Where a job writes: the NBD volume, or a file of its own in a file system.
place() { # volume
  case $1 in
    nbd) printf '%s\n' --ioengine=nbd "--uri=$url" ;;
    *) printf '%s\n' --ioengine=libaio --direct=1 "--directory=$work/$1" ;;
  esac
}

# Writes (--do_verify=0) or checks (--verify_only) the content of a life: each block says of which life and place it is.
content() { # volume, life, what to do
  mapfile -t where < <(place "$1")
  fio --name=content "${where[@]}" --size="${content_mib}M" --rw=randwrite --bs=16k --iodepth=16 --verify=pattern \
    --verify_pattern="0x$(printf %08x "$2")%o" --verify_fatal=1 --verify_state_save=0 --end_fsync=1 "$3" \
    >"$work/fio-$1" 2>&1
}

# Unverified load, behind the content.
load() { # volume
  mapfile -t where < <(place "$1")
  exec fio --name=load "${where[@]}" --offset="${content_mib}M" --size="${content_mib}M" --rw=randrw --bsrange=4k-128k \
    --iodepth=16 --fsync=64 --time_based --runtime=3600 >/dev/null 2>&1
}

# Small writes behind the load, each synced by itself, in places and with bytes that depend on the life.
slot() { # number: place and byte
  echo "$((4 * content_mib * 1048576 + $1 * slot_bytes)) $((($1 + lives) % 255 + 1))"
}
slots_write() { # list
  local number=0 offset byte slots=$(((volume_mib - 4 * content_mib) * 1048576 / slot_bytes))
  while [ "$number" -lt "$slots" ]; do
    read -r offset byte < <(slot "$number")
    qemu-io -f raw -c "write -P $byte $offset $slot_bytes" -c flush "$url" >/dev/null 2>&1 || return 0
    echo "$offset $byte" >>"$1"
    number=$((number + 1))
  done
}
slots_check() { # list
  local offset byte commands=()
  while read -r offset byte; do commands+=(-c "read -P $byte $offset $slot_bytes"); done <"$1"
  qemu-io -f raw "${commands[@]}" "$url" >"$work/slots" 2>&1 && ! grep -i 'verification failed' "$work/slots"
}

verify() { # life that was killed
  local volume
  for volume in nbd ext4 xfs; do
    content "$volume" "$1" --verify_only || { cat "$work/fio-$volume"; fail "$volume: synced content is lost"; }
  done
  for volume in ext4 xfs; do
    records_check "$work/$volume/records" "$work/list-$volume" || fail "$volume: a synced file is lost"
    rm -r "$work/$volume/records"
  done
  slots_check "$work/list-nbd" || fail "nbd: a synced write is lost"
  synced=$((synced + $(cat "$work"/list-* | wc -l)))
  rm "$work"/list-*
}

# Half of the time, one dies while it recovers, mounts or just serves.
die_starting() {
  [ $((RANDOM % 2)) = 0 ] || return 0
  "$plimsoll" up "$work/plimsoll.toml" >"$work/out" 2>>"$work/log" &
  daemon=$!
  sleep "0.$((RANDOM % 10))"
  daemon_kill || fail "killed while it started, it does not end"
}

# One life, from its predecessor's kill to its own.
live() {
  local volume until rss_mib rss_mib_first processes=()
  die_starting
  daemon_start "$work/plimsoll.toml" || fail "no restart"
  settles_attached "$attached_expected" || { attached; fail "not $attached_expected things are attached"; }
  [ "$lives" = 0 ] || verify "$lives"
  lives=$((lives + 1))
  for volume in nbd ext4 xfs; do
    content "$volume" "$lives" --do_verify=0 || { cat "$work/fio-$volume"; fail "$volume: content cannot be written"; }
    load "$volume" &
    processes+=($!)
  done
  for volume in ext4 xfs; do
    records_write "$work/$volume/records" "$work/list-$volume" &
    processes+=($!)
  done
  slots_write "$work/list-nbd" &
  processes+=($!)
  sleep 2
  rss_mib_first=$(daemon_rss_mib)
  until=$((SECONDS + life_seconds_min + RANDOM % (life_seconds_max - life_seconds_min)))
  while [ "$SECONDS" -lt "$until" ]; do
    sleep "0.$((RANDOM % 9 + 1))"
    ! is_gone "$daemon" || { tail -n 5 "$work/log"; fail "the daemon ended by itself"; }
    rss_mib=$(daemon_rss_mib)
    [ $((rss_mib - rss_mib_first)) -le "$growth_mib" ] || growth_mib=$((rss_mib - rss_mib_first))
    [ "$growth_mib" -le "$growth_mib_max" ] || fail "it grew from $rss_mib_first to $rss_mib MiB"
  done
  daemon_kill || fail "kill -9 does not end it"
  for volume in "${processes[@]}"; do
    wait_until "$daemon_patience" is_gone "$volume" || fail "the load hangs after the kill"
    wait "$volume" || true
  done
  echo "life $lives: killed at $rss_mib MiB after $(cat "$work"/list-* | wc -l) small synced writes"
}

while [ "$SECONDS" -lt $((minutes * 60)) ]; do live; done
daemon_start "$work/plimsoll.toml" || fail "no restart"
verify "$lives"
daemon_stop || fail "no clean end"
settles_attached 0 || { attached; fail "left attached"; }
e2fsck -f -n "$work/ext4.disk" >"$work/check" 2>&1 || { cat "$work/check"; fail "ext4 is harmed"; }
xfs_repair -n -f "$work/xfs.disk" >"$work/check" 2>&1 || { cat "$work/check"; fail "XFS is harmed"; }
echo "PASS: $lives lives; $synced small synced writes and $((lives * 3 * content_mib)) MiB of other synced content" \
  "verified; memory grew by at most $growth_mib MiB"
