# For acceptance.sh and soak.sh to source: a folder, a daemon in it, and the end of both whatever happens.
#
#   $work                       the folder; gone at the end with all that is mounted or attached from it
#   $built, $plimsoll           where cargo puts what it builds, and the command
#   daemon_start CONFIGURATION  daemon_stop  daemon_kill  daemon_rss_mib  attached  settles_attached NUMBER
#   records_write FOLDER LIST   records_check FOLDER LIST  stop_children PID...

built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
plimsoll=$built/plimsoll
work=$(mktemp -d "${TMPDIR:-/tmp}/plimsoll-${0##*/}.XXXXXX")
PATH=$PATH:/usr/sbin:/sbin
# How long a daemon may take to serve or to end, in tenths of a second: checking and replaying file systems takes time.
daemon_patience=600
daemon=

# Waits until a command succeeds, looking ten times a second.
wait_until() { # tenths, command...
  local left=$1
  shift
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 0.1
  done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }
daemon_settled() { grep -qs ^serving "$work/out" || is_gone "$daemon"; }

daemon_start() { # configuration
  : >"$work/out"
  "$plimsoll" up "$1" >"$work/out" 2>>"$work/log" &
  daemon=$!
  wait_until "$daemon_patience" daemon_settled && ! is_gone "$daemon" && return
  echo "the daemon does not serve; the end of its log:"
  tail -n 5 "$work/log"
  return 1
}

daemon_stop() {
  local status=0
  kill -TERM "$daemon"
  wait_until "$daemon_patience" is_gone "$daemon" || { echo "SIGTERM does not end the daemon"; return 1; }
  wait "$daemon" || status=$?
  daemon=
  [ "$status" = 0 ] || { echo "the daemon ended with $status"; tail -n 5 "$work/log"; }
  return "$status"
}

daemon_kill() {
  note_loops
  # Bash is not to report it.
  disown "$daemon"
  kill -KILL "$daemon"
  wait_until "$daemon_patience" is_gone "$daemon" || { echo "kill -9 does not end the daemon"; return 1; }
  daemon=
}

daemon_rss_mib() { awk '/^VmRSS:/ { print int($2 / 1024) }' "/proc/$daemon/status"; }

# Notes the loop devices that are attached from the folder. After a kill one may have no file left, and no name.
note_loops() { grep -slF "$work" /sys/block/loop*/loop/backing_file >>"$work/loops" || true; }
# Loop devices of files that are in no mount any more, a line each.
loops_without_file() { grep -slx / /sys/block/loop*/loop/backing_file || true; }

# What is mounted below the folder or attached from it, a line each; and loop devices of ours that lost their file.
attached() {
  note_loops
  grep -F "$work" /proc/self/mountinfo || true
  grep -sF "$work" /sys/block/loop*/loop/backing_file || true
  loops_without_file | grep -xF -f "$work/loops" || true
}
# Waits until so many things are attached: another program on this machine may have a loop device that was ours before.
is_attached() { [ "$(attached | wc -l)" = "$1" ]; }
settles_attached() { wait_until 600 is_attached "$1" && : >"$work/loops"; }

# Writes small files, each synced with its folder, until one cannot be; LIST names those that were synced.
records_write() { # folder list
  local number=0 name
  mkdir -p "$1"
  while number=$((number + 1)) && name=$1/$RANDOM-$number; do
    printf '%3000d' "$number" 2>/dev/null >"$name" && sync "$name" "$1" 2>/dev/null || return 0
    echo "${name##*/}" >>"$2"
  done
}

# Whether every file of LIST is there and whole.
records_check() { # folder list
  local name
  [ -s "$2" ] || { echo "nothing was synced before the kill"; return 1; }
  while read -r name; do
    [ "$(cat "$1/$name" 2>&1)" = "$(printf '%3000d' "${name#*-}")" ] || { echo "synced and lost: $name"; return 1; }
  done <"$2"
}

# Ends what was started in the background, with its own children.
stop_children() { # pid...
  local process
  for process in "$@"; do
    kill -TERM -- "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
}

# Fails all that waits for a FUSE server of this folder.
free_waiting() {
  local connections=$work/connections numbers number
  mapfile -t numbers < <(grep -F "$work" /proc/self/mountinfo | grep -F ' - fuse plimsoll:' | cut -d' ' -f3 | cut -d: -f2)
  [ "${#numbers[@]}" != 0 ] && mkdir "$connections" && mount -t fusectl none "$connections" || return 0
  for number in "${numbers[@]}"; do echo 1 >"$connections/$number/abort"; done
  umount "$connections"
}

daemon_cleanup() {
  local status=$? loops mounts place device
  trap - EXIT INT TERM
  # shellcheck disable=SC2046
  stop_children $(jobs -p | grep -vx "${daemon:-none}" || true)
  if [ -n "$daemon" ] && ! is_gone "$daemon"; then
    kill -TERM "$daemon"
    wait_until "$daemon_patience" is_gone "$daemon" || kill -KILL "$daemon"
  fi
  # Only after a failure is there anything left. Should a dead daemon not be gone, the threads that wait for it must be
  # set free first. A loop device is known by its file until that is unmounted.
  free_waiting || true
  mapfile -t loops < <(grep -slF "$work" /sys/block/loop*/loop/backing_file | cut -d/ -f4)
  mapfile -t mounts < <(grep -F "$work" /proc/self/mountinfo | cut -d' ' -f5 | tac)
  for place in "${mounts[@]}"; do umount --lazy "$place" || true; done
  for device in "${loops[@]}"; do losetup --detach "/dev/$device" || true; done
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap daemon_cleanup EXIT
trap 'exit 130' INT TERM
chmod 711 "$work"
