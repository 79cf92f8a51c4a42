#!/bin/sh
# What cgroups version 2 do for one tenant beside another on a slow disk: nothing, io.max, io.cost; as a table.
#
#   guest (QEMU without KVM): Debian 12's kernel, cgroup2-guest.sh, ext4 on a virtio disk
#   here:                        `plimsoll up` with that disk: hdd.wd-aakx in real time, in memory, over NBD
#
# The guest sees this machine's files read-only (9p), so it has its fio and mkfs. The kernel is downloaded as a package into
# a temporary folder and not installed. Nothing is left behind. It needs no root.
# Usage: bench-peers/cgroup2.sh [--seconds S] [--plimsoll PROGRAM]
set -eu
cd "$(dirname "$0")/.."
here=$PWD/bench-peers
seconds=20
plimsoll=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 ;;
    --plimsoll) plimsoll=$2 ;;
    *) echo "$1: allowed are --seconds S, --plimsoll PROGRAM" >&2; exit 2 ;;
    esac
    shift 2
done
case $seconds in '' | *[!0-9]*) echo "--seconds: got $seconds, allowed whole seconds" >&2; exit 2 ;; esac

not_run() {
    echo "not run: $1" >&2
    exit 3
}
PATH=$PATH:/usr/sbin:/sbin
missing=""
for need in qemu-system-x86_64:qemu-system-x86 busybox:busybox fio:fio python3:python3 mkfs.ext4:e2fsprogs dpkg-deb:dpkg; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
[ -z "$missing" ] || not_run "these Debian packages are missing:$missing"
package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$package" ] || not_run "apt knows no kernel package (linux-image-amd64)"
if [ -z "$plimsoll" ]; then
    cargo build --release --quiet -p plimsoll-cli
    plimsoll="${CARGO_TARGET_DIR:-target}/release/plimsoll"
fi

folder=$(mktemp -d)
guest=
daemon=
clean_up() {
    for process in $guest $daemon; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

(cd "$folder" && apt-get download -qq "$package" 2>/dev/null && dpkg-deb -x "$package"_*.deb kernel) ||
    not_run "$package cannot be downloaded"
version=$(ls "$folder/kernel/lib/modules")

# The guest's first files: busybox and the modules that lead to everything else.
root=$folder/initramfs
modules=lib/modules/$version
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/host" "$root/top" "$root/new" "$root/lib/modules"
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/cgroup2-guest.sh" "$root/guest.sh"
busybox depmod -b "$folder/kernel" "$version"
mkdir -p "$root/$modules"
for module in virtio_pci virtio_blk 9pnet_virtio 9p overlay ext4 crc32c_generic bfq; do
    (cd "$folder/kernel/$modules" && {
        grep -m 1 "/$(echo "$module" | tr _ -)\.ko:\|/$module\.ko:" modules.dep || true
    }) | tr -d : | tr ' ' '\n'
done | sort -u | while read -r file; do
    mkdir -p "$root/$modules/$(dirname "$file")"
    cp "$folder/kernel/$modules/$file" "$root/$modules/$file"
done
cp "$folder/kernel/$modules/modules.builtin" "$folder/kernel/$modules/modules.order" "$root/$modules/"
busybox depmod -b "$root" "$version"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for module in virtio_pci virtio_blk 9pnet_virtio 9p overlay crc32c_generic ext4 bfq; do modprobe "$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host
mount -t tmpfs none /top; mkdir /top/upper /top/work
mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work none /new
for folder in proc sys dev; do mount --bind "/$folder" "/new/$folder"; done
mount -t tmpfs none /new/tmp; mount -t cgroup2 none /new/sys/fs/cgroup
cp /guest.sh /new/tmp/
chroot /new /bin/sh /tmp/guest.sh "$(sed -n 's/.*\bseconds=\([0-9]*\).*/\1/p' /proc/cmdline)" || echo "TABLE failed"
sync; poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$folder/initramfs.gz"

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

qemu-system-x86_64 -machine q35 -accel tcg,thread=multi,tb-size=512 -cpu max -smp 2 -m 1024 -nic none \
    -display none -serial stdio -monitor none -no-reboot \
    -kernel "$folder/kernel/boot/vmlinuz-$version" -initrd "$folder/initramfs.gz" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off seconds=$seconds" \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=host,mount_tag=host \
    -blockdev "driver=nbd,node-name=disk,export=disk,server.type=unix,server.path=$folder/nbd.sock" \
    -device virtio-blk-pci,drive=disk,num-queues=1 </dev/null >"$folder/guest.log" 2>&1 &
guest=$!
# In the background, so that a signal need not wait for the guest.
wait "$guest" || true
guest=
status=$("$plimsoll" status --json --socket "$folder/state/control.sock")
if ! grep -q 'TABLE end' "$folder/guest.log"; then
    echo "the guest did not get through; its last words:" >&2
    tail -n 20 "$folder/guest.log" >&2
    exit 1
fi
echo "Linux $version in QEMU, hdd.wd-aakx in real time over NBD, ext4 (noatime), $seconds s each"
printf '%s' "$status" | python3 -c '
import json, sys
emulation = json.load(sys.stdin)["devices"][0]["emulation"]
late, replies = emulation["late_replies"], emulation["replies"]
verdict = ": this machine was too busy, the figures say more about it than about the disk" if late > replies / 100 else ""
print(f"{late} of {replies} replies of the disk were late{verdict}")
'
tr -d '\r' <"$folder/guest.log" | sed -n 's/^TABLE |/|/p'
