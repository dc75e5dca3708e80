#!/usr/bin/env bash
# A wheel of the Python package for one interpreter, in dist/.
#   PYTHON  the interpreter (default: python3); from 3.12 on one wheel serves all later ones
#   TENSOR  ON: with tenon.Tensor, which needs OpenBLAS, oneDNN and Highway where it is installed
set -euo pipefail
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist \
  --config-settings "cmake.define.TENON_PYTHON_TENSOR=${TENSOR:-OFF}" .
ls -l dist/tenon_memory-*.whl
