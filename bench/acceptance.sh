#!/bin/bash
# What the foundation promises beyond `make test`, each through the real commands; a line for each.
#
#   bench/acceptance.sh [SECONDS]      SECONDS for each experiment of the promises (default 60); about 10 minutes in all
#
# Needs target/release/plimsoll and target/release/examples/promises. Mounts take root; without it they are "not run".
# Exit code: 0 all pass, 1 something fails, 3 nothing fails but something was not run.
set -euo pipefail

seconds=${1:-60}
# The image that is converted to an NBD volume and back, MiB, and how fast while the daemon is killed: slow enough to be
# in the middle of it.
image_mib=256
convert_rate=64M
# Volumes with file systems, MiB: mkfs.xfs wants 300.
volume_mib=512
# What fio writes and verifies, MiB.
fio_mib=96
# How long the load goes on before the daemon is killed, seconds.
load_seconds=3

cd "$(dirname "$0")/.."
. bench/daemon.sh
url="nbd+unix:///image?socket=$work/state/nbd.sock"
failed=0
not_run=0

# Runs a check. It answers 0, or 3 and on its last line why it was not run; of what it prints only lines that begin with
# "detail: " are shown unless it fails. Checks run where `set -e` does nothing, so each is a chain.
check() { # what, command...
  local what=$1 status=0
  shift
  "$@" >"$work/check.log" 2>&1 || status=$?
  case $status in
    0) echo "PASS     $what$(sed -n 's/^detail: /, /p' "$work/check.log")" ;;
    3) not_run=1; echo "not run  $what: $(tail -n 1 "$work/check.log" | sed 's/^.*not run: //')" ;;
    *) failed=1; echo "FAIL     $what ($status)"; tail -n 20 "$work/check.log" | sed 's/^/         | /' ;;
  esac
  [ -z "$daemon" ] || daemon_kill || true
}

# Answers 3 and says why if programs, devices or privileges are missing.
needs() { # program, device or "root"...
  local need
  for need in "$@"; do
    case $need in
      root) [ "$(id -u)" = 0 ] || { echo "takes root"; return 3; } ;;
      /*) [ -e "$need" ] || { echo "$need is missing"; return 3; } ;;
      *) command -v "$need" >/dev/null || { echo "$need is missing"; return 3; } ;;
    esac
  done
}

configure() { # name, MiB, front end
  truncate -s "$2M" "$work/$1.disk"
  cat >"$work/$1.toml" <<TOML
daemon = { state_directory = "state" }
device.disk = {}
pool.all = { device = "disk" }
[volume.$1]
pool = "all"
size = "$2MiB"
file = "$1.disk"
$3
TOML
}

nothing_attached() {
  settles_attached 0 || { echo "left attached:"; attached; return 1; }
}

# Data, a hole, data.
make_image() {
  head -c $((image_mib / 2))M /dev/urandom >"$work/image.raw" &&
    truncate -s $((image_mib - 1))M "$work/image.raw" &&
    head -c 1M /dev/urandom >>"$work/image.raw" &&
    qemu-img convert -f raw -O qcow2 "$work/image.raw" "$work/image.qcow2"
}

there_and_back() {
  qemu-img convert -n -f qcow2 -O raw "$work/image.qcow2" "$url" &&
    qemu-img convert -f raw -O qcow2 "$url" "$work/back.qcow2" &&
    qemu-img compare "$work/image.qcow2" "$work/back.qcow2"
}

convert() {
  needs qemu-img || return
  configure image "$image_mib" 'nbd = {}' && make_image &&
    daemon_start "$work/image.toml" && there_and_back && daemon_stop
}

convert_killed() {
  needs qemu-img || return
  local converting
  daemon_start "$work/image.toml" || return
  qemu-img convert -n -r "$convert_rate" -f qcow2 -O raw "$work/image.qcow2" "$url" &
  converting=$!
  sleep 1
  daemon_kill || return
  wait "$converting" && echo "the conversion was over before the kill" && return 1
  daemon_start "$work/image.toml" && there_and_back && daemon_stop
}

# Random writes of blocks with checksums; with --verify_only, reads and checks what an earlier call wrote.
fio_verified() { # folder, option...
  fio --name=verified --directory="$1" --size="${fio_mib}M" --rw=randwrite --bsrange=4k-128k --ioengine=libaio \
    --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --end_fsync=1 "${@:2}" >/dev/null
}

file_system() { # kind
  needs root /dev/fuse /dev/loop-control fio "mkfs.$1" || return
  local mount="mount = { path = \"$work/mounted-$1\", filesystem = \"$1\", format = \"if-empty\" }"
  configure "$1" "$volume_mib" "$mount" &&
    daemon_start "$work/$1.toml" && fio_verified "$work/mounted-$1" --do_verify=1 && daemon_stop && nothing_attached
}

# Synced before the kill: what fio wrote in `file_system`, and a stream of small files.
file_system_killed() { # kind
  needs root /dev/fuse /dev/loop-control fio "mkfs.$1" || return
  local folder=$work/mounted-$1 list=$work/records-$1 load records
  daemon_start "$work/$1.toml" || return
  fio --name=load --directory="$folder" --size="${fio_mib}M" --rw=randwrite --bsrange=4k-128k --ioengine=libaio \
    --direct=1 --iodepth=16 --fsync=32 --time_based --runtime=600 >/dev/null 2>&1 &
  load=$!
  records_write "$folder/records" "$list" &
  records=$!
  sleep "$load_seconds"
  daemon_kill || return
  wait "$records" || true
  wait "$load" && echo "fio did not notice the kill" && return 1
  daemon_start "$work/$1.toml" && records_check "$folder/records" "$list" && fio_verified "$folder" --verify_only &&
    daemon_stop && nothing_attached && unharmed "$1" && echo "detail: $(wc -l <"$list") small files among it"
}

# Checks a file system that is not mounted, without changing it.
unharmed() { # kind
  case $1 in
    ext4) e2fsck -f -n "$work/ext4.disk" ;;
    xfs) xfs_repair -n -f "$work/xfs.disk" ;;
  esac
}

demo_as_root() {
  needs root || return
  "$plimsoll" demo --no-progress --out "$work/root.svg" && grep -q '<svg' "$work/root.svg" && nothing_attached
}

demo_as_normal_user() {
  local as=()
  install -d -m 777 "$work/anybody" && install -m 755 "$plimsoll" "$work/plimsoll" || return
  [ "$(id -u)" != 0 ] || { needs runuser && as=(runuser -u nobody --); } || return
  "${as[@]}" "$work/plimsoll" demo --no-progress --out "$work/anybody/demo.svg" &&
    grep -q '<svg' "$work/anybody/demo.svg"
}

promises() {
  "$built/examples/promises" "$seconds"
}

check "plimsoll device check: every model meets its known figures" "$plimsoll" device check
check "qemu-img convert into an NBD volume and back compares equal" convert
check "the same after kill -9 in the middle of it and a restart" convert_killed
for kind in ext4 xfs; do
  check "fio --verify on $kind over FUSE and loop" file_system "$kind"
  check "kill -9 under load on $kind: the file system is unharmed, what was synced is there" file_system_killed "$kind"
done
check "plimsoll demo as root" demo_as_root
check "plimsoll demo as a normal user" demo_as_normal_user
check "reserve, limit and the whole drive, ${seconds} s each" promises
sed 's/^/         | /' "$work/check.log"

[ "$failed" = 0 ] || exit 1
[ "$not_run" = 0 ] || exit 3
