#!/bin/sh
# Inside the guest of cgroup2.sh, as root, with the host's programs: A beside B under each policy. Prints the table.
# Usage: cgroup2-guest.sh SECONDS PLIMSOLL POLICIES JOBS-OF-A JOBS-OF-B
#
# A reads a file past the page cache, or appends 4 KiB and calls fsync. B writes another file through the page cache:
# from one end to the other, at random, or at random with an fsync after each 4 MiB; or it reads one past the page
# cache. The policies:
#   none     mq-deadline, and nothing more
#   io.max   B's cgroup may read and write 10 MB/s
#   io.cost  A's cgroup has weight 400, B's 100, with what the disk can do as its model
#   wdt      the same weights: plimsoll agent --wdt
#   gates    B may do I/O for 10 MB/s: plimsoll agent with split_token, B started by plimsoll run
set -eu
seconds=$1
plimsoll=$2
policies=$3
a_jobs=$4
b_jobs=$5
disk=vda
queue=/sys/block/$disk/queue
cgroups=/sys/fs/cgroup
number=$(cat /sys/block/$disk/dev)
work=/run/cgroup2
mount_point=$work/disk
state=$work/state
agent=
mkdir -p $mount_point
exec 2>$work/errors
trap '[ $? = 0 ] || cat $work/errors' EXIT

modprobe bfq
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard /dev/$disk
mount -t ext4 -o noatime,data=ordered /dev/$disk $mount_point
dd if=/dev/zero of=$mount_point/a bs=1M count=512 conv=fsync
dd if=/dev/zero of=$mount_point/b bs=1M count=512 conv=fsync
echo '+io +memory' >$cgroups/cgroup.subtree_control
mkdir $cgroups/a $cgroups/b
# So that what B does reaches the disk while A is looked at, as with more memory and more time.
echo 67108864 >/proc/sys/vm/dirty_bytes
echo 16777216 >/proc/sys/vm/dirty_background_bytes
# So that the kernel decides, and not the device's queue.
echo 1 >$queue/rotational
echo none >$queue/scheduler
echo 4 >$queue/nr_requests
echo mq-deadline >$queue/scheduler

# serve ARGUMENTS...: plimsoll agent, until it serves.
serve() {
    "$plimsoll" agent "$@" --run-directory $state >$work/agent 2>&1 &
    agent=$!
    until grep -q serving $work/agent; do
        kill -0 $agent || { cat $work/agent >&2; return 1; }
        sleep 0.2
    done
}

begin() {
    case $1 in
    io.max) echo "$number rbps=10000000 wbps=10000000" >$cgroups/b/io.max ;;
    # What the disk does, as its model says: 138 MB/s, some 75 small I/Os a second anywhere.
    io.cost)
        echo "$number ctrl=user model=linear rbps=138000000 rseqiops=1000 rrandiops=75 \
wbps=138000000 wseqiops=1000 wrandiops=75" >$cgroups/io.cost.model
        echo "$number enable=1 ctrl=user min=50.00 max=150.00" >$cgroups/io.cost.qos
        echo "default 400" >$cgroups/a/io.weight
        echo "default 100" >$cgroups/b/io.weight
        ;;
    wdt) serve --wdt --mount /dev/$disk --weight a=400 --weight b=100 ;;
    gates)
        serve --mount $mount_point
        "$plimsoll" pool add limited --limit 10MB/s --socket $state/control.sock >&2
        ;;
    esac
}

end() {
    if [ -n "$agent" ]; then
        kill $agent
        wait $agent || true
        agent=
    fi
    echo "$number rbps=max wbps=max" >$cgroups/b/io.max
    echo "$number enable=0" >$cgroups/io.cost.qos
}

# job GROUP ARGUMENTS...: fio in the group, for so many seconds; its report is GROUP.json.
job() {
    group=$1
    shift
    limited=
    if [ "$policy$group" = gatesb ]; then
        limited="$plimsoll run --socket $state/control.sock --pool limited --"
    fi
    # shellcheck disable=SC2086 # words
    sh -c 'echo $$ >"$0" && exec "$@"' "$cgroups/$group/cgroup.procs" $limited fio --name="$group" --time_based \
        --runtime="$seconds" --thread --ioengine=psync --output-format=json --output="$work/$group.json" "$@" >&2
}

b_job() {
    case $1 in
    alone) ;;
    read) job b --filename=$mount_point/b --size=512M --rw=read --bs=1M --direct=1 ;;
    sequential) job b --filename=$mount_point/b --size=512M --rw=write --bs=1M ;;
    random) job b --filename=$mount_point/b --size=512M --rw=randwrite --bs=4k ;;
    fsync) job b --filename=$mount_point/b --size=512M --rw=randwrite --bs=4k --fsync=1024 ;;
    esac
}

a_job() {
    case $1 in
    read) job a --filename=$mount_point/a --size=512M --rw=read --bs=1M --direct=1 ;;
    fsync) job a --filename=$mount_point/log --size=64M --rw=write --bs=4k --fsync=1 ;;
    esac
}

written() { awk '{printf "%.0f", $7 * 512}' /sys/block/$disk/stat; }

# What A got, what B's calls read and wrote, and what was written to the disk in those seconds.
figures() {
    python3 - "$1" $work "$2" <<'PYTHON'
import json, sys
kind, work, bytes_a_second = sys.argv[1:]
def job(name):
    try:
        text = open(f"{work}/{name}.json").read()
    except OSError:
        return None
    return json.loads(text[text.index("{"):])["jobs"][0]
a, b = job("a"), job("b")
if kind == "read":
    own = f"{a['read']['bw_bytes'] / 1e6:.1f} MB/s"
else:
    latency = a["sync"]["lat_ns"]
    own = f"{latency['mean'] / 1e6:.0f} ms, {latency['percentile']['99.000000'] / 1e6:.0f} in the 99th percentile"
others = b["read"]["bw_bytes"] + b["write"]["bw_bytes"] if b else None
print(own, "|", f"{others / 1e6:.1f} MB/s" if b else "-", "|", f"{int(bytes_a_second) / 1e6:.1f} MB/s")
PYTHON
}

echo "Linux $(uname -r) in QEMU, hdd.wd-aakx in real time over NBD, ext4 (noatime), mq-deadline, 64 MiB may be dirty, $seconds s each"
echo
echo "| A | B | policy | A gets | B's calls | the disk writes |"
echo "| --- | --- | --- | --- | --- | --- |"
for a in $a_jobs; do
    for b in $b_jobs; do
        for policy in $policies; do
            [ $b != alone ] || [ $policy = none ] || continue
            begin $policy
            rm -f $work/a.json $work/b.json $mount_point/log
            before=$(written)
            b_job $b &
            b_shell=$!
            a_job $a
            after=$(written)
            wait $b_shell
            end
            sync
            echo "| $a | $b | $policy | $(figures $a $(((after - before) / seconds))) |"
        done
    done
done
umount $mount_point
