#!/bin/bash
# bench/soak.sh, and beside it on one core the crash search of the cache with fresh seeds, for as long.
#
#   bench/soak-beside-search.sh [MINUTES]      (default 10; what bench/soak.sh needs)
#
# The search says each minute how far it is: starts after a crash, seeds, starts a second. Either one that fails, fails
# both.
# Exit code: 0 nothing was found, 1 something was, 3 bench/soak.sh was not run.
set -euo pipefail

minutes=${1:-10}
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
"$cargo" test --release --quiet -p plimsoll-cache --test store --no-run
# In a group of its own, so that the search does not outlive this script.
SEARCH_MINUTES=$minutes SEARCH_THREADS=1 RUST_BACKTRACE=0 \
  setsid "$cargo" test --release --quiet -p plimsoll-cache --test store -- --ignored --nocapture search_soak &
search=$!
trap 'kill -- "-$search" 2>/dev/null || true' EXIT
bench/soak.sh "$minutes"
wait "$search" || {
  echo "FAIL: the crash search found something, see above"
  exit 1
}
