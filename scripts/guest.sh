#!/bin/sh
# Runs a script as root on Debian's stock kernel (linux-image-amd64) in QEMU, with this machine's programs and files.
#
#   scripts/guest.sh [--memory MIB] [--disk NBD-SOCKET] [--seconds-max S] SCRIPT [ARGUMENT...]
#
# What SCRIPT prints comes out here, and its exit code is this one's; 3 and "not run: why" where there can be no guest.
# The guest sees this machine's files under their own names, read-only (9p); what it writes stays in its memory. It has
# cgroups version 2, all modules of the kernel, the disk (if asked for) as /dev/vda, two processors and no network.
# The kernel's package is downloaded (70 MB) and unpacked (400 MB) below target/guest, once, and not installed. No root
# is needed. QEMU uses KVM if the kernel begins with it within 10 s (there are clouds whose /dev/kvm runs only kernels
# of their own), and else interprets (TCG), which is ten times slower. GUEST_ACCELERATOR=kvm or tcg decides it.
set -eu
cd "$(dirname "$0")/.."
memory=2048
disk=
seconds_max=3600
wrong() {
    echo "$1" >&2
    exit 2
}
not_run() {
    echo "not run: $1" >&2
    exit 3
}
while :; do
    case ${1:-} in
    --memory) memory=${2:-} ;;
    --disk) disk=${2:-} ;;
    --seconds-max) seconds_max=${2:-} ;;
    -* | '') wrong "${1:-nothing}: allowed are --memory MIB, --disk NBD-SOCKET, --seconds-max S, and then a script" ;;
    *) break ;;
    esac
    [ $# -ge 2 ] || wrong "$1: its value is missing"
    shift 2
done
for number in "$memory" "$seconds_max"; do
    case $number in '' | *[!0-9]*) wrong "--memory, --seconds-max: got ${number:-nothing}, allowed are whole numbers" ;; esac
done
script=$(realpath -e "$1" 2>/dev/null) || wrong "$1: not found"
shift
PATH=$PATH:/usr/sbin:/sbin
[ "$(uname -m)" = x86_64 ] || not_run "the guest is made for x86_64"
missing=""
for need in qemu-system-x86_64:qemu-system-x86 busybox:busybox dpkg-deb:dpkg; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
[ -z "$missing" ] || not_run "these Debian packages are missing:$missing"
package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$package" ] || not_run "apt knows no kernel package (linux-image-amd64)"

work=$(mktemp -d)
guest=
end_guest() {
    [ -z "$guest" ] || kill "$guest" 2>/dev/null || true
    wait 2>/dev/null || true
    guest=
}
# A second signal does not stop the cleaning up.
trap 'trap "" INT TERM; end_guest; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

kernel=$(realpath -m "${CARGO_TARGET_DIR:-target}/guest")/$package
if [ ! -d "$kernel" ]; then
    echo "guest: downloading $package" >&2
    (cd "$work" && apt-get download -qq "$package" >/dev/null 2>&1 && dpkg-deb -x "$package"_*.deb kernel) ||
        not_run "$package cannot be downloaded"
    busybox depmod -b "$work/kernel" "$(ls "$work/kernel/lib/modules")"
    mkdir -p "$(dirname "$kernel")"
    mv -T "$work/kernel" "$kernel"
fi
version=$(ls "$kernel/lib/modules")

# The guest's first files: busybox with its libraries, the modules that lead to everything else, and what is to be run.
root=$work/root
mkdir -p "$root/bin" "$root/lib/modules/$version"
for file in $(ldd "$(command -v busybox)" 2>/dev/null | grep -o '/[^ ]*' || true); do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
done
cp -L "$(command -v busybox)" "$root/bin/busybox"
(
    cd "$kernel/lib/modules/$version"
    for module in virtio_pci 9pnet_virtio 9p overlay; do grep -m 1 "/$module\.ko:" modules.dep || true; done |
        tr -d : | tr ' ' '\n' | sort -u | while read -r file; do cp --parents "$file" "$root/lib/modules/$version/"; done
    cp modules.builtin modules.order "$root/lib/modules/$version/"
)
busybox depmod -b "$root" "$version"
cp scripts/guest-init.sh "$root/init"
quoted() {
    for word in "$@"; do printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
}
cat >"$root/job" <<JOB
modules=$(quoted "$kernel/lib/modules" | cut -c2-)
folder=$(quoted "$PWD" | cut -c2-)
set --$(quoted "$script" "$@")
JOB
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs.gz"
if [ -n "$disk" ]; then
    set -- -blockdev "driver=nbd,node-name=disk,export=disk,server.type=unix,server.path=$disk" \
        -device virtio-blk-pci,drive=disk,num-queues=1
else
    set --
fi

# boot ACCELERATOR KERNEL-PARAMETERS OPTION...: a guest in the background. Three serial lines: the kernel's words, the
# script's, and how far it came.
boot() {
    machine="-accel tcg,thread=multi,tb-size=512 -cpu max,la57=off"
    [ "$1" = tcg ] || machine="-accel kvm -cpu host,-arch-capabilities"
    parameters=$2
    shift 2
    # shellcheck disable=SC2086 # words of options
    timeout "$seconds_max" qemu-system-x86_64 -machine q35 $machine -smp 2 -m "$memory" \
        -nic none -display none -monitor none -no-reboot \
        -kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off $parameters" \
        -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=host,mount_tag=host \
        -serial "file:$work/console" -serial stdio -serial "file:$work/outcome" "$@" </dev/null &
    guest=$!
}

kvm_works() {
    [ -w /dev/kvm ] || return 1
    boot kvm only_begin >/dev/null 2>&1
    tries=0
    until grep -q begins "$work/outcome" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -le 100 ] && kill -0 "$guest" 2>/dev/null || break
        sleep 0.1
    done
    end_guest
    grep -q begins "$work/outcome" 2>/dev/null
}

accelerator=${GUEST_ACCELERATOR:-}
case $accelerator in
'') if kvm_works; then accelerator=kvm; else accelerator=tcg; fi ;;
kvm | tcg) ;;
*) wrong "GUEST_ACCELERATOR: got $accelerator, allowed are kvm, tcg" ;;
esac
echo "guest: Linux $version, $accelerator" >&2
boot $accelerator "" "$@"
# In the background, so that a signal need not wait for the guest.
wait "$guest" || true
guest=
outcome=$(tr -d '\r' <"$work/outcome" | sed -n 's/^ended //p')
if [ -z "$outcome" ]; then
    echo "guest: did not get through (at most $seconds_max s); the kernel's last words:" >&2
    tail -n 20 "$work/console" >&2
    exit 1
fi
exit "$outcome"
