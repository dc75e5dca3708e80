#!/usr/bin/env bash
# scripts/view_picture.sh [BUILD]: draws docs/view.png and docs/view-dark.png, a shipped snapshot in the
# viewer, with the command in BUILD and Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
if ! { command -v node && command -v npm && command -v chromium; } >/dev/null; then
  scripts/setup.sh packages-viewer.txt
fi
[ -d viewer/node_modules ] || (cd viewer && npm ci --no-audit --no-fund --loglevel=error)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/tenon" view data/snapshots/gpt2.pickle -o "$folder/gpt2.html" >"$folder/log"
node viewer/test/picture.mjs "$folder/gpt2.html" docs/view.png light
node viewer/test/picture.mjs "$folder/gpt2.html" docs/view-dark.png dark
scripts/picture_stamp.py "$folder/gpt2.html" docs/view.png docs/view-dark.png
