#!/usr/bin/env bash
# Long random runs over every policy, then shorter ones under the sanitizers. Minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
operations=${STRESS_OPERATIONS:-1000000}
seed=${STRESS_SEED:-$RANDOM}
echo "release: $operations operations a policy and thread, seed $seed"
build/bench/bench_stress "$operations" "$seed"
for preset in asan tsan; do
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$(nproc)" --target bench_stress
  echo "$preset: $((operations / 20)) operations a policy and thread, seed $seed"
  "build-$preset/bench/bench_stress" "$((operations / 20))" "$seed"
done
