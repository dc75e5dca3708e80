#!/usr/bin/env bash
# Prints every figure that needs a GPU: bench/cuda/run.sh [BUILD_DIR]. What lacks the device, PyTorch
# or one of its packages says so and is skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
status=0
title() { printf '\n== %s\n\n' "$1"; }

title "what the driver charges (compare data/driver_costs.json)"
"$build/bench/bench_cuda_driver_costs" --out "$build/driver_costs.json" || status=1
[ -f "$build/driver_costs.json" ] && cat "$build/driver_costs.json"

title "hot pairs on the device"
"$build/bench/bench_cuda_hot_pair" || status=1

title "traces on the device, beside the simulation"
if "$build/tenon" info | grep -q '^  cuda:0 '; then
  "$build/tenon" replay data/traces/*.csv.zst --device cuda --find-capacity \
    --policy stitched,caching,expandable --json-file "$build/replay_cuda.json" || status=1
else
  "$build/tenon" info | sed -n 's/^  cuda  *none: /tenon replay --device cuda: skipped: /p'
fi

title "random operations with kernels that check contents"
"$build/bench/bench_cuda_stress" --operations "${OPERATIONS:-100000000}" || status=1

title "PyTorch programs on Tenon and on PyTorch's own allocator"
PYTHONPATH="$build/bindings/torch" python3 bench/cuda/pytorch_compare.py --find-capacity \
  --json "$build/pytorch_compare.json" || status=1
exit $status
