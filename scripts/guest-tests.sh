#!/bin/sh
# Runs Plimsoll's own tests of what depends on the kernel on Debian 12's stock one (6.1), in QEMU (scripts/guest.sh).
#
#   scripts/guest-tests.sh [TEST...]      TEST: name of a test binary, or of a test binary and a test: journal, up:steer
#
# Without words, all of `tags`, `gates` and `agent`, and of the command `agent`, `agent --wdt` and what `nbd-client`
# does. Built here, as they are for `make test`. The guest has no emulated drive: its disks are loop devices in its
# memory, and what dmsetup makes of them. 3 and "not run: why" where there can be no guest.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
missing=""
for need in mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs dmsetup:dmsetup nbd-client:nbd-client losetup:mount fusermount3:fuse3 \
    qemu-system-x86_64:qemu-system-x86 busybox:busybox; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
[ -z "$missing" ] || { echo "not run: these Debian packages are missing:$missing" >&2; exit 3; }
list=$(mktemp)
said=$(mktemp)
trap 'rm -f "$list" "$said"' EXIT
# cargo says which binaries there are: "  Executable tests/journal.rs (target/debug/deps/journal-ed77316cdb3b93ee)".
build() {
    cargo test --no-run "$@" 2>"$said" || { cat "$said" >&2; exit 1; }
    sed -n 's/^ *Executable .* (\(.*\))$/\1/p' "$said" >>"$list"
}
build -p plimsoll-tags -p plimsoll-gates -p plimsoll-agent
build -p plimsoll-cli --test up
[ -s "$list" ] || { echo "nothing was built" >&2; exit 1; }
scripts/guest.sh --memory 6144 --seconds-max 5400 scripts/guest-tests-inside.sh "$(tr '\n' ' ' <"$list")" "$@"
