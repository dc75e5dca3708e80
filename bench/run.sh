#!/usr/bin/env bash
# Prints the figures of the README: bench/run.sh [BUILD_DIR]. Fails when a program does, after
# all have run.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
status=0

title() { printf '\n== %s\n\n' "$1"; }

title "shipped traces over every policy"
"$build/tenon" replay data/traces/*.csv.zst --policy all --find-capacity || status=1

# One program a line: its name, and what it shows.
while IFS='|' read -r program what; do
  [ -n "$program" ] || continue
  if [ ! -x "$build/bench/$program" ]; then
    echo "$build/bench/$program is not built" >&2
    status=1
    continue
  fi
  title "$what"
  # Room for the thread-local data of libraries that are loaded later (jemalloc).
  GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 "$build/bench/$program" || status=1
done <<'PROGRAMS'
bench_peers|the policies named after PyTorch beside PyTorch
bench_targets|every policy: time, memory, the same layout in every run
bench_host_peers|the host allocator beside glibc, mimalloc, jemalloc, tcmalloc and oneTBB
bench_host_pairs|pairs of calls on the host: one size, two in turn, nested, as recorded
bench_two_threads|two threads on two streams beside one
bench_pool_seed|a memory pool beside its driver and a cached allocator
bench_planning|static plans and advice: hard problems, shipped traces, time
bench_verdict|categories of memory: programs whose categories are known
bench_robson|the worst case: Robson's adversary against every policy
bench_import|reading recordings: speed and memory
bench_large_files|huge recordings and many ranks: time and memory of each subcommand
bench_recorder|what leaving a recorder on costs
bench_metadata|tensors: what making, viewing and copying a handle costs
bench_operators|operators on one thread and two, beside libtorch where it is installed, OpenBLAS and oneDNN
bench_gradients|chains of additions and small steps, forward and backward, beside libtorch
bench_training|training steps, peak memory and losses, beside libtorch where it is installed
PROGRAMS

title "tenon explain beside Mosaic and memory_viz, where they are installed"
python3 bench/lab_peers/compare.py "$build/tenon" || status=1

title "Fashion-MNIST: the cnn, five epochs (wanted: 91 % of the test images)"
"$build/tenon" train fashion-mnist --model cnn --epochs 5 || status=1

title "two runs with one seed: losses, weights and memory layout"
for run in 1 2; do
  "$build/tenon" train fashion-mnist --model mlp --epochs 1 --json |
    grep -E 'final_loss|_hash' | tr -d '\n' || status=1
  echo
done
exit $status
