#!/usr/bin/env bash
# Installs what building, testing and the demo need, and says what it installs. Running it again does nothing.
#   scripts/setup.sh [peers | guest]     peers: also the servers that bench-peers/ compares with
#                                        guest: also QEMU, and what the tests on another kernel take
# Without root it installs nothing and names what is missing; what cannot run without it says "not run: why" later.
set -euo pipefail

# Needed to build: a linker, and Rust, which is newer than Debian 12's.
build_packages=(build-essential pkg-config curl ca-certificates git)
rust_version_min=1.88
# Needed by parts: file systems and tools for the demo and tests; nothing fails without them but that part.
part_packages=(e2fsprogs xfsprogs util-linux fuse3 fio qemu-utils qemu-block-extra libnbd-bin nbdkit libiscsi-bin runc crun postgresql)
# Needed to compile the BPF programs of `tags`; without them those are left out.
bpf_packages=(clang libelf-dev zlib1g-dev)
peer_packages=(nbdkit)
guest_packages=(qemu-system-x86 busybox btrfs-progs dmsetup nbd-client)

packages=("${build_packages[@]}" "${part_packages[@]}" "${bpf_packages[@]}")
[ "${1:-}" = peers ] && packages+=("${peer_packages[@]}")
[ "${1:-}" = guest ] && packages+=("${guest_packages[@]}")

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # The tests start servers of their own: no database shall run here only because its package came with us.
    if [[ " ${missing[*]} " == *" postgresql "* ]]; then
      mkdir -p /etc/postgresql-common/createcluster.d
      echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/plimsoll.conf
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "setup: not installed (no root, or not Debian): ${missing[*]}"
    echo "setup: what needs them will say \"not run\"; to install: apt-get install ${missing[*]}"
  fi
fi

[ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
rust_version=$(rustc --version 2>/dev/null | cut -d' ' -f2 || true)
oldest=$(printf '%s\n%s\n' "$rust_version_min" "${rust_version:-0}" | sort --version-sort | head -n 1)
if [ "$oldest" != "$rust_version_min" ]; then
  echo "setup: installing Rust (found ${rust_version:-none}, needed $rust_version_min) into ~/.cargo with rustup"
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --component clippy,rustfmt
fi
