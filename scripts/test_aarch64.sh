#!/usr/bin/env bash
# tenon::memory for 64-bit ARM: compiled by Debian's cross compiler, its tests run under qemu.
#   JOBS  at once (default: one for each core)
# Arguments are handed on to CMake.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-aarch64
cmake -G Ninja -S tests/apart -B $build -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" "$@" \
  >$build.log 2>&1 || { cat $build.log; exit 1; }
cmake --build $build -j "${JOBS:-$(nproc)}" >$build.log 2>&1 || { tail -50 $build.log; exit 1; }
rm $build.log
file -L $build/tenon_memory_tests | grep -q aarch64
ctest --test-dir $build -j "${JOBS:-$(nproc)}" --output-on-failure
