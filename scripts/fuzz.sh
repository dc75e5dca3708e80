#!/usr/bin/env bash
# scripts/fuzz.sh [SECONDS [TARGET...]]: builds libFuzzer's programs (clang, ASan, UBSan) and runs each
# target for so long, as many at once as there are cores. Inputs that reach something new are kept in
# build-fuzz/corpus; one that crashes, takes over 10 s, or takes memory over 1 GiB or over 16 times its
# size and 256 MiB of heap ends the run, and its file and the command that repeats it are printed.
# PRESET=fuzz-fast runs them without sanitizers, several times as many inputs a second.
set -euo pipefail
cd "$(dirname "$0")/.."
export seconds=${1:-60}
preset=${PRESET:-fuzz}
export build=build-$preset
shift || true
jobs=${JOBS:-$(nproc)}
cmake --preset "$preset" >/dev/null
declare -A program_of
for pair in http:http policies:memory csv:text rmm:text snapshot:text json:text pickle:text zstd:text settings:text \
    plan:text instance:text c_calls:c npy:tensor safetensors:tensor idx:tensor gzip:tensor dlpack:tensor \
    checkpoint:training; do
  program_of[${pair%%:*}]=fuzz_${pair##*:}
done
[ $# -gt 0 ] || set -- "${!program_of[@]}"
for target in "$@"; do
  [ -n "${program_of[$target]:-}" ] || { echo "$target is no target; there are: ${!program_of[*]}" >&2; exit 2; }
done

run() {  # PROGRAM TARGET
  local corpus=build-fuzz/corpus/$2 log=$build/$2.log begin=$SECONDS found
  # Calls in random order, a byte or two each. LeakSanitizer and counting how often what is reached
  # took four fifths of their time; `make asan` runs their corpus with the former.
  local options=(-max_len=16384)
  case $2 in policies | c_calls) options=(-max_len=512 -detect_leaks=0 -entropic=0) ;; esac
  mkdir -p "$corpus" $build/found
  if TENON_FUZZ_TARGET=$2 "$build/tests/fuzz/$1" -max_total_time="$seconds" -timeout=10 \
      -rss_limit_mb=1024 "${options[@]}" -print_final_stats=1 \
      -artifact_prefix="$build/found/$2-" "$corpus" "tests/fuzz/corpus/$2" >"$log" 2>&1; then
    echo "$2: $(sed -n 's/.*number_of_executed_units: *//p' "$log") inputs in $((SECONDS - begin)) s, nothing found"
  else
    grep -E "ERROR|SUMMARY|runtime error|broken promise|terminate|what\(\)" "$log" | head -5 >&2
    found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    echo "$2: FAILED; again: TENON_FUZZ_TARGET=$2 $build/tests/fuzz/$1 $found" >&2
    return 1
  fi
}
export -f run

programs=$(for target in "$@"; do echo "${program_of[$target]}"; done | sort -u)
cmake --build $build -j "$jobs" --target $programs
for target in "$@"; do echo "${program_of[$target]} $target"; done |
  xargs -P "$jobs" -L1 bash -c 'run "$@" || exit 1' _
