#!/usr/bin/env bash
# Prints every figure that needs a GPU: bench/cuda/run.sh [BUILD_DIR [SECTION...]]. Sections: costs
# pairs traces stress pytorch, or pytorch:PROGRAM; by default all. What lacks the device, PyTorch or
# one of its packages says so and is skipped; what fails does not keep the rest from running.
# DEADLINE=540: no new part begins after so many seconds; traces and pytorch keep what they found in
# BUILD_DIR and go on from there the next time.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
shift $(($# > 0 ? 1 : 0))
sections=${*:-costs pairs traces stress pytorch}
deadline=${DEADLINE:-0}
status=0
title() { printf '\n== %s\n\n' "$1"; }
left() { echo $((deadline - SECONDS)); }  # seconds, of a deadline
late() { [ "$deadline" -gt 0 ] && [ "$(left)" -le 0 ]; }

# Programs that were brought along find their libraries beside them (scripts/cuda_bundle.sh).
native() {
  if [ -d "$build/lib" ]; then
    LD_LIBRARY_PATH=$PWD/$build/lib:${LD_LIBRARY_PATH:-} "$@"
  else
    "$@"
  fi
}

costs() {
  title "what the driver charges (compare data/driver_costs.json)"
  native "$build/bench/bench_cuda_driver_costs" --out "$build/driver_costs.json" || return
  if [ -f "$build/driver_costs.json" ]; then cat "$build/driver_costs.json"; fi
}

pairs() {
  title "hot pairs on the device"
  native "$build/bench/bench_cuda_hot_pair"
}

traces() {
  title "traces on the device, beside the simulation"
  if ! native "$build/tenon" info | grep -q '^  cuda:0 '; then
    native "$build/tenon" info | sed -n 's/^  cuda  *none: /tenon replay --device cuda: skipped: /p'
    return 0
  fi
  mkdir -p "$build/replay_cuda"
  local trace name rc=0
  for trace in data/traces/*.csv.zst; do
    name=$build/replay_cuda/$(basename "$trace" .csv.zst)
    if [ ! -f "$name.json" ]; then
      if late; then
        echo "out of time before $trace; the same command goes on from there"
        return 3
      fi
      if native "$build/tenon" replay "$trace" --device cuda --find-capacity \
        --policy stitched,caching,expandable --json-file "$name.partial" >"$name.txt" 2>&1; then
        mv "$name.partial" "$name.json"
      else
        rc=1
      fi
    fi
    cat "$name.txt"
  done
  return $rc
}

stress() {
  title "random operations with kernels that check contents"
  local seconds=0
  [ "$deadline" -gt 0 ] && seconds=$(($(left) > 30 ? $(left) : 30))
  native "$build/bench/bench_cuda_stress" --operations "${OPERATIONS:-100000000}" \
    --seconds "$seconds" --seed "${SEED:-1}"
}

pytorch() {
  title "PyTorch programs on Tenon and on PyTorch's own allocator"
  local seconds=0
  [ "$deadline" -gt 0 ] && seconds=$(($(left) > 1 ? $(left) : 1))
  PYTHONPATH=$build/bindings/torch python3 bench/cuda/pytorch_compare.py --find-capacity \
    ${1:+--program "$1"} --json "$build/pytorch_compare.json" --deadline "$seconds"
}

for section in $sections; do
  case $section in
    costs | pairs | traces | stress | pytorch) "$section" || status=1 ;;
    pytorch:*) pytorch "${section#pytorch:}" || status=1 ;;
    *) echo "$section is no section: costs pairs traces stress pytorch[:PROGRAM]" && status=2 ;;
  esac
done
exit $status
