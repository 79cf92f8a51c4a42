#!/bin/sh
# Inside the guest of guest-tests.sh, as root: runs test binaries and says what each came to.
# Usage: guest-tests-inside.sh "BINARY..." [TEST...]
set -u
binaries=$1
shift
log=/run/tmp/log
status=/run/tmp/status
code=0
runs=0
# The crate's folder is where cargo runs a test.
folder_of() {
    case $1 in
    up) echo crates/cli ;;
    plimsoll_*) echo "crates/$(echo "$1" | cut -d_ -f2)" ;;
    *) for crate in tags gates agent; do [ ! -e "crates/$crate/tests/$1.rs" ] || echo "crates/$crate"; done ;;
    esac
}

# A disk at FOLDER, where tests keep files that must be on one: the guest's own are in memory. The tests of tags come
# before it: they make disks of their own, and the first one finds ext4 a module that no process has used.
use_disk() {
    [ ! -e /run/image ] || return 0
    truncate -s 4G /run/image
    mkfs.ext4 -q /run/image
    mkdir -p "$1"
    mount -o loop /run/image "$1"
    export TMPDIR="$1"
}

# run BINARY FILTER...
run() {
    runs=$((runs + 1))
    binary=$(realpath "$1")
    name=$(basename "$1" | sed 's/-[0-9a-f]*$//')
    shift
    case $(folder_of "$name") in
    crates/tags) ;;
    # What cargo calls CARGO_TARGET_TMPDIR.
    *) use_disk "$(realpath "$(dirname "$binary")/../../tmp")" ;;
    esac
    start=$(cut -d. -f1 /proc/uptime)
    echo "$name:"
    {
        (cd "$(folder_of "$name")" && timeout 1800 "$binary" --show-output --test-threads=1 "$@")
        echo $? >$status
    } 2>&1 | tee $log | grep --line-buffered '^test .* \.\.\. '
    grep '^not run:' $log | sort | uniq -c
    [ "$(cat $status)" = 0 ] || code=1
    result=$(sed -n 's/^test result: //p' $log | tail -n 1)
    echo "$name: ${result:-no result} ($(($(cut -d. -f1 /proc/uptime) - start)) s)"
    [ "$(cat $status)" = 0 ] || tail -n 200 $log
}

echo "Linux $(uname -r)"
# The tests of cgroups take the controllers that a system has on.
echo '+io +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
modprobe loop
modprobe fuse
for binary in $binaries; do
    name=$(basename "$binary" | sed 's/-[0-9a-f]*$//')
    if [ $# = 0 ]; then
        case $name in
        # The rest of the command's tests is not about the kernel.
        up) run "$binary" agent:: steer:: nbd_client:: ;;
        *) run "$binary" ;;
        esac
    fi
    for test in "$@"; do
        case $test in
        "$name") run "$binary" ;;
        "$name":*) run "$binary" "${test#*:}" ;;
        esac
    done
done

[ $runs -gt 0 ] || { echo "$*: no test binary of that name" >&2; exit 2; }
exit $code
