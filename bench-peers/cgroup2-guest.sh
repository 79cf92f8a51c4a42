#!/bin/sh
# Inside the guest of cgroup2.sh, as root, with the host's programs: A beside B under each policy. Prints the table's lines.
#
# A reads a file past the page cache, or appends 4 KiB and calls fsync. B writes another file through the page cache: from
# one end to the other, at random, or at random with an fsync after each 4 MiB.
set -eu
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
seconds=$1
disk=vda
queue=/sys/block/$disk/queue
cgroups=/sys/fs/cgroup
number=$(cat /sys/block/$disk/dev)
mount_point=/tmp/disk

mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard /dev/$disk
mkdir $mount_point
mount -o noatime,data=ordered /dev/$disk $mount_point
dd if=/dev/zero of=$mount_point/a bs=1M count=1024 conv=fsync 2>/dev/null
dd if=/dev/zero of=$mount_point/b bs=1M count=1024 conv=fsync 2>/dev/null
echo '+io +memory' >$cgroups/cgroup.subtree_control
mkdir $cgroups/a $cgroups/b
# So that the kernel decides, and not the device's queue.
echo 1 >$queue/rotational
echo none >$queue/scheduler
echo 4 >$queue/nr_requests

set_policy() {
    echo "$number rbps=max wbps=max" >$cgroups/b/io.max
    echo "$number enable=0" >$cgroups/io.cost.qos
    echo mq-deadline >$queue/scheduler
    case $1 in
    none) ;;
    io.max) echo "$number rbps=10000000 wbps=10000000" >$cgroups/b/io.max ;;
    # What the disk does, as its model says: 138 MB/s, some 75 small I/Os a second anywhere.
    io.cost)
        echo "$number ctrl=user model=linear rbps=138000000 rseqiops=1000 rrandiops=75 \
wbps=138000000 wseqiops=1000 wrandiops=75" >$cgroups/io.cost.model
        echo "$number enable=1 ctrl=user min=50.00 max=150.00" >$cgroups/io.cost.qos
        echo "default 800" >$cgroups/a/io.weight
        echo "default 100" >$cgroups/b/io.weight
        ;;
    esac
}

# job GROUP NAME ARGUMENTS...: fio in the group, for so many seconds; its report is /tmp/NAME.json.
job() {
    group=$1
    name=$2
    shift 2
    sh -c 'echo $$ >"$0" && exec "$@"' "$cgroups/$group/cgroup.procs" fio --name="$name" --time_based \
        --runtime="$seconds" --thread --ioengine=psync --output-format=json --output="/tmp/$name.json" "$@" >/dev/null 2>&1
}

b_job() {
    case $1 in
    alone) sleep "$seconds" ;;
    sequential) job b b --filename=$mount_point/b --size=1G --rw=write --bs=1M ;;
    random) job b b --filename=$mount_point/b --size=1G --rw=randwrite --bs=4k ;;
    fsync) job b b --filename=$mount_point/b --size=1G --rw=randwrite --bs=4k --fsync=1024 ;;
    esac
}

a_job() {
    case $1 in
    read) job a a --filename=$mount_point/a --size=1G --rw=read --bs=1M --direct=1 ;;
    fsync) job a a --filename=$mount_point/log --size=64M --rw=write --bs=4k --fsync=1 ;;
    esac
}

figures() {
    python3 - "$1" <<'PYTHON'
import json, sys
def job(name):
    try:
        text = open(f"/tmp/{name}.json").read()
    except OSError:
        return None
    return json.loads(text[text.index("{"):])["jobs"][0]
a, b = job("a"), job("b")
own = f"{a['read']['bw_bytes'] / 1e6:.1f} MB/s" if sys.argv[1] == "read" else f"{a['sync']['lat_ns']['mean'] / 1e6:.0f} ms"
print(own, "|", f"{b['write']['bw_bytes'] / 1e6:.1f} MB/s" if b else "-")
PYTHON
}

echo "TABLE | A | B writes | policy | A gets | B gets |"
echo "TABLE | --- | --- | --- | --- | --- |"
for a in read fsync; do
    for b in alone sequential random fsync; do
        for policy in none io.max io.cost; do
            [ $b != alone ] || [ $policy = none ] || continue
            set_policy $policy
            rm -f /tmp/a.json /tmp/b.json $mount_point/log
            b_job $b &
            a_job $a
            wait
            sync
            echo "TABLE | $a | $b | $policy | $(figures $a) |"
        done
    done
done
umount $mount_point
echo "TABLE end"
