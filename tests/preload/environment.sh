#!/usr/bin/env bash
# environment.sh PRELOAD PROGRAM TENON: what the library does for its environment variables.
set -euo pipefail
preload=$1 program=$2 tenon=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }

# Statistics, to standard error and to a file. `border` asks for two large blocks that can be had.
env LD_PRELOAD="$preload" TENON_PRELOAD_STATISTICS=1 "$program" border 2>"$work/errors"
grep -qE '^tenon: process [0-9]+: 2 requests of 64 KiB and more, ' "$work/errors" ||
  fail "statistics: $(cat "$work/errors")"
env LD_PRELOAD="$preload" TENON_PRELOAD_STATISTICS="$work/file" "$program" border 2>"$work/errors"
[ ! -s "$work/errors" ] && grep -q '2 requests' "$work/file" || fail "no statistics in the file"
env LD_PRELOAD="$preload" TENON_PRELOAD_STATISTICS=/no/such/file "$program" border 2>"$work/errors"
grep -q '/no/such/file cannot be written' "$work/errors" || fail "no complaint: $(cat "$work/errors")"
full="$work/$(printf 'x\033y')"
ln -s /dev/full "$full"
mkfifo "$work/fifo"
for lost in "$full" "$work/fifo"; do
  env LD_PRELOAD="$preload" TENON_PRELOAD_STATISTICS="$lost" timeout 20 "$program" border 2>"$work/errors" ||
    fail "$lost: ended with $?"
  grep -q 'cannot be written: No ' "$work/errors" || fail "no complaint: $(cat "$work/errors")"
  ! grep -q "$(printf '\033')" "$work/errors" || fail "an escape sequence in a message"
done
env LD_PRELOAD="$preload" "$program" border 2>"$work/errors"
[ ! -s "$work/errors" ] || fail "it says something unasked: $(cat "$work/errors")"

# A recording, which the command reads. Each large block is in it.
env LD_PRELOAD="$preload" TENON_RECORD="$work/run.csv.zst" "$program" reallocate
"$tenon" replay "$work/run.csv.zst" --policy null >"$work/replay" || fail "the recording is unreadable"
env LD_PRELOAD="$preload" TENON_RECORD="$work/run.csv" "$program" border
[ "$(grep -c ',alloc,' "$work/run.csv")" = 2 ] || fail "events: $(cat "$work/run.csv")"

# A forked child records what it does itself, beside its parent's recording. "%p" is a process's number.
(cd "$work" && env LD_PRELOAD="$preload" TENON_RECORD=two.csv "$program" family) 2>"$work/errors"
[ "$(grep -c ',alloc,' "$work/two.csv")" = 2 ] || fail "parent: $(cat "$work/two.csv")"
[ "$(grep -c ',alloc,' "$work"/two.[0-9]*.csv)" = 2 ] || fail "child: $(ls "$work")"
grep -q 'two.csv is by another process' "$work/errors" || fail "unsaid: $(cat "$work/errors")"
env LD_PRELOAD="$preload" TENON_RECORD="$work/%p.csv" "$program" border & wait
"$tenon" replay "$work/$!.csv" --policy null >"$work/replay" || fail "no $!.csv: $(ls "$work")"
mkdir "$work/each"
env LD_PRELOAD="$preload" TENON_RECORD="$work/each/%p.csv" "$program" family 2>"$work/errors"
[ "$(ls "$work/each" | grep -cE '^[0-9]+\.csv$')" = 2 ] && [ ! -s "$work/errors" ] ||
  fail "a child of fork: $(ls "$work/each") $(cat "$work/errors")"

mkdir "$work/none"
(cd "$work/none" && env LD_PRELOAD="$preload" TENON_RECORD=run.csv "$program" idle_child) 2>"$work/errors"
[ "$(ls "$work/none")" = run.csv ] && [ ! -s "$work/errors" ] ||
  fail "a child without events: $(ls "$work/none") $(cat "$work/errors")"
(cd "$work/none" && env LD_PRELOAD="$preload" TENON_RECORD=refused.%p.csv "$program" refusals) 2>"$work/errors"
[ "$(ls "$work/none" | grep -cE '^refused\.oom\.[0-9]+\.csv$')" = 2 ] ||
  fail "failures of parent and child: $(ls "$work/none") $(cat "$work/errors")"
# Its threads allocate, and so record, while it forks.
env LD_PRELOAD="$preload" TENON_RECORD="$work/each/threads.csv" timeout 120 "$program" forks ||
  fail "a program with threads that forks: ended with $?"

# Nor do the recordings of a script's programs replace each other. Those of an earlier run are.
for run in 1 2; do
  sleep 0.2  # the clocks of files and of processes' beginnings have ticks of 10 ms
  (cd "$work" && env LD_PRELOAD="$preload" TENON_RECORD=script.csv sh -c '"$0" border; "$0" border; :' \
    "$program") 2>"$work/errors"
  [ "$(ls "$work"/script*.csv | wc -l)" = $((run + 1)) ] || fail "run $run: $(ls "$work")"
  grep -q 'script.csv is by another process' "$work/errors" || fail "unsaid: $(cat "$work/errors")"
done

# A line of statistics would damage a recording.
env LD_PRELOAD="$preload" TENON_RECORD="$work/both.csv" TENON_PRELOAD_STATISTICS="$work/both.csv" \
  "$program" border 2>"$work/errors"
grep -q 'both.csv cannot be written: TENON_RECORD names it' "$work/errors" ||
  fail "unsaid: $(cat "$work/errors")"
"$tenon" replay "$work/both.csv" --policy null >"$work/replay" || fail "the recording is damaged"

# A program that records nothing leaves the recording, and one whose recording cannot be written
# ends as it would: rmdir closes standard error before it ends.
env LD_PRELOAD="$preload" TENON_RECORD="$work/run.csv" true
[ "$(grep -c ',alloc,' "$work/run.csv")" = 2 ] || fail "a program without events replaced them"
mkdir "$work/gone"
env LD_PRELOAD="$preload" TENON_RECORD="$work/gone/run.csv" rmdir "$work/gone" || fail "rmdir ended with $?"

# Programs of every kind start under it.
for each in "ls /" "bash -c true" "env" "$tenon --version" "$tenon policies"; do
  env LD_PRELOAD="$preload" $each >"$work/out" 2>"$work/errors" || fail "$each: $(cat "$work/errors")"
  [ ! -s "$work/errors" ] || fail "$each: $(cat "$work/errors")"
done
