#!/usr/bin/env bash
# tests/install/test_install.sh BUILD [--from-source]: installs BUILD into a temporary folder, moves
# the folder, and builds other projects against it: by find_package (static and shared) and by
# pkg-config (shared and static). With --from-source also a project that builds tenon::memory itself,
# by add_subdirectory, which takes a minute or two. docs/embed.md, which pages.sh runs, has FetchContent.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "-- $*"; }
run() { "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; exit 1; }; }
# records PROGRAM: TENON_RECORD works, though the program names nothing of tenon::lab.
records() {
  rm -f "$work/run.csv"
  run env TENON_RECORD="$work/run.csv" "$1"
  grep -q ,alloc, "$work/run.csv" || { echo "$1: TENON_RECORD is without effect"; exit 1; }
}
trace=$source/data/traces/gnn_sampled.csv.zst
cxx=${CXX:-c++}

step "install"
run cmake --install "$build" --prefix "$work/there"
mv "$work/there" "$work/tree"
tree=$work/tree
libraries=$(dirname "$(find "$tree" -name libtenon_memory.a)")
export LD_LIBRARY_PATH=$libraries

parts=()
for part in memory lab tensor; do [ -f "$libraries/libtenon_$part.a" ] && parts+=("$part"); done

step "the command, with and without its training part"
run "$tree/bin/tenon" explain "$trace"
if [ -d "$tree/libexec/tenon" ]; then
  run "$tree/bin/tenon" train --help
  rm -r "$tree/libexec/tenon"
fi
if "$tree/bin/tenon" train --help >"$work/log" 2>&1; then echo "train without its program"; exit 1; fi
grep -q 'tenon: "train" needs the program tenon-training' "$work/log" || { cat "$work/log"; exit 1; }

step "find_package: ${parts[*]}"
run cmake -G Ninja -S "$source/tests/install/find_package" -B "$work/find" \
  -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="$cxx" \
  -DPARTS="$(IFS=';'; echo "${parts[*]}")"
run cmake --build "$work/find"
for part in "${parts[@]}"; do
  for kind in "" _shared; do run "$work/find/$part$kind" "$trace"; done
done
for kind in "" _shared; do records "$work/find/records$kind"; done
if cmake -S "$source/tests/install/missing_component" -B "$work/missing" \
  -DCMAKE_PREFIX_PATH="$tree" >"$work/log" 2>&1; then echo "a component that is not there"; exit 1; fi
grep -q "the component cobwebs is not installed" "$work/log" || { cat "$work/log"; exit 1; }

step "pkg-config"
export PKG_CONFIG_PATH=$libraries/pkgconfig
for part in "${parts[@]}"; do
  # shellcheck disable=SC2046
  run "$cxx" -std=c++20 "$source/tests/install/$part.cc" -o "$work/$part" \
    $(pkg-config --cflags --libs "tenon-$part")
  run "$work/$part" "$trace"
done
names_nothing() {  # names_nothing NAME [--static]
  # shellcheck disable=SC2046
  run "$cxx" -std=c++20 -Wl,--as-needed "$source/tests/install/memory.cc" -o "$work/$1" \
    $(pkg-config "${@:2}" --cflags --libs tenon-lab)
  records "$work/$1"
}
names_nothing records
rm "$libraries"/libtenon_memory.so "$libraries"/libtenon_lab.so  # what a static link must not take
# shellcheck disable=SC2046
run "$cxx" -std=c++20 "$source/tests/install/lab.cc" -o "$work/lab_static" \
  $(pkg-config --static --cflags --libs tenon-lab)
run "$work/lab_static" "$trace"
if ldd "$work/lab_static" | grep -q tenon; then echo "not static"; exit 1; fi
names_nothing records_static --static

[ "${2:-}" = --from-source ] || exit 0
step "add_subdirectory"
# Whether it builds is asked, not how well it runs.
run cmake -G Ninja -S "$source/tests/install/add_subdirectory" -B "$work/inside" \
  -DTENON_SOURCE="$source" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS_RELEASE=-O0
run cmake --build "$work/inside"
run "$work/inside/embedded"
if grep -qE 'openblas|dnnl|zstd|GTest' "$work/inside/CMakeCache.txt"; then
  echo "it looked for what tenon::memory does not need"; exit 1
fi
