#!/bin/busybox sh
# The first process of the guest of guest.sh: makes this machine's files its own and runs what `/job` says.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /host /top /new
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
stty raw -echo </dev/ttyS1
echo begins >/dev/ttyS2
if grep -q only_begin /proc/cmdline; then poweroff -f; fi
for module in virtio_pci 9pnet_virtio 9p overlay; do modprobe "$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host
mount -t tmpfs -o size=100% none /top
mkdir /top/upper /top/work
mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work none /new

. /job
mount --bind "/host$modules" /lib/modules
modprobe virtio_blk
mkdir -p /new/lib/modules
mount --bind "/host$modules" /new/lib/modules
for place in proc sys dev; do mount --bind "/$place" "/new/$place"; done
for place in dev/shm run; do
    mkdir -p "/new/$place"
    mount -t tmpfs -o size=100% none "/new/$place"
done
mkdir -p /new/dev/pts /new/run/tmp
mount -t devpts none /new/dev/pts
mount -t bpf none /new/sys/fs/bpf
mount -t tracefs none /new/sys/kernel/tracing
mount -t cgroup2 none /new/sys/fs/cgroup
ln -sf "$(command -v /new/usr/bin/busybox /new/bin/busybox | sed -n '1s,^/new,,p')" /new/usr/local/sbin/modprobe
ip link set lo up
hostname guest
# As a Debian lets a user of it have open files.
ulimit -H -n 1048576
ulimit -S -n 1024
export HOME=/root TMPDIR=/run/tmp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# That becomes the root, and not by chroot alone: a process in a chroot can make no user namespace. The first process
# goes there itself: the kernel, which shares its root, loads modules from there too.
echo /usr/local/sbin/modprobe >/proc/sys/kernel/modprobe
cd /new
mount --move . /
# A shell of its own session, so that signals to its group do not reach this one.
exec /bin/busybox chroot . /bin/sh -c 'cd /
setsid /bin/sh -c "cd \"\$0\" && exec /bin/sh \"\$@\"" "$@" >/dev/ttyS1 2>&1 </dev/null
echo "ended $?" >/dev/ttyS2
sync
busybox poweroff -f' init "$folder" "$@"
