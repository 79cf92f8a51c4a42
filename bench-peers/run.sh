#!/bin/sh
# Measures Plimsoll's NBD server against nbdkit and qemu-nbd, interleaved, with the same client, in the same run.
# Usage: bench-peers/run.sh [--rounds N] [--seconds S] [--json FILE] [--scheduler NAME] [--directory DIR]
set -eu
cd "$(dirname "$0")/.."
missing=""
for need in nbdkit:nbdkit qemu-nbd:qemu-utils fio:fio python3:python3; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
if [ -n "$missing" ]; then
    echo "not run: these Debian packages are missing:$missing" >&2
    exit 1
fi
cargo build --release --quiet -p plimsoll-serve --example serve
exec python3 bench-peers/compare.py --serve "${CARGO_TARGET_DIR:-target}/release/examples/serve" "$@"
