#!/usr/bin/env bash
# What reading ahead gains: readers of 4 KiB in sequence, one request at a time, over NBD from emulated drives; the same
# volume with and without read_ahead in turns (docs/read-ahead.md). Two minutes; any user; needs fio and jq.
#
#   bench/read-ahead.sh [ROUNDS] [SECONDS] [MODEL...]     default 3 rounds, 4 seconds each, hdd.wd-aakx and ssd.x25-m
#
# The command that is measured is $built/plimsoll, or $PLIMSOLL.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
seconds=${2:-4}
models=("${@:3}")
[ "${#models[@]}" != 0 ] || models=(hdd.wd-aakx ssd.x25-m)
. bench/daemon.sh
[ -n "${PLIMSOLL:-}" ] && plimsoll=$PLIMSOLL

configuration() { # model, a line for the volume
  cat >"$work/plimsoll.toml" <<TOML
[daemon]
state_directory = "state"
notes_directory = "notes"
[nbd]
listen = ["unix:nbd.sock"]
[device.disk]
emulate = "$1"
[pool.all]
device = "disk"
[volume.data]
pool = "all"
size = "1GiB"
memory = true
nbd = {}
$2
TOML
}

# Bytes a second of so many readers together, each in a part of its own.
read_in_sequence() { # readers
  fio --name=readers --ioengine=nbd --uri="nbd+unix:///data?socket=$work/nbd.sock" --rw=read --bs=4k --iodepth=1 \
    --numjobs="$1" --size=128m --offset_increment=256m --time_based --runtime="$seconds" --ramp_time=1 \
    --group_reporting --output-format=json --output="$work/fio.json" >>"$work/log" 2>&1
  jq '.jobs[0].read.bw_bytes' "$work/fio.json"
}

late_part() {
  "$plimsoll" status --json --socket "$work/state/control.sock" |
    jq '.devices[0].emulation | if .replies == 0 then 0 else .late_replies / .replies end'
}

for round in $(seq "$rounds"); do
  for model in "${models[@]}"; do
    for readers in 1 4; do
      settings=('' 'read_ahead = "1MiB"')
      # Each round begins with the other one.
      [ $((round % 2)) = 1 ] || settings=("${settings[1]}" "${settings[0]}")
      for setting in "${settings[@]}"; do
        configuration "$model" "$setting"
        daemon_start "$work/plimsoll.toml"
        rate=$(read_in_sequence "$readers")
        jq -nc --arg model "$model" --arg setting "$setting" --argjson readers "$readers" --argjson rate "$rate" \
          --argjson late "$(late_part)" '$ARGS.named' >>"$work/rows"
        daemon_stop
      done
    done
  done
done
[ -n "${KEEP:-}" ] && cp "$work/rows" "$KEEP"
# Medians over the rounds in MB/s, their ratio, and the largest part of replies that came late.
jq -rs '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def digits: . * 100 | round / 100;
  (["model", "readers", "without MB/s", "with MB/s", "ratio", "late at most"] | @tsv),
    (group_by(.model, .readers)[]
      | (map(select(.setting == "").rate) | median / 1e6) as $without
      | (map(select(.setting != "").rate) | median / 1e6) as $with
      | [.[0].model, .[0].readers, ($without | digits), ($with | digits), ($with / $without | digits), (map(.late) | max)]
      | @tsv)' "$work/rows" | column -t -s "$(printf '\t')"
