#!/usr/bin/env bash
# What the rules of the service threads do to response times: one daemon with a compressed volume in memory under an SPC-1-like load
# at given rates, each policy in turns (docs/executor.md). Five minutes and a round of three more each; any user.
#
#   bench/executor.sh [ROUNDS] [SECONDS] [PEAK]     default 3 rounds, 5 seconds a rate, and the peak is looked for under baseline
#
# THREADS=2 bench/executor.sh has two service threads instead of one. The command that is measured is $built/plimsoll.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
seconds=${2:-5}
peak=${3:-}
threads=${THREADS:-1}
. bench/daemon.sh
[ -n "${PLIMSOLL:-}" ] && plimsoll=$PLIMSOLL
policies=(baseline sord qats combo adaptive)
# Fills the volume: what was never written is read without any work. 16,384 writes fill it.
fill_per_second=1100
fill_seconds=15

configuration() { # policy
  cat >"$work/plimsoll.toml" <<TOML
[daemon]
state_directory = "state"
notes_directory = "notes"
[nbd]
listen = ["unix:nbd.sock"]
[executor]
threads = $threads
policy = "$1"
[device.memory]
scheduler = "noop"
# Whoever waits does so for a service thread.
outstanding_max = 1024
[pool.all]
device = "memory"
[volume.data]
pool = "all"
size = "1GiB"
memory = true
compression = "zstd"
nbd = {}
TOML
}

load() { # arguments...
  "$plimsoll" --log error load "nbd+unix:///data?socket=$work/nbd.sock" --destructive --json "$@"
}

serve() { # policy
  configuration "$1"
  daemon_start "$work/plimsoll.toml"
  load --mix 'write sequential 64KiB' --rate "$fill_per_second" --warm-up 0 --seconds "$fill_seconds" >/dev/null
}

if [ -z "$peak" ]; then
  serve baseline
  peak=$(load --mix spc1-like --first 2000 --seconds "$seconds" | jq '.peak_per_second | floor')
  daemon_stop
fi
rates=$(jq -nr --argjson peak "$peak" '[0.5, 0.8, 0.9, 0.95] | map(. * $peak | floor | tostring) | join(",")')
echo "peak under baseline: $peak/s; $threads service thread(s), $(nproc) processors, $rounds rounds of $seconds s"
for round in $(seq "$rounds"); do
  for number in "${!policies[@]}"; do
    # Each round begins with another one.
    policy=${policies[$(((number + round) % ${#policies[@]}))]}
    serve "$policy"
    load --mix spc1-like --rate "$rates" --seconds "$seconds" --seed "$round" |
      jq -c --arg policy "$policy" '.rows[] | . + {policy: $policy}' >>"$work/rows"
    daemon_stop
  done
done
[ -n "${KEEP:-}" ] && cp "$work/rows" "$KEEP"
# Medians over the rounds of the mean response times, in ms, and each over the baseline's.
jq -rs '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def ms: . * 1000 * 1000 | round / 1000;
  (map(.policy) | unique) as $policies
  | (["offered/s", "policy", "mean ms", "of baseline", "reads ms", "writes ms", "p99 ms", "answered/s"] | @tsv),
    (group_by(.offered_per_second)[]
      | (map(select(.policy == "baseline").mean_seconds) | median) as $baseline
      | group_by(.policy)[]
      | [.[0].offered_per_second, .[0].policy, (map(.mean_seconds) | median | ms),
         ((map(.mean_seconds) | median) / $baseline * 100 | round / 100),
         (map(.reads.mean_seconds) | median | ms), (map(.writes.mean_seconds) | median | ms),
         (map(.p99_seconds) | median | ms), (map(.answered_per_second) | median | round)]
      | @tsv)' "$work/rows" | column -t -s "$(printf '\t')"
