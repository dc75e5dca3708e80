#!/usr/bin/env bash
# The Python package, tried as its users get it: a wheel, built and installed into a virtual
# environment outside the tree, then its tests, its types and its page's own commands. First without
# tensors, which needs nothing but the C and C++ runtimes; then, where OpenBLAS, oneDNN and Highway
# are here, with them.
#   PYTHON        the interpreter (default: python3)
#   JOBS          tests at a time (default: one for each core)
#   TENON_COMMAND the C++ program to compare answers with (default: build/tenon, if it is there)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/python$version

[ -x "$cache/venv/bin/python" ] || "$python" -m venv "$cache/venv"
venv=$cache/venv/bin/python
"$venv" -m pip install --quiet --disable-pip-version-check -r bindings/python/requirements-test.txt

# wheel ON|OFF: builds and installs one, with or without tensors.
wheel() {
  rm -rf "$cache/wheel"
  "$venv" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$cache/wheel" \
    --config-settings "cmake.define.TENON_PYTHON_TENSOR=$1" .
  wheel=$(echo "$cache"/wheel/tenon_memory-*.whl)
  "$venv" -m pip install --quiet --force-reinstall --no-deps "$wheel"
  bytes=$(stat -c %s "$wheel")
}

wheel OFF
echo "$(basename "$wheel"), without tensors: $bytes bytes (at most 4 MB)"
[ "$bytes" -le 4000000 ]

# Nothing but the C and C++ runtimes.
module=$("$venv" -c 'import tenon._core as core; print(core.__file__)')
case $wheel in  # what its name promises to later versions
  *-abi3-*) [[ $module == *.abi3.so ]] || { echo "$wheel holds $module, which is for one version"; exit 1; } ;;
esac
needed=$(readelf -d "$module" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
for library in $needed; do
  case $library in
    libstdc++.so.*|libgcc_s.so.*|libc.so.*|libm.so.*|ld-linux*) ;;
    *) echo "the module needs $library"; exit 1 ;;
  esac
done

if [ -z "${TENON_COMMAND:-}" ] && [ -x build/tenon ]; then TENON_COMMAND=$PWD/build/tenon; fi
if [ -n "${TENON_COMMAND:-}" ]; then export TENON_COMMAND; fi
tests=$PWD/bindings/python/tests
# run_tests [ARGUMENTS...]: with the installed package, so not from the tree.
run_tests() {
  (cd "$cache" && "$venv" -m pytest -q -n "${JOBS:-$(nproc)}" -p no:cacheprovider --rootdir "$OLDPWD" \
    -c "$OLDPWD/pyproject.toml" "$@")
}
run_tests "$tests/test_without_tensors.py"

if pkg-config --exists libhwy openblas && [ -e /usr/include/oneapi/dnnl/dnnl.hpp ]; then
  wheel ON
  echo "$(basename "$wheel"), with tensors: $bytes bytes"
else
  echo "tenon.Tensor is not tried: OpenBLAS, oneDNN or Highway is not here"
fi
run_tests "$tests" "$@"
(cd "$cache" && "$venv" -m mypy --strict --python-executable "$venv" -p tenon)
