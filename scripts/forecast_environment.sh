#!/usr/bin/env bash
# A virtual environment with PyTorch, the libraries of data/traces/programs.py and this package:
# scripts/forecast_environment.sh prints its interpreter. It lies outside of the tree and is kept.
#
# PyTorch's CUDA build from PyPI; of NVIDIA's libraries the CUDA runtime and CUPTI, and cuDNN with
# cuBLAS, which forecasts ask for workspaces. The others are stubs.
#   PYTHON         the interpreter (default: python3)
#   TORCH_VERSION  2.11.0 (default), or another one, then without the programs' libraries
set -euo pipefail
cd "$(dirname "$0")/.."
version=${TORCH_VERSION:-2.11.0}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/forecast-$version
python=$folder/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

if [ ! -f "$folder/complete" ]; then
  echo "PyTorch $version goes into $folder" >&2
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder"
  "$python" -m pip install --quiet typing_extensions filelock sympy networkx jinja2 fsspec numpy pytest \
    pillow psutil >&2
  "$python" -m pip install --quiet --no-deps "torch==$version" >&2
  "$python" - <<'PY' | xargs "$python" -m pip install --quiet --no-deps >&2
import importlib.metadata, re
for line in importlib.metadata.requires("torch"):
    if found := re.match(r"(nvidia-cuda-(?:runtime|cupti)\S*) ?\(?(==[\d.]+)", line):
        print(found[1] + found[2])
    if found := re.match(r"cuda-toolkit\[.*\]==(\d+\.\d+)", line):
        print(f"nvidia-cuda-runtime=={found[1]}.* nvidia-cuda-cupti=={found[1]}.*")
PY
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$python" tests/pytorch/stub_libraries.py "$site" >&2
  echo 'import sys, os; sys.setdlopenflags(os.RTLD_LAZY)' >"$site/lazy_binding.pth"  # for the stubs
  if [ "$version" = 2.11.0 ]; then
    "$python" -m pip install --quiet --no-deps torchvision==0.26.0 transformers==5.17.0 \
      torch_geometric==2.8.0.post1 >&2
    "$python" -m pip install --quiet 'huggingface_hub<2' regex pyyaml requests tokenizers safetensors tqdm \
      packaging aiohttp xxhash pyparsing httpx typer >&2
  fi
  touch "$folder/complete"
fi
if [ -z "$("$python" -m pip list 2>/dev/null | grep -i '^nvidia-cudnn')" ]; then
  "$python" - <<'PY' | xargs "$python" -m pip install --quiet >&2
import importlib.metadata, re
for line in importlib.metadata.requires("torch"):
    if found := re.match(r"(nvidia-cu(?:dnn|blas)-cu\d+) ?\(?(==[\d.]+)", line):
        print(found[1] + found[2])
    if found := re.match(r"cuda-toolkit\[.*\]==([\d.]+)", line):
        print(f"cuda-toolkit[cublas]=={found[1]}")
PY
fi
"$python" -c 'import xdist' 2>/dev/null || "$python" -m pip install --quiet pytest-xdist >&2
rm -rf "$folder/wheel"
"${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$folder/wheel" \
  --config-settings cmake.define.TENON_PYTHON_TENSOR=OFF . >&2
"$python" -m pip install --quiet --force-reinstall --no-deps "$folder"/wheel/tenon_memory-*.whl >&2
echo "$python"
