#!/usr/bin/env bash
# First contact with a GPU: bench/cuda/check.sh [BUILD_DIR]. What can go wrong, the riskiest ground
# first: each step a process of its own with a time limit, passed, failed or skipped, and the end of
# the log of what failed. About four minutes in all; nothing here measures.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
logs=$build/check_cuda
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# Programs that were brought along find their libraries beside them (scripts/cuda_bundle.sh).
libraries=
[ -d "$build/lib" ] && libraries=$PWD/$build/lib

# step NAME SECONDS COMMAND...: skipped when it says so, or exits with 77.
step() {
  local name=$1 seconds=$2 start=$SECONDS rc
  shift 2
  local log=$logs/$name.log
  LD_LIBRARY_PATH=${libraries:+$libraries:}${LD_LIBRARY_PATH:-} \
    timeout -k 10 "$seconds" "$@" >"$log" 2>&1
  rc=$?
  if [ $rc -eq 77 ] || { [ $rc -eq 0 ] && grep -q ': skipped: ' "$log"; } ||
     { [ $rc -eq 0 ] && grep -q 'SKIPPED' "$log" && ! grep -q '^\[       OK' "$log"; }; then
    skipped=$((skipped + 1))
    printf 'skipped  %-28s %s\n' "$name" "$(grep -m1 -E 'skipped: |: CUDA|no NVIDIA' "$log")"
  elif [ $rc -eq 0 ]; then
    passed=$((passed + 1))
    printf 'passed   %-28s %3d s\n' "$name" $((SECONDS - start))
  else
    failed=$((failed + 1))
    [ $rc -eq 124 ] && echo "timed out after $seconds s" >>"$log"
    printf 'FAILED   %-28s %3d s, exit %d: %s\n' "$name" $((SECONDS - start)) $rc "$log"
    tail -n 12 "$log" | sed 's/^/         | /'
  fi
}

tests=$build/tests/tenon_device_tests
hardware() { step "$1" 120 env TENON_TEST_CUDA_HARDWARE=1 "$tests" --gtest_filter="$2"; }

step info 60 "$build/tenon" info
sed -n 's/^  cuda/         | cuda/p' "$logs/info.log"
hardware segments 'CudaHardware.SaysWhatItIs:CudaHardware.Segments*'
hardware pages 'CudaHardware.Pages*'
hardware aliases 'CudaHardware.OnePage*'
hardware events 'CudaHardware.Events*'
hardware capture 'CudaHardware.ACapture*'
hardware contract '*CudaHardware/*'
for policy in stitched caching expandable unified; do
  step "contents_$policy" 120 "$build/bench/bench_cuda_stress" --operations 200000 --seconds 40 \
    --policy "$policy" --live 1GiB
done
step driver_costs 120 "$build/bench/bench_cuda_driver_costs" --repeats 3
step hot_pair 60 "$build/bench/bench_cuda_hot_pair"
if grep -q 'cuda:0 ' "$logs/info.log"; then
  step replay 180 "$build/tenon" replay data/traces/gnn_sampled.csv.zst --device cuda --passes 1 \
    --policy stitched,caching,expandable
fi
if python3 -c 'import torch' 2>/dev/null; then
  for case in $(PYTHONPATH=$build/bindings/torch python3 bench/cuda/check_pytorch.py --list); do
    PYTHONPATH=$build/bindings/torch libraries= \
      step "pytorch_$case" 120 python3 bench/cuda/check_pytorch.py "$case"
  done
else
  skipped=$((skipped + 1))
  echo 'skipped  pytorch                      there is no torch'
fi
echo "$passed passed, $failed failed, $skipped skipped; logs in $logs"
[ $failed -eq 0 ]
