#!/usr/bin/env bash
# Runs a program of tests and ends it, with all that it started, once a test takes longer than it may; says which test
# that was.
#
#   scripts/time-limit.sh NOT_RUN_FILE HUNG_FILE NAME COMMAND [ARGUMENTS...]
#
# Shows what the program says, but neither that a test passed nor what it printed then. A test that cannot run here says
# "not run: why" and passes: those lines are added to NOT_RUN_FILE. Tests that took too long are added to HUNG_FILE, a
# line each.
# Exit code: the program's, 124 if a test took too long.
#
# A test may take TEST_SECONDS_MAX seconds (300); tests that scripts/time-limits.txt names may take longer.
set -uo pipefail

not_run=$1 hung=$2 name=$3
shift 3
seconds_max=${TEST_SECONDS_MAX:-300}
limits=$(dirname "$0")/time-limits.txt
# libtest names a test that has run for so long.
announced_after=60
# After the last test has ended, and before the first is named: a program that says nothing for so long hangs too.
silence_max=$((seconds_max + announced_after))
mark=PLIMSOLL_TEST_RUN=$$.$RANDOM$RANDOM

# Seconds that a test may take.
limit_of() {
  local test=$1 seconds pattern
  while read -r seconds pattern; do
    [[ $seconds == [0-9]* && $test == *$pattern* ]] && echo "$seconds" && return
  done <"$limits"
  echo "$seconds_max"
}

# The processes below this one.
below() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    echo "$child"
    below "$child"
  done
}

# The processes that the program started: those below it, in its group, or with this run's mark in their environment.
end_all() {
  local pid environment round
  kill -STOP "$leader" 2>/dev/null
  pid=$(below "$leader")
  kill -KILL $pid -- "-$leader" 2>/dev/null
  wait "$leader" 2>/dev/null
  # Again, for what was started meanwhile.
  for round in 1 2; do
    for environment in $(grep -lzxF "$mark" /proc/[0-9]*/environ 2>/dev/null); do
      pid=${environment#/proc/}
      kill -KILL "${pid%/environ}" 2>/dev/null
    done
  done
}

declare -A ends=()
hidden='' partial='' is_hung='' silent_since=$SECONDS

take_line() {
  local line=$1 test
  silent_since=$SECONDS
  case $line in
    'test '*' has been running for over '*' seconds')
      test=${line#test } test=${test% has been running for over *}
      ends[$test]=$((SECONDS - announced_after + $(limit_of "$test")))
      echo "$name: $test has been running for over $announced_after seconds" >&2
      return ;;
    'test '*' ... ok' | 'test '*' ... ignored'*)
      test=${line#test } test=${test% ... *}
      unset "ends[${test% - should panic}]"
      return ;;
    'test '*' ... FAILED'*)
      test=${line#test } test=${test% ... *}
      unset "ends[${test% - should panic}]" ;;
    'successes:') hidden=1 ;;
    'failures:' | 'test result:'*) hidden='' ;;
    'not run:'*) echo "$line" >>"$not_run" ;;
  esac
  [ -n "$hidden" ] || [ -z "$line" ] || printf '%s\n' "$line"
}

# Names what has taken too long, and ends the program then.
look() {
  local test end
  for test in "${!ends[@]}"; do
    end=${ends[$test]}
    if ((SECONDS >= end)); then
      is_hung=1
      echo "$name: $test ran for over $(limit_of "$test") s and was ended" | tee -a "$hung"
    fi
  done
  if [ -z "$is_hung" ] && ((${#ends[@]} == 0 && SECONDS - silent_since > silence_max)); then
    is_hung=1
    echo "$name: said nothing for $silence_max s and was ended" | tee -a "$hung"
  fi
  [ -z "$is_hung" ] || end_all
}

# A child that outlives the program and keeps its pipe open makes no caller wait: the program's end is the end.
pipe=$(mktemp -u)
mkfifo "$pipe"
# libtest names slow tests only if it runs tests on threads.
threads=${RUST_TEST_THREADS:-$(nproc)}
env "$mark" RUST_TEST_THREADS=$((threads < 2 ? 2 : threads)) setsid "$@" >"$pipe" 2>&1 &
leader=$!
exec 3<"$pipe"
rm -f "$pipe"
trap 'end_all; exit 130' INT TERM
is_open=1
while [ -z "$is_hung" ]; do
  if [ -z "$is_open" ]; then
    sleep 0.2
  elif IFS= read -r -t 1 line <&3; then
    take_line "$partial$line"
    partial=''
    continue
  else
    # Above 128 a second has passed; otherwise the pipe is closed.
    code=$?
    partial+=$line
    ((code > 128)) || is_open=''
  fi
  kill -0 "$leader" 2>/dev/null || break
  look
done
[ -z "$partial" ] || take_line "$partial"
wait "$leader" 2>/dev/null
code=$?
if [ -n "$is_hung" ]; then
  exit 124
fi
exit "$code"
