#!/usr/bin/env bash
# All tests of the workspace: what failed, what hung, and at the end what was not run on this machine, and why, with the
# number of tests that said so.
#
#   scripts/unit-tests.sh [--lint] [FLAGS OF CARGO...]     --lint: clippy too
#
# A test that cannot run here says "not run: why" and passes. A test that takes too long is named, its program ended,
# and the run goes on with the others (scripts/time-limit.sh).
#
# Two programs of tests run at once. One only computes, with the processors that the other leaves. The other is one of
# those that use devices, mounts and servers of this machine, which mostly wait. Those look for what other tests leave
# behind, so never two of them.
set -euo pipefail
cd "$(dirname "$0")/.."

# Packages, and single targets of other packages, with tests that touch nothing of the machine but files and sockets of
# their own.
computing=" core linux settings schedulers devices cache executor traces workloads protocols sim lab/figures "
computing+="engine/plimsoll_engine engine/engine_oracle engine/engine_turns engine/engine_cache_lines "
computing+="engine/engine_cache_runs engine/engine_write_path engine/engine_pressure engine/engine_overlaps "
computing+="engine/engine_alarm engine/engine_read_ahead "
# Programs with tests that mostly wait for daemons of their own: twice as many tests at once.
waiting=" cli/up "
cargo=${CARGO:-cargo}
is_lint=
if [ "${1:-}" = --lint ]; then
  is_lint=1
  shift
fi

scratch=$(mktemp -d)
beside=
# The processes below this one.
below() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    echo "$child"
    below "$child"
  done
}
ends() {
  # In the middle of the run: each program's watcher ends the program.
  [ -z "$beside" ] || kill "$beside" $(below "$beside") 2>/dev/null || true
  rm -rf "$scratch"
}
trap ends EXIT
touch "$scratch/not_run" "$scratch/hung" "$scratch/failed"

# What a first build would write for the next one takes a tenth of its time.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
build_began=$SECONDS
"$cargo" test --workspace --no-run --quiet --message-format=json-render-diagnostics "$@" >"$scratch/built"
echo "built in $((SECONDS - build_began)) s"
# Of each program of tests: its package's folder, its target's name, and where it is.
sed -n 's|^{"reason":"compiler-artifact",.*"manifest_path":"\([^"]*\)/Cargo.toml","target":{[^}]*"name":"\([^"]*\)"[^}]*},"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*|\1\t\2\t\3|p' \
  "$scratch/built" >"$scratch/programs"
[ -s "$scratch/programs" ] || { echo "no programs of tests were found in what cargo said" >&2; exit 1; }

# Runs one program of tests; says in a line how it went, and all that it said if it failed.
run() {
  local name=$1 folder=$2 began=$SECONDS code=0 counted
  shift 2
  local said
  said=$(mktemp -p "$scratch")
  (cd "$folder" && "$@") >"$said" 2>&1 </dev/null || code=$?
  counted=$(sed -n 's/^test result: .* \([0-9]* passed\); \([0-9]* failed\);.*/\1/p' "$said" | tr '\n' ' ')
  if [ "$code" = 0 ]; then
    printf '%-48s %5d s  %s\n' "$name" $((SECONDS - began)) "$counted"
  else
    echo "---- $name: exit code $code" | cat - "$said"
    echo "$name" >>"$scratch/failed"
  fi
}
limited=("$PWD/scripts/time-limit.sh" "$scratch/not_run" "$scratch/hung")

# The same for one that is ended where it hangs.
run_limited() {
  local name=$1 folder=$2
  shift 2
  CARGO_MANIFEST_DIR=$folder run "$name" "$folder" "${limited[@]}" "$name" "$@"
}

# Tests of a program that run at once.
threads_of() {
  local threads
  threads=${RUST_TEST_THREADS:-$(nproc)}
  if [[ $waiting == *" $1 "* ]]; then echo $((2 * threads)); else echo "$threads"; fi
}

# Which lane a program is in, by its package and target.
is_computing() {
  [[ $computing == *" $1 "* || $computing == *" $1/$2 "* ]]
}

lane() {
  local wanted=$1 folder target program package is_here
  while IFS=$'\t' read -r folder target program; do
    package=${folder##*/}
    is_here=live
    ! is_computing "$package" "$target" || is_here=computing
    [ "$is_here" != "$wanted" ] ||
      RUST_TEST_THREADS=$(threads_of "$package/$target") run_limited "$package/$target" "$folder" "$program" --show-output
  done <"$scratch/programs"
}

compute() {
  renice -n 10 -p "$BASHPID" >/dev/null
  lane computing
  run_limited documentation "$PWD" "$cargo" test --workspace --doc "${flags[@]}" -- --show-output
  [ -z "$is_lint" ] || run clippy "$PWD" "$cargo" clippy --workspace --all-targets --quiet "${flags[@]}" -- -D warnings
}

flags=("$@")
compute &
beside=$!
trap 'exit 130' INT TERM
lane live
wait "$beside"
beside=

if [ -s "$scratch/not_run" ]; then
  echo "not run on this machine, by so many tests:"
  sort "$scratch/not_run" | uniq -c | sort -rn
fi
if [ -s "$scratch/hung" ]; then
  echo "hung:"
  sed 's/^/  /' "$scratch/hung"
fi
if [ -s "$scratch/failed" ]; then
  echo "failed: $(sort "$scratch/failed" | tr '\n' ' ')"
  exit 1
fi
