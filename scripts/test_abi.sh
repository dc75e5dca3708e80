#!/usr/bin/env bash
# scripts/test_abi.sh [--record] [BUILD]: the interfaces of the shared libraries against the ones
# that abi/ records. abi/libtenon_c.abi has the functions and types of tenon/tenon.h, as abidw writes
# them; abi/*.names the functions that the libraries for PyTorch and for LD_PRELOAD export. A change
# or removal fails; what is new passes. --record writes abi/ anew.
set -euo pipefail
cd "$(dirname "$0")/.."
record=
if [ "${1:-}" = --record ]; then record=yes && shift; fi
build=${1:-build}
made=$build/abi
mkdir -p "$made"

# The sources of libtenon_c once more, with the debug information that says what types are.
python3 - "$build" "$made" <<'END'
import json, os, shlex, subprocess, sys
build, made = sys.argv[1:]
objects = []
for entry in json.load(open(f"{build}/compile_commands.json")):
    if "/bindings/c/" not in entry["file"] or "tenon_c_objects" not in entry["command"]:
        continue
    words = shlex.split(entry["command"])
    objects.append(f"{made}/{len(objects)}.o")
    words[words.index("-o") + 1] = os.path.abspath(objects[-1])
    subprocess.run(words + ["-g", "-O0"], cwd=entry["directory"], check=True)
if not objects:
    sys.exit(f"test_abi: {build} has no libtenon_c: configure it with the component c")
END
soname=$(readelf -d "$build"/bindings/c/libtenon_c.so | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
g++ -shared -o "$made/libtenon_c.so" -Wl,-soname,"$soname" \
  -Wl,--version-script=bindings/c/exported_names.map "$made"/*.o
abidw --exported-interfaces-only --headers-dir bindings/c/include --drop-private-types \
  --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --type-id-style hash \
  "$made/libtenon_c.so" | sed "s|$PWD/||" >"$made/libtenon_c.abi"

# names LIBRARY: what it shows the dynamic linker.
names() { nm -D --defined-only "$1" | cut -d' ' -f3- | sort -u; }
names "$build/libtenon_preload.so" >"$made/libtenon_preload.names"
names "$build/bindings/torch/tenon_torch/libtenon_torch.so" >"$made/libtenon_torch.names"

if [ -n "$record" ]; then
  mkdir -p abi
  cp "$made"/libtenon_c.abi "$made"/*.names abi/
  echo "recorded in abi/: $soname"
  exit 0
fi

status=0
recorded=$(sed -n "s/.*soname='\([^']*\)'.*/\1/p" abi/libtenon_c.abi | head -1)
if [ "$recorded" != "$soname" ]; then
  echo "libtenon_c: the soname is $soname, abi/ has $recorded: record it, by scripts/test_abi.sh --record"
  status=1
elif ! abidiff --no-added-syms --headers-dir1 bindings/c/include --headers-dir2 bindings/c/include \
    abi/libtenon_c.abi "$made/libtenon_c.abi"; then
  echo "libtenon_c: $soname breaks programs that were built before. Keep the functions above as they were;
or raise TENON_C_ABI (bindings/c/include/tenon/tenon.h) and the version (src/tenon/base/version.h), which
changes the soname. A structure with struct_bytes may grow at its end. Then scripts/test_abi.sh --record."
  status=1
fi
for list in abi/*.names; do
  gone=$(comm -23 "$list" "$made/$(basename "$list")")
  [ -z "$gone" ] && continue
  echo "$(basename "$list" .names).so no longer exports:" $gone
  echo "Export them again; or raise the version and record that: scripts/test_abi.sh --record."
  status=1
done
[ $status -eq 0 ] && echo "$soname and the exported functions are as recorded"
exit $status
