#!/usr/bin/env bash
# Packs what `make check-cuda` and `make bench-cuda` run, for a machine with a GPU but without
# compilers: scripts/cuda_bundle.sh [BUILD_DIR [OUT.tar.xz]]. The programs' libraries come along, but
# for the system's own (libc and its kin, libstdc++, libgcc_s): there, glibc 2.36 and GCC 12's
# runtime or later are needed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
out=${2:-$build/tenon_cuda.tar.xz}
programs=(tenon tests/tenon_device_tests bench/bench_cuda_stress bench/bench_cuda_hot_pair
  bench/bench_cuda_driver_costs)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/tenon_cuda
mkdir -p "$top/build/"{tests,bench,lib,bindings/torch} "$top/data" "$top/bench"
libraries_of() {
  ldd "$1" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))[-.]' || true
}
for program in "${programs[@]}"; do
  cp "$build/$program" "$top/build/$program"
  libraries_of "$build/$program" | while read -r library; do cp -nL "$library" "$top/build/lib/"; done
done
cp -r "$build/bindings/torch/tenon_torch" "$top/build/bindings/torch/"
# libtenon_torch.so looks beside itself.
libraries_of "$build/bindings/torch/tenon_torch/libtenon_torch.so" | while read -r library; do
  cp -nL "$library" "$top/build/bindings/torch/tenon_torch/"
done
strip "$top/build/"{tenon,tests/*,bench/*} 2>/dev/null || true
cp -r bench/cuda "$top/bench/"
cp -r data/traces data/driver_costs.json "$top/data/"
find "$top" -name __pycache__ -prune -exec rm -r {} +
tar -C "$work" -cJf "$out" tenon_cuda
ls -l "$out" | awk '{printf "%s: %.1f MiB\n", $NF, $5 / 1048576}'
