#!/usr/bin/env bash
# tests/aarch64/run.sh BUILD JOBS [TEST...]: cross-compiles into BUILD and runs the tests under
# qemu-user: all, or those of the layers named (base heap device memory).
set -euo pipefail
build=$1 jobs=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
layers=("${@:-base heap device memory}")
cmake -G Ninja -S "$here" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" >"$build.log" ||
  { cat "$build.log"; exit 1; }
rm -f "$build.log"
for layer in ${layers[*]}; do
  cmake --build "$build" -j "$jobs" --target "${layer}_tests"
  echo "-- $layer, under $(qemu-aarch64 --version | head -1)"
  qemu-aarch64 -L /usr/aarch64-linux-gnu "$build/${layer}_tests" --gtest_brief=1
done
