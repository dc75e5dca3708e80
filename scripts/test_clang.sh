#!/usr/bin/env bash
# All of Tenon by clang, without a warning, and its tests; then tenon::memory and tenon::lab with
# their tests over LLVM's C++ library.
#   JOBS  at once (default: one for each core)
set -euo pipefail
cd "$(dirname "$0")/.."
export CC=clang CXX=clang++
jobs=${JOBS:-$(nproc)}

# checked FOLDER CMAKE-ARGUMENTS...: configures, builds and tests a folder.
checked() {
  local build=$1
  shift
  cmake -G Ninja -B "$build" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON "$@" >"$build.log" 2>&1 ||
    { cat "$build.log"; exit 1; }
  cmake --build "$build" -j "$jobs" >"$build.log" 2>&1 || { tail -50 "$build.log"; exit 1; }
  rm "$build.log"
  ctest --test-dir "$build" -j "$jobs" --output-on-failure
}

# Each source by itself: it includes what it needs.
checked build-clang -S . -DTENON_UNITY=OFF -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG"
checked build-libcxx -S tests/apart -DTENON_PART=lab -DCMAKE_CXX_FLAGS=-stdlib=libc++
ldd build-libcxx/tenon_lab_tests | grep -q 'libc++\.so'
! ldd build-libcxx/tenon_lab_tests | grep 'libstdc++'
