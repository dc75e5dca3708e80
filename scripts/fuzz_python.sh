#!/usr/bin/env bash
# Random calls of tenon's tensors in the virtual environment that `make test-python` made.
#   fuzz_python.sh [SECONDS] [SEED]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$("${PYTHON:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/python$version
[ -x "$cache/venv/bin/python" ] || { echo "make fuzz-python: run make test-python first"; exit 1; }
cd "$cache"  # so that the installed package is the one that is found
exec venv/bin/python "$here/fuzz_python.py" "$@"
