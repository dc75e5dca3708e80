#!/usr/bin/env bash
# Forecasts of PyTorch programs, with PyTorch from PyPI: see forecast_environment.sh.
#   JOBS  tests at a time (default: one for each core)
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/forecast_environment.sh)
tests=$PWD/tests/forecast
cd /  # so that the installed package is the one that is found
exec "$python" -m pytest -q -n "${JOBS:-$(nproc)}" -p no:cacheprovider --rootdir "$tests" "$tests" "$@"
