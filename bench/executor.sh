#!/usr/bin/env bash
# What the rules of the service threads do to response times: one daemon with a compressed volume in memory under an SPC-1-like load
# at given rates, each policy in turns (docs/executor.md). Five minutes, and four more for each round; any user.
#
#   bench/executor.sh [ROUNDS] [SECONDS] [PEAK]     default 3 rounds, 5 seconds a rate, and the peak is looked for under baseline
#
# THREADS=2 bench/executor.sh has two service threads instead of one; LEVEL=1 has zstd's fastest level instead of the sixth; PARTS="0.5 0.9"
# are the parts of the peak, POLICIES="baseline combo" the policies, baseline among them. KEEP=FILE keeps what was measured, a line of JSON
# each. The command that is measured is $built/plimsoll.
#
# The goal: at 90 % of the peak Combo's mean is at least 15 % below the baseline's. The last line says whether it is, in the medians, and it ends with 1 if
# it is not; where one of the two policies or that part was not measured, nothing is judged.
#
# Of the levels 1, 3, 6 and 12 this is the lowest at which it is the service threads that requests wait for: the processor that
# the load and the daemon's other threads share is in use for three quarters then, on two processors. At the first level it is in use
# for 94 %.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
seconds=${2:-5}
peak=${3:-}
threads=${THREADS:-1}
level=${LEVEL:-6}
. bench/daemon.sh
[ -n "${PLIMSOLL:-}" ] && plimsoll=$PLIMSOLL
read -ra policies <<<"${POLICIES:-baseline sord qats combo adaptive}"
# Where there are enough processors, service threads have theirs, so that what waits for them does not wait for the load instead.
beside=()
processors=$(nproc)
if [ "$threads" -lt "$processors" ] && command -v taskset >/dev/null; then
  service_processors=$((processors - threads))-$((processors - 1))
  other_processors=0-$((processors - threads - 1))
  beside=(taskset -c "$other_processors")
fi
# Fills the volume: what was never written is read without any work. 16,384 writes fill it.
fill_per_second=2000
fill_seconds=9
# The backlog is a store of time: what the service threads do for longer than a moment shows only when it has found its level.
warm_up=5
parts_of_peak=${PARTS:-0.5 0.8 0.9 0.95}

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
compression = "zstd:$level"
nbd = {}
TOML
}

status() { "$plimsoll" --log error status --json --socket "$work/state/control.sock"; }

load() { # arguments...
  "${beside[@]}" "$plimsoll" --log error load "nbd+unix:///data?socket=$work/nbd.sock" --destructive --json "$@"
}

# Gives the service threads processors that nobody else uses.
set_apart() {
  local task name
  [ "${#beside[@]}" != 0 ] || return 0
  for task in "/proc/$daemon/task/"*; do
    name=$(<"$task/comm")
    case $name in
      service*) taskset -pc "$service_processors" "${task##*/}" ;;
      *) taskset -pc "$other_processors" "${task##*/}" ;;
    esac >/dev/null
  done
}

# Ticks that the daemon's threads of this name have run.
ticks() { # beginning of the name
  cat "/proc/$daemon/task/"*/stat | awk -v name="($1" 'index($0, name) { sub(/.*\) /, ""); sum += $12 + $13 } END { print sum + 0 }'
}

is_compressed() { [ "$(status | jq '[.devices[].volumes[].backlog_bytes] | add')" = 0 ]; }

serve() { # policy
  configuration "$1"
  daemon_start "$work/plimsoll.toml"
  set_apart
  load --mix 'write sequential 64KiB' --rate "$fill_per_second" --warm-up 0 --seconds "$fill_seconds" >/dev/null
  wait_until 600 is_compressed
}

# One rate, a line of JSON; with the part of a processor that the service threads and the engine's had, and the backlog at the end.
measure() { # policy rate round
  local began service engine parts
  began=$(date +%s%N) service=$(ticks service) engine=$(ticks engine)
  load --mix spc1-like --rate "$2" --warm-up "$warm_up" --seconds "$seconds" --seed "$3" >"$work/row"
  parts=$(jq -n "(($(date +%s%N) - $began) / 1e9 * $(getconf CLK_TCK)) as \$all
    | {service_busy: (($(ticks service) - $service) / \$all), engine_busy: (($(ticks engine) - $engine) / \$all)}")
  jq -c --arg policy "$1" --argjson parts "$parts" --argjson backlog "$(status | jq '[.devices[].volumes[].backlog_bytes] | add')" \
    '.rows[0] + $parts + {policy: $policy, part: '"$4"', backlog_bytes: $backlog}' "$work/row" >>"$work/rows"
}

if [ -z "$peak" ]; then
  serve baseline
  peak=$(load --mix spc1-like --first 8000 --warm-up "$warm_up" --seconds "$seconds" | jq '.peak_per_second | floor')
  daemon_stop
fi
echo "peak under baseline: $peak/s; zstd:$level, $threads service thread(s), $(nproc) processors, $rounds rounds of $seconds s"
for round in $(seq "$rounds"); do
  for number in "${!policies[@]}"; do
    # Each round begins with another one.
    policy=${policies[$(((number + round) % ${#policies[@]}))]}
    serve "$policy"
    for part in $parts_of_peak; do
      measure "$policy" "$(jq -n "$peak * $part | floor")" "$round" "$part"
      wait_until 600 is_compressed
    done
    daemon_stop
  done
done
[ -n "${KEEP:-}" ] && cp "$work/rows" "$KEEP"
# Medians over the rounds of the mean response times, in ms, and each over the baseline's.
jq -rs '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def ms: . * 1000 * 1000 | round / 1000;
  def percent: . * 100 | round;
  (["of peak", "policy", "mean ms", "of baseline", "reads ms", "writes ms", "p99 ms", "answered/s", "service %", "engine %", "load %", "backlog MiB"] | @tsv),
    (group_by(.part)[]
      | (map(select(.policy == "baseline").mean_seconds) | median) as $baseline
      | group_by(.policy)[]
      | [.[0].part, .[0].policy, (map(.mean_seconds) | median | ms),
         ((map(.mean_seconds) | median) / $baseline * 100 | round / 100),
         (map(.reads.mean_seconds) | median | ms), (map(.writes.mean_seconds) | median | ms),
         (map(.p99_seconds) | median | ms), (map(.answered_per_second) | median | round),
         (map(.service_busy) | median | percent), (map(.engine_busy) | median | percent),
         (map(.generator_busy) | median | percent), (map(.backlog_bytes) | median / 1048576 | round)]
      | @tsv)' "$work/rows" | column -t -s "$(printf '\t')"

# The goal, of the rows of a file.
judge() { # file
  jq -rs '
    def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
    def mean($policy): map(select(.part == 0.9 and .policy == $policy).mean_seconds) | if length > 0 then median else null end;
    mean("baseline") as $baseline | mean("combo") as $combo
    | if $baseline == null or $combo == null then "not judged: it takes baseline and combo at 0.9 of the peak"
      else ($combo / $baseline) as $ratio
        | (if $ratio <= 0.85 then "reached" else "missed" end)
          + ": at 90 % of the peak the mean of combo is \($ratio * 100 | round / 100) of the one of baseline, goal 0.85"
      end' "$1"
}
verdict=$(judge "$work/rows")
echo "$verdict"
case $verdict in missed*) exit 1 ;; esac
