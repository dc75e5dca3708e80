#!/usr/bin/env bash
# inline_functions.sh COMPILER SOURCES LIBRARY FOLDER LIBRARIES...: whatever a public header of
# tenon::memory calls inline, LIBRARY exports. Compiles every inline function of these headers, the
# implicit ones of their classes, and templates that call into the library, and links them with
# LIBRARY and LIBRARIES. Needs GCC.
set -euo pipefail
compiler=$1 sources=$2 library=$3 folder=$4
shift 4
mkdir -p "$folder"
mapfile -t headers < <(grep -E "^(base|device|heap|memory)/" "$sources/../docs/public_headers.txt" |
                       sed 's|^|tenon/|')
{
  printf '#include "%s"\n' "${headers[@]}"
  cat <<'END'
#include <type_traits>
#include <utility>

using namespace tenon;

template <typename T>
void use(T& object, void* place) {
  if constexpr (std::is_move_constructible_v<T>) new (place) T(std::move(object));
  if constexpr (std::is_copy_constructible_v<T>) new (place) T(object);
  if constexpr (std::is_move_assignable_v<T>) object = std::move(object);
  if constexpr (std::is_destructible_v<T>) object.~T();
}

void refuse(int value) {
  raise<InvalidArgument>("{} is bad", value);
  raise<InvalidPointer>("{} is bad", value);
  raise<DeviceError>("{} is bad", value);
  TENON_CHECK(value == 1, "{} is bad", value);
}
END
  for header in "${headers[@]}"; do
    awk '/^namespace / { ours = $2 == "tenon" }
         ours && /^(class|struct) [^;]*$/ && before !~ /^template/ {
           sub(/\[\[[^]]*\]\] |alignas\([^)]*\) /, "")
           if ($2 ~ /^[A-Za-z]+$/) print "template void use(" $2 "&, void*);" }
         { before = $0 }' "$sources/$header"
  done
} >"$folder/inline_functions.cc"
"$compiler" -std=c++20 -O0 -DNDEBUG -fPIC -fkeep-inline-functions -I"$sources" -shared \
  -o "$folder/inline_functions.so" "$folder/inline_functions.cc" "$library" "$@" -Wl,--no-undefined
echo "every inline function links"
