#!/usr/bin/env bash
# All tests of the workspace, and at the end what was not run on this machine, and why, with the number of tests that said so.
#
#   scripts/unit-tests.sh [FLAGS OF CARGO...]
#
# A test that cannot run here says "not run: why" and passes. Cargo shows what tests print only if it is asked to, and then everything.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run=$(mktemp)
trap 'rm -f "$not_run"' EXIT

# Lets through what cargo says without --show-output, and keeps the reasons.
filter() {
  local line is_hidden=
  while IFS= read -r line; do
    case $line in
      successes:) is_hidden=1 ;;
      failures: | 'test result:'*) is_hidden= ;;
      'not run:'*) echo "$line" >>"$not_run" ;;
    esac
    [ -n "$is_hidden" ] || printf '%s\n' "$line"
  done
}

outcome=0
"${CARGO:-cargo}" test --workspace --quiet --no-fail-fast "$@" -- --show-output 2>&1 | filter || outcome=$?
if [ -s "$not_run" ]; then
  echo "not run on this machine, by so many tests:"
  sort "$not_run" | uniq -c | sort -rn
fi
exit "$outcome"
