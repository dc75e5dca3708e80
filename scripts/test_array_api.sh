#!/usr/bin/env bash
# The array-API standard's own tests against tenon.array_api, in the virtual environment that
# `make test-python` makes too; builds the package where it is not there. Prints how many passed, failed and were skipped; what is known to fail is
# in bindings/python/array_api_xfails.txt, with reasons. Fails for a failure that is not there.
#   PYTHON           the interpreter (default: python3)
#   ARRAY_API_SOURCES  where the repositories array-api-tests and array-api are cloned from, an address
#                      or a folder (default: https://github.com/data-apis)
#   ARRAY_API_TESTS    a checkout of array-api-tests with its submodule, in place of a clone
#   EXAMPLES           examples for each property (default: 20)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
release=2026.02.26
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/python$version
venv=$cache/venv/bin/python
[ -x "$venv" ] || "$python" -m venv "$cache/venv"
if ! (cd / && "$venv" -c 'import tenon.array_api') 2>/dev/null; then
  "$venv" -m pip install --quiet --disable-pip-version-check -r bindings/python/requirements-test.txt
  rm -rf "$cache/wheel"
  "$venv" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$cache/wheel" \
    --config-settings cmake.define.TENON_PYTHON_TENSOR=ON .
  "$venv" -m pip install --quiet --force-reinstall --no-deps "$cache"/wheel/tenon_memory-*.whl
fi

tests=${ARRAY_API_TESTS:-$cache/array-api-tests-$release}
if [ ! -d "$tests" ]; then
  sources=${ARRAY_API_SOURCES:-https://github.com/data-apis}
  rm -rf "$tests.part"
  git -c advice.detachedHead=false clone --quiet --branch "$release" "$sources/array-api-tests" "$tests.part"
  git -C "$tests.part" config submodule.array_api_tests/array-api.url "$sources/array-api"
  git -C "$tests.part" -c protocol.file.allow=always submodule --quiet update --init
  mv "$tests.part" "$tests"
fi
"$venv" -m pip install --quiet --disable-pip-version-check -r "$tests/requirements.txt"

# Tenon has no unsigned integers above 8 bits and no Fourier transforms.
xfails=$PWD/bindings/python/array_api_xfails.txt
cd "$tests"
export ARRAY_API_TESTS_MODULE=tenon.array_api ARRAY_API_TESTS_SKIP_DTYPES=uint16,uint32,uint64
exec "$venv" -m pytest -q -p no:cacheprovider --rootdir . -c pytest.ini -W ignore --tb=short \
  --disable-extension fft --max-examples "${EXAMPLES:-20}" --xfails-file "$xfails" array_api_tests
