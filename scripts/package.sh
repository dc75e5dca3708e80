#!/usr/bin/env bash
# The Debian packages, in build-package/packages; lintian must find no error in them.
# Arguments are handed on to CMake.
#   JOBS  compile jobs at once (default: one for each core)
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-package
python=/usr/bin/python3  # Debian's, for python3-tenon
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/package

[ -x "$cache/bin/python" ] || "$python" -m venv "$cache"
"$cache/bin/python" -m pip install --quiet --disable-pip-version-check 'nanobind>=2.4,<3'
nanobind=$("$cache/bin/python" -m nanobind --cmake_dir)

cmake -G Ninja -S . -B $build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
  "-DTENON_COMPONENTS=memory;lab;tensor;command;preload;c;python" -DTENON_BUILD_TESTS=OFF -DTENON_BUILD_BENCH=OFF \
  -DPython_EXECUTABLE="$python" -Dnanobind_ROOT="$nanobind" "$@" >$build.log 2>&1 || { cat $build.log; exit 1; }
cmake --build $build -j "${JOBS:-$(nproc)}" >$build.log 2>&1 || { tail -50 $build.log; exit 1; }
rm -rf $build/packages
(cd $build && cpack --config CPackConfig.cmake) >$build.log 2>&1 || { cat $build.log; exit 1; }
rm $build.log

for package in "$build"/packages/*.deb; do
  echo "$(basename "$package"): $(stat -c %s "$package") bytes; needs $(dpkg-deb -f "$package" Depends)"
done
lintian --fail-on error "$build"/packages/*.deb
