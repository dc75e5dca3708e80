#!/usr/bin/env bash
# scripts/test_package.sh BUILD: installs BUILD/packages into a bare Debian 12 tree (debootstrap; needs
# root and Debian's archive), and runs the command, a C++ and a C program, and the preload there.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-build}" && pwd)
[ "$(id -u)" -eq 0 ] || { echo "test_package.sh: debootstrap and chroot need root" >&2; exit 1; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
inside() { chroot "$tree" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
echo "-- a bare tree"
debootstrap --variant=minbase bookworm "$tree" >"$tree.log" 2>&1 || { tail -5 "$tree.log"; exit 1; }
rm -f "$tree.log"
mkdir "$tree/packages"
cp "$build"/packages/*.deb "$tree/packages"
cp "$source/data/traces/gnn_sampled.csv.zst" "$tree/packages"
cp "$source"/tests/install/memory.cc "$source"/examples/c/embed.c "$tree/packages"
echo "-- the command alone"
inside apt-get install -y -qq --no-install-recommends /packages/tenon_*.deb >/dev/null
inside tenon explain /packages/gnn_sampled.csv.zst | head -3
if inside ldd /usr/bin/tenon | grep -qE 'blas|dnnl'; then echo "tenon links BLAS"; exit 1; fi
echo "-- libraries and headers"
inside apt-get install -y -qq --no-install-recommends g++ pkg-config /packages/libtenon_*.deb \
  /packages/libtenon-dev_*.deb >/dev/null
inside sh -ec 'cd /tmp && c++ -std=c++20 /packages/memory.cc -o embedded \
  $(pkg-config --cflags --libs tenon-memory) && ./embedded'
inside sh -ec 'cd /tmp && cc /packages/embed.c -o embed $(pkg-config --cflags --libs tenon-c) && ./embed'
inside env LD_PRELOAD=libtenon_preload.so TENON_PRELOAD_STATISTICS=1 /tmp/embed >/dev/null
echo "-- training"
inside apt-get install -y -qq --no-install-recommends /packages/libtenon-tensor_*.deb \
  /packages/tenon-training_*.deb >/dev/null
inside tenon train --help >/dev/null
echo "passed"
