#!/usr/bin/env bash
# What the rules of the service threads do to response times: one daemon with a compressed volume in memory under an
# SPC-1-like load at given rates, each policy in turns (docs/executor.md). Five minutes to look for the peak, and eight
# more for each life; any user.
#
#   bench/executor.sh [LIVES] [WINDOWS] [PEAK]     default 2 lives, 10 windows; the peak is looked for under baseline
#
# A life is a daemon with one policy and a fresh volume. In it each rate is held for as many windows of 2 s, one after
# the other, and the mean of each window is a sample; those of all lives together have the median and the quartiles that
# are shown.
#
# THREADS=2 bench/executor.sh has two service threads instead of one; LEVEL=1 has zstd's fastest level instead of the
# sixth; PARTS="0.5 0.9" are the parts of the peak, POLICIES="baseline combo" the policies, baseline among them.
# KEEP=FILE keeps what was measured, a line of JSON each. The command that is measured is $built/plimsoll.
#
# The goal: at 90 % of the peak Combo's mean is at least 15 % below the baseline's. The last line says whether it is, in
# the medians, and it ends with 1 if it is not; where one of the two policies or that part was not measured, nothing is
# judged.
#
# Of the levels 1, 3, 6 and 12 this is the lowest at which it is the service threads that requests wait for: the
# processor that the load and the daemon's other threads share is in use for three quarters then, on two processors. At
# the first level it is in use for 94 %.
set -euo pipefail
cd "$(dirname "$0")/.."
lives=${1:-2}
windows=${2:-10}
peak=${3:-}
threads=${THREADS:-1}
level=${LEVEL:-6}
. bench/daemon.sh
[ -n "${PLIMSOLL:-}" ] && plimsoll=$PLIMSOLL
read -ra policies <<<"${POLICIES:-baseline sord qats combo adaptive}"
# Where there are enough processors, service threads have theirs, so that what waits for them does not wait for the load
# instead.
beside=()
processors=$(nproc)
if [ "$threads" -lt "$processors" ] && command -v taskset >/dev/null; then
  service_processors=$((processors - threads))-$((processors - 1))
  other_processors=0-$((processors - threads - 1))
  beside=(taskset -c "$other_processors")
fi
# Each a sample of its own; the machine that this one runs on may take processors away for 40 ms.
window_seconds=2
# Fills the volume: a read of a block that was never written takes no work. 16,384 writes fill it.
fill_per_second=2000
fill_seconds=9
# The backlog is a store of time: what the service threads do for longer than a moment shows only when it has found its
# level. So many windows do not count.
warm_up=3
parts_of_peak=${PARTS:-0.7 0.8 0.9}

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
# Requests wait for a service thread.
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

# Gives the service threads processors that no other thread uses.
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

volume() { status | jq '[.devices[].volumes[]][0]'; }

# Nanoseconds that clients' requests have waited in the executor's queues so far, in all or `behind_maintenance`.
waited() { status | jq --arg field "${1:-waited}_ns" '[.executor.queues[] | select(.queue != "maintenance")[$field]] | add'; }

