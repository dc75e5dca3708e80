#!/usr/bin/env bash
# scripts/test_viewer.sh BUILD: builds the viewer from its sources, tests it in Chromium against the
# command in BUILD, and prints how fast it opens and draws a million events.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
# Node and npm may come from elsewhere than Debian, whose packages then conflict with them.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  scripts/setup.sh packages-viewer.txt
elif ! command -v chromium >/dev/null; then
  scripts/setup.sh <(echo chromium)
fi
cd viewer
npm ci --no-audit --no-fund --loglevel=error
npx tsc --noEmit
TENON="$build/tenon" npm test
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
node test/make_trace.mjs 1000000 "$folder/million.csv"
"$build/tenon" view "$folder/million.csv" -o "$folder/million.html"
for width in 390 1600; do
  node test/measure.mjs "$folder/million.html" --width "$width"
done
