#!/usr/bin/env bash
# tenon_torch held against PyTorch itself, on a machine without a GPU: scripts/test_pytorch.sh [BUILD_DIR]
#
# PyPI's CUDA builds of the oldest and the newest PyTorch that are supported, each in a virtual
# environment outside of the tree (some 1.5 GB to fetch, 4 GB on disk, kept for the next time). NVIDIA's libraries
# but the CUDA runtime are stubs (tests/pytorch/stub_libraries.py). Snapshots are made over the stand-in driver
# and opened in PyTorch's own viewers. The Python of the pages for PyTorch's users is run. A C++ program uses
# libtorch and Tenon's tensors together. PyTorch's own allocator and replays are compared
# (tests/pytorch/allocator/compare.py).
#   PYTHON          the interpreter (default: python3)
#   TORCH_VERSIONS  instead of "2.6.0" and the newest on PyPI
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon
library=$build/bindings/torch/tenon_torch/libtenon_torch.so
tests=$PWD/tests/pytorch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/include" && ln -sfn /usr/include/fmt "$work/include/fmt"  # see one_program
passed=0 failed=0 skipped=0
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
mkdir -p "$cache"

# step NAME COMMAND...: 77 is skipped.
step() {
  local name=$1 rc
  shift
  "$@" >"$work/log" 2>&1
  rc=$?
  if [ $rc -eq 77 ]; then
    skip "$name" "$(tail -n 1 "$work/log")"
  elif [ $rc -eq 0 ]; then
    passed=$((passed + 1))
    echo "passed   $name"
    sed -n 's/^note: /         | /p' "$work/log"
  else
    failed=$((failed + 1))
    echo "FAILED   $name (exit $rc)"
    tail -n 20 "$work/log" | sed 's/^/         | /'
  fi
}

skip() {
  skipped=$((skipped + 1))
  echo "skipped  $1: $2"
}

newest_torch() {
  "$python" -m pip index versions torch 2>/dev/null | sed -n 's/^torch (\(.*\))$/\1/p'
}

# PyTorch's MemoryViz.js: no wheel ships it, Debian's sources of PyTorch do. $viewer, or nothing.
find_viewer() {
  local folder=$cache/memory_viz archive
  viewer=$folder/MemoryViz.js
  mkdir -p "$folder"
  if [ ! -f "$viewer" ]; then
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    echo 'deb-src http://deb.debian.org/debian trixie main' >"$work/apt/sources.list"
    cat >"$work/apt/apt.conf" <<APT
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$work/apt/lists";
Dir::Cache "$work/apt/cache";
APT
    (cd "$work" && export APT_CONFIG=$work/apt/apt.conf &&
      apt-get -qq update && apt-get -qq source --download-only pytorch) >"$work/apt.log" 2>&1
    archive=$(ls "$work"/pytorch_*.orig.tar.* 2>/dev/null | head -n 1)
    [ -n "$archive" ] && tar -xf "$archive" -C "$work" --wildcards '*/torch/utils/viz/MemoryViz.js' &&
      cp "$work"/*/torch/utils/viz/MemoryViz.js "$viewer"
  fi
  [ -f "$viewer" ] || { viewer='' && return; }
  [ -d "$folder/node_modules/jsdom" ] ||
    (cd "$folder" && npm install --silent --no-audit --no-fund d3@5.16.0 jsdom@24.1.3 esbuild@0.21.5)
}

# Pages that move, streams, private pools: one snapshot for each policy.
make_snapshots() {
  TENON_CUDA_DRIVER=$build/tests/libtenon_cuda_stand_in.so PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=$PWD/tests/torch/fake:$build/bindings/torch TENON_KEEP_SNAPSHOT=$work/ \
    "$python" tests/torch/check_module.py traces_add_up "$library"
}

# one_program VENV: libtorch and Tenon's shared libraries in one program, linked in either order. PyTorch's
# headers bring another fmt: the one that Tenon was built with comes first.
one_program() {
  local torch order
  torch=$("$1" -c 'import os, sys; sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)
import torch; print(torch.__path__[0] if torch.compiled_with_cxx11_abi() else "")') || return 1
  [ -n "$torch" ] || { echo "it was built for the C++ library's strings of before C++11" && return 77; }
  c++ -std=c++20 -c tests/pytorch/one_program.cc -o "$work/one_program.o" -Isrc \
    -isystem "$work/include" -isystem "$torch/include" || return 1
  for order in "-ltorch_cpu -lc10 -ltenon_tensor -ltenon_memory" "-ltenon_tensor -ltenon_memory -ltorch_cpu -lc10"; do
    c++ -o "$work/one_program" "$work/one_program.o" -L"$torch/lib" -L"$build" -Wl,--no-as-needed $order -lfmt \
      -Wl,--allow-shlib-undefined "-Wl,-rpath,$torch/lib:$build" && "$work/one_program" || return 1
  done
}

# bench_peers VENV: the benchmarks' sides of PyTorch, which no other target compiles.
bench_peers() {
  local torch source
  torch=$("$1" -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])')
  for source in bench/*/peer_torch.cc; do
    c++ -std=c++20 -fsyntax-only -Isrc -isystem "$work/include" -isystem "$torch/include" \
      -isystem "$torch/include/torch/csrc/api/include" "$source" || return 1
  done
}

for needed in "$library" "$build/tests/libtenon_cuda_stand_in.so" "$build/tenon"; do
  [ -f "$needed" ] || { echo "there is no $needed: make build"; exit 1; }
done
step 'snapshots over the stand-in driver' make_snapshots
snapshots=("$work"/*.pickle)

for version in ${TORCH_VERSIONS:-2.6.0 $(newest_torch)}; do
  if ! venv=$(scripts/pytorch_environment.sh "$version"); then
    failed=$((failed + 1))
    echo "FAILED   PyTorch $version: it could not be installed"
    continue
  fi
  export PYTHONPATH=$build/bindings/torch PYTHONDONTWRITEBYTECODE=1
  export TENON_CUDA_DRIVER=$build/tests/libtenon_cuda_stand_in.so
  step "PyTorch $version: one program with Tenon" one_program "$venv"
  step "PyTorch $version: the peers of benchmarks" bench_peers "$venv"
  cases=$("$venv" "$tests/check_real.py" --list 2>"$work/log") || cases=
  [ -n "$cases" ] || step "PyTorch $version: import" cat "$work/log" /dev/null/PyTorch
  for case in $cases; do
    step "PyTorch $version: $case" \
      "$venv" "$tests/check_real.py" "$case" "$library" "${snapshots[@]}"
  done
  for page in README.md docs/quickstart.md docs/explain.md docs/pytorch.md; do
    step "PyTorch $version: $page" "$venv" "$tests/check_pages.py" "$page" "$build/tenon"
  done
  unset PYTHONPATH
  step "PyTorch $version: its own allocator" "$venv" "$tests/allocator/compare.py" "$build/tenon"
done

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  skip 'MemoryViz.js' 'there is no Node'
elif find_viewer; [ -z "$viewer" ]; then
  skip 'MemoryViz.js' "Debian's sources of PyTorch could not be fetched"
else
  for snapshot in "${snapshots[@]}"; do
    step "MemoryViz.js: $(basename "$snapshot")" \
      node "$tests/open_in_viewer.mjs" "$viewer" "$cache/memory_viz" "$snapshot"
  done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
