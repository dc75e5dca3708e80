#!/usr/bin/env bash
# scripts/test_distributed.sh: builds the distributed part over Open MPI and over MPICH, each in a
# folder of its own, and runs its tests with 1, 2 and 4 ranks. The benchmark's program is built, too.
set -euo pipefail
cd "$(dirname "$0")/.."
for mpi in openmpi mpich; do
  build=build-$mpi
  cmake --preset release -B "$build" -DTENON_MPI=ON -DMPI_CXX_COMPILER="mpicxx.$mpi" \
        > "$build.configure.log" 2>&1 || { cat "$build.configure.log"; exit 1; }
  rm -f "$build.configure.log"
  cmake --build "$build" -j "${JOBS:-$(nproc)}" \
        --target tenon_distributed_tests tenon_ranks_tests bench_link
  ctest --test-dir "$build" -L distributed --output-on-failure
done
