#!/usr/bin/env bash
# Prints the flags for cargo that leave out what cannot be built here, and says on the terminal what that is.
set -euo pipefail

missing=()
command -v clang >/dev/null || missing+=("clang")
for header in libelf.h zlib.h; do
  [ -e "/usr/include/$header" ] || missing+=("$header")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "tags (BPF programs) are left out: not found: ${missing[*]} (Debian: clang libelf-dev zlib1g-dev)" >&2
  echo "--no-default-features"
fi
