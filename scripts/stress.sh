#!/usr/bin/env bash
# Long random runs over every policy, then shorter ones under the sanitizers. About 20 minutes on
# two cores. Whatever fails prints the seed and the command that does it again.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
operations=${STRESS_OPERATIONS:-1000000000}  # allocations and frees, over all policies
schedules=${STRESS_SCHEDULES:-500000}        # for each policy
seed=${STRESS_SEED:-$((RANDOM * 32768 + RANDOM))}
run() {
  echo
  echo "$ $*"
  "$@"
}
run "$build/bench/bench_schedules" --schedules "$schedules" --seed "$seed"
run "$build/bench/bench_stress" --operations "$operations" --seed "$seed"
run env LD_PRELOAD="$build/libtenon_preload.so" \
  "$build/tests/preload/preload_program" churn "$((operations / 10))"
for preset in asan tsan; do
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$(nproc)" --target bench_stress bench_schedules
  run "build-$preset/bench/bench_schedules" --schedules "$((schedules / 50))" \
    --broken-schedules 2000 --seed "$seed"
  run "build-$preset/bench/bench_stress" --operations "$((operations / 50))" --seed "$seed"
done
