#!/usr/bin/env bash
# The Python package's figures, in the virtual environment that `make test-python` made.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/python$version/venv/bin/python
[ -x "$venv" ] || { echo "make bench-python: run make test-python first"; exit 1; }
here=$PWD
cd /  # so that the installed package is the one that is found
exec "$venv" "$here/bindings/python/bench/bench.py" "$here/data/traces/gpt2.csv.zst"
