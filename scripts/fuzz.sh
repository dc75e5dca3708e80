#!/usr/bin/env bash
# scripts/fuzz.sh [SECONDS [TARGET...]]: builds libFuzzer's programs (clang, ASan, UBSan) and runs each
# target for so long. Inputs that reach something new are kept in build-fuzz/corpus; one that crashes,
# takes over 10 s or too much memory ends the run, and its file and the command that repeats it are
# printed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
jobs=${JOBS:-$(nproc)}
cmake --preset fuzz >/dev/null
text=(csv rmm snapshot pickle zstd settings plan instance)
tensor=(npy safetensors idx gzip dlpack)
memory=(policies)
training=(checkpoint)
c=(c_calls)
http=(http)
status=0

run() {  # PROGRAM TARGET
  local corpus=build-fuzz/corpus/$2 log=build-fuzz/$2.log
  mkdir -p "$corpus" "build-fuzz/found"
  local done_before=$SECONDS
  if TENON_FUZZ_TARGET=$2 "build-fuzz/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=10 \
      -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/found/$2-" "$corpus" "tests/fuzz/corpus/$2" >"$log" 2>&1; then
    echo "$2: $(sed -n 's/.*number_of_executed_units: *//p' "$log") inputs in $((SECONDS - done_before)) s, nothing found"
  else
    status=1
    grep -E "ERROR|SUMMARY|runtime error|broken promise|terminate|what\(\)" "$log" | head -5 >&2
    found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    echo "$2: FAILED; again: TENON_FUZZ_TARGET=$2 build-fuzz/tests/fuzz/fuzz_$1 $found" >&2
  fi
}

wants() { [ $# -eq 1 ] || [[ " ${*:2} " == *" $1 "* ]]; }
for program in http memory text c tensor training; do
  declare -n targets=$program
  wanted=()
  for target in "${targets[@]}"; do wants "$target" "$@" && wanted+=("$target"); done
  [ ${#wanted[@]} -eq 0 ] && continue
  cmake --build build-fuzz -j "$jobs" --target "fuzz_$program"
  for target in "${wanted[@]}"; do run "$program" "$target"; done
done
exit $status
