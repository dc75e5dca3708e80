#!/usr/bin/env bash
# Forecasts beside what an H200 recorded: see forecast_environment.sh and bench/forecast/bench.py.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/forecast_environment.sh)
here=$PWD
cd /
exec "$python" "$here/bench/forecast/bench.py" "$@"