# Windows at one rate, one after the other, a line of JSON each; of all of them together the part of a processor that
# the service threads and the engine's had, what a request waited in the executor's queues and how much of that behind
# maintenance, the part of the compressed pages that their writers compressed, and the backlog at the end.
measure() { # policy part life
  local rate rates began service engine waited behind_maintenance before together
  rate=$(jq -n "$peak * $2 | floor")
  rates=$(jq -rn "[range($((warm_up + windows))) | \"$rate\"] | join(\",\")")
  began=$(date +%s%N) service=$(ticks service) engine=$(ticks engine) waited=$(waited) behind_maintenance=$(waited behind_maintenance) before=$(volume)
  load --mix spc1-like --rate "$rates" --warm-up 0 --seconds "$window_seconds" --seed "${3}000" >"$work/rows_of_part"
  together=$(jq -n --argjson before "$before" --argjson after "$(volume)" --slurpfile load "$work/rows_of_part" \
    "(($(date +%s%N) - $began) / 1e9 * $(getconf CLK_TCK)) as \$all
    | (\$after.compressed_by_writers_bytes - \$before.compressed_by_writers_bytes) as \$writers
    | (\$after.compressed_behind_bytes - \$before.compressed_behind_bytes) as \$behind
    | ([\$load[].rows[].answered_per_second] | add * $window_seconds) as \$answered
    | {in_queues_seconds: (($(waited) - $waited) / 1e9 / \$answered), behind_seconds: (($(waited behind_maintenance) - $behind_maintenance) / 1e9 / \$answered),
       service_busy: (($(ticks service) - $service) / \$all), engine_busy: (($(ticks engine) - $engine) / \$all),
       by_writers: (\$writers / ([\$writers + \$behind, 1] | max)), backlog_bytes: \$after.backlog_bytes}")
  jq -c --argjson together "$together" ".rows[$warm_up:][] + \$together + {policy: \"$1\", part: $2, life: $3}" "$work/rows_of_part" >>"$work/rows"
}

if [ -z "$peak" ]; then
  serve baseline
  peak=$(load --mix spc1-like --first 8000 --warm-up 5 --seconds 5 | jq '.peak_per_second | floor')
  daemon_stop
fi
echo "peak under baseline: $peak/s; zstd:$level, $threads service thread(s), $(nproc) processors, $lives lives of $windows windows of $window_seconds s"
for life in $(seq "$lives"); do
  for number in "${!policies[@]}"; do
    # Each turn begins with another one.
    policy=${policies[$(((number + life) % ${#policies[@]}))]}
    serve "$policy"
    for part in $parts_of_peak; do
      measure "$policy" "$part" "$life"
      wait_until 600 is_compressed
    done
    daemon_stop
    [ -z "${KEEP:-}" ] || cp "$work/rows" "$KEEP"
  done
done
# Of the windows' mean response times, in ms, median and quartiles; the median over the baseline's; medians of the rest.
jq -rs '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def quartile($number): sort | .[(length - 1) * $number / 4 | round];
  def ms: . * 1000 * 1000 | round / 1000;
  def percent: . * 100 | round;
  (["of peak", "policy", "windows", "mean ms", "quartiles", "of baseline", "reads ms", "writes ms", "in queues ms", "behind maintenance ms", "p99 ms", "answered/s", "service %", "engine %", "load %", "by writers %", "backlog MiB"] | @tsv),
    (group_by(.part)[]
      | (map(select(.policy == "baseline").mean_seconds) | median) as $baseline
      | group_by(.policy)[]
      | [.[0].part, .[0].policy, length, (map(.mean_seconds) | median | ms),
         (map(.mean_seconds) | "\(quartile(1) | ms) to \(quartile(3) | ms)"),
         ((map(.mean_seconds) | median) / $baseline * 100 | round / 100),
         (map(.reads.mean_seconds) | median | ms), (map(.writes.mean_seconds) | median | ms),
         (map(.in_queues_seconds) | median | ms), (map(.behind_seconds) | median | ms), (map(.p99_seconds) | median | ms), (map(.answered_per_second) | median | round),
         (map(.service_busy) | median | percent), (map(.engine_busy) | median | percent),
         (map(.generator_busy) | median | percent), (map(.by_writers) | median | percent), (map(.backlog_bytes) | median / 1048576 | round)]
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
# What no order of requests can gain more than.
waiting() { # file
  jq -rs '
    def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
    map(select(.part == 0.9 and .policy == "baseline")) | select(length > 0)
    | (map(.in_queues_seconds - .behind_seconds) | median) as $for_each_other
    | "under baseline clients wait for each other for \($for_each_other / (map(.mean_seconds) | median) * 100 | round) % of the mean: more than that no order of their requests can gain"
  ' "$1"
}
waiting "$work/rows"
verdict=$(judge "$work/rows")
echo "$verdict"
case $verdict in missed*) exit 1 ;; esac
