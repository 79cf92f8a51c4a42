#!/bin/sh
# Replays real traces through our LRU, our credit and libCacheSim's LRU, in turns, from memory: misses and accesses a
# second of processor time.
#
# The traces are public and not part of the repository: the folder of `docs/cache.md`. libCacheSim comes from PyPI into
# a temporary folder. Each figure is the fastest of ten rounds; ours and theirs get the same accesses, theirs in its
# binary format.
# Usage: bench-peers/cache.sh [TRACES]
set -eu
cd "$(dirname "$0")/.."
traces=${1:-../shared/traces}
not_run() {
    echo "not run: $1" >&2
    exit 3
}
[ -e "$traces/oltp.lis.zst" ] || not_run "no traces in $traces"
command -v python3 >/dev/null || not_run "python3 is missing"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q libcachesim==0.3.5 || not_run "libcachesim cannot be installed"
cargo build --release --quiet -p plimsoll-cache --example replay_speed
ours=${CARGO_TARGET_DIR:-target}/release/examples/replay_speed
cat >"$folder/theirs.py" <<'PYTHON'
import sys, time
import libcachesim as lcs
fastest, misses = 0, 0
for _ in range(10):
    reader = lcs.TraceReader(sys.argv[1], lcs.TraceType.ORACLE_GENERAL_TRACE)
    cache, start = lcs.LRU(cache_size=int(sys.argv[2]), hashpower=int(sys.argv[3])), time.thread_time()
    misses = cache.process_trace(reader)[0]
    fastest = max(fastest, reader.get_num_of_req() / (time.thread_time() - start))
print(f"{misses:.4f} {fastest / 1e6:.2f} million a second")
PYTHON
# Trace, bytes of a unit (0: objects), units, bits of libCacheSim's table (as many as fit it best).
while read -r trace unit units bits; do
    for round in 1 2 3; do
        for policy in lru credit; do
            echo "$trace $units ours $policy: $("$ours" "$traces/$trace" "$unit" "$units" $policy 10 "$folder/accesses")"
        done
        echo "$trace $units libCacheSim lru: $("$folder/venv/bin/python" "$folder/theirs.py" "$folder/accesses" "$units" "$bits")"
    done
done <<'TRACES'
oltp.lis.zst 512 20000 16
cloudphysics.csv.zst 0 4897 14
cloudphysics.csv.zst 4096 53842 17
TRACES
