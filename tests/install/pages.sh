#!/usr/bin/env bash
# pages.sh BUILD PAGE...: does what a page says, in an empty folder and against an installed Tenon, whose
# sources are at $TENON. Code blocks that begin with "// file: NAME" or "# file: NAME", or follow
# <!-- file: NAME -->, become files. Blocks marked sh are run in their order.
set -euo pipefail
build=$(cd "$1" && pwd)
TENON=$(cd "$(dirname "$0")/../.." && pwd)
export TENON
shift
pages=()
for page in "$@"; do pages+=("$(realpath "$page")"); done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/tree" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
libraries=$(dirname "$(find "$work/tree" -name libtenon_memory.a)")
export LD_LIBRARY_PATH=$libraries PKG_CONFIG_PATH=$libraries/pkgconfig PATH=$work/tree/bin:$PATH
export CMAKE_PREFIX_PATH=$work/tree
for page in "${pages[@]}"; do
  mkdir "$work/folder"
  cd "$work/folder"
  awk '
    function open_file(name) { out = name; sub(/[^\/]*$/, "", name); if (name != "") system("mkdir -p " name) }
    /^<!-- file: / && !inside { named = $3; next }
    /^```/ && !inside { inside = 1; kind = substr($0, 4); out = kind == "sh" ? "commands.sh" : ""
                        if (named != "" && kind != "") { open_file(named); named = "" }
                        next }
    /^```/            { inside = 0; next }
    inside && out == "" && /^(\/\/|#) file: / { open_file($3); next }
    inside && out != "" { print > out }' "$page"
  [ -s commands.sh ] || { echo "$page has no commands"; exit 1; }
  echo "-- $page: $(ls | tr '\n' ' ')"
  bash -euo pipefail -x commands.sh >"$work/log" 2>&1 || { cat "$work/log"; echo "$page failed"; exit 1; }
  cd "$work"
  rm -r "$work/folder"
done
