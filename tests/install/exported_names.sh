#!/usr/bin/env bash
# exported_names.sh LIBRARY PATTERN: every name that the library shows the dynamic linker matches the
# pattern (an extended regular expression, over demangled names), and there is one at least.
set -euo pipefail
names=$(nm -D --defined-only -C "$1" | cut -d' ' -f3- | sort -u)
[ -n "$names" ] || { echo "$1 exports nothing"; exit 1; }
strange=$(grep -vE "$2" <<<"$names" || true)
[ -z "$strange" ] || { echo "$1 exports names that are not its own:"; head -20 <<<"$strange"; exit 1; }
echo "$(wc -l <<<"$names") names"
