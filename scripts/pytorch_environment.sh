#!/usr/bin/env bash
# scripts/pytorch_environment.sh [VERSION]: a virtual environment with PyTorch from PyPI (default: the newest
# version there); prints its interpreter. It lies outside of the tree, in ~/.cache/tenon/pytorch-VERSION, and is
# kept (some 1 GB to fetch the first time). On x86-64 PyPI has the CUDA build only: of NVIDIA's libraries only
# the CUDA runtime is fetched, the others are stubs. The CPU part of that build is that of the CPU build.
#   PYTHON  the interpreter that makes it (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# Without a network, the newest that is here.
newest() {
  "$python" -m pip index versions torch 2>/dev/null | sed -n 's/^torch (\(.*\))$/\1/p' | grep . ||
    for complete in "$cache"/pytorch-*/complete; do
      [ -f "$complete" ] && basename "$(dirname "$complete")"
    done | sed 's/^pytorch-//' | sort -V | tail -n 1
}

version=${1:-$(newest)}
[ -n "$version" ] || { echo "PyPI names no version of torch, and none is in $cache" >&2; exit 1; }
folder=$cache/pytorch-$version
venv=$folder/bin/python
if [ ! -f "$folder/complete" ]; then
  echo "PyTorch $version goes into $folder" >&2
  rm -rf "$folder"
  "$python" -m venv "$folder"
  "$venv" -m pip install --quiet typing_extensions filelock sympy networkx jinja2 fsspec >&2
  "$venv" -m pip install --quiet --no-deps "torch==$version" >&2
  runtime=$("$venv" - <<'PY'
import importlib.metadata, re
for line in importlib.metadata.requires("torch"):
    if found := re.match(r"(nvidia-cuda-runtime\S*) ?\(?(==[\d.]+)", line):
        print(found[1] + found[2])
        break
    if found := re.match(r"cuda-toolkit\[.*\]==(\d+\.\d+)", line):
        print(f"nvidia-cuda-runtime=={found[1]}.*")
        break
PY
)
  if [ -n "$runtime" ]; then  # a build for CUDA
    "$venv" -m pip install --quiet --no-deps "$runtime" >&2
    "$venv" tests/pytorch/stub_libraries.py \
      "$("$venv" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')" >&2
  fi
  touch "$folder/complete"
fi
echo "$venv"
