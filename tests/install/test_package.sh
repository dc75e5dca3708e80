#!/usr/bin/env bash
# tests/install/test_package.sh PACKAGES: installs the Debian packages in the folder PACKAGES into a bare
# Debian 12 tree, and runs there the command, a C++ program, a C program and Python, each with no more
# packages than it needs; then removes the packages again. Needs root, for debootstrap and chroot.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
packages=$(cd "$1" && pwd)
[ "$(id -u)" -eq 0 ] || { echo "make test-package needs root: it makes a Debian tree and changes into it"; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/debian12
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
tree=$(mktemp -d)
finish() { umount "$tree/proc" 2>/dev/null || true; rm -rf --one-file-system "$tree" "$tree.log"; }
trap finish EXIT
step() { echo "-- $*"; }
run() { "$@" >"$tree.log" 2>&1 || { echo "failed: $*"; tail -40 "$tree.log"; exit 1; }; }
inside() { run chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive "$@"; }

step "a bare Debian 12"
if [ ! -f "$cache/bare.tar" ]; then
  mkdir -p "$cache"
  run debootstrap --variant=minbase bookworm "$cache/bare" "$mirror"
  rm -f "$cache"/bare/var/cache/apt/archives/*.deb
  tar -C "$cache/bare" -cf "$cache/bare.tar.part" .
  rm -rf --one-file-system "$cache/bare"
  mv "$cache/bare.tar.part" "$cache/bare.tar"
fi
tar -C "$tree" -xf "$cache/bare.tar"
mount -t proc proc "$tree/proc"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
mkdir "$tree/packages" "$tree/trial"
cp "$packages"/*.deb "$tree/packages"
inside apt-get update -qq
# Without what is merely recommended: so each package's own dependencies are tested.
install() {
  local files=() name
  for name in "$@"; do files+=("/packages/$(basename "$packages/${name}"_[0-9]*.deb)"); done
  inside apt-get install -y -qq --no-install-recommends "${files[@]}"
}

step "tenon: the command"
cp "$source/data/snapshots/multistream_prefetch.pickle" "$tree/trial/snapshot.pickle"
install tenon
inside tenon explain /trial/snapshot.pickle
inside tenon replay /trial/snapshot.pickle --policy caching,stitched --passes 0
for library in openblas dnnl gomp; do
  if chroot "$tree" ldconfig -p | grep -q "$library"; then echo "tenon brings $library along"; exit 1; fi
done

step "python3-tenon"
install python3-tenon
inside python3 -c "import tenon
recording = tenon.load('/trial/snapshot.pickle')
print(recording.explain())
with tenon.scope(tenon.Allocator('host')) as scope: memoryview(scope.empty(64))
x = tenon.ones((64, 64), requires_grad=True)
(x @ x).sum().backward()
assert x.grad[0, 0].item() == 128"
chroot "$tree" python3 -m tenon explain /trial/snapshot.pickle --json >"$tree/trial/python.json"
chroot "$tree" tenon explain /trial/snapshot.pickle --json >"$tree/trial/command.json"
cmp "$tree/trial/python.json" "$tree/trial/command.json"

step "libtenon: under a program that knows nothing of it"
install libtenon
inside env LD_PRELOAD=libtenon_preload.so TENON_PRELOAD_STATISTICS=/trial/preload.txt \
  python3 -c "bytearray(1 << 24)"
[ -s "$tree/trial/preload.txt" ] || { echo "libtenon_preload.so served nothing"; exit 1; }

step "libtenon-dev: a program in C++ (pkg-config, CMake) and one in C"
inside apt-get install -y -qq --no-install-recommends g++ make cmake pkg-config
install libtenon libtenon-dev
cp "$source"/tests/install/{memory,lab}.cc "$source/examples/c/embed.c" "$tree/trial"
cat >"$tree/trial/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(embedded LANGUAGES CXX)
find_package(Tenon REQUIRED COMPONENTS memory lab)
add_executable(memory memory.cc)
target_link_libraries(memory PRIVATE tenon::memory)
add_executable(lab lab.cc)
target_link_libraries(lab PRIVATE tenon::lab_shared)
END
inside cmake -S /trial -B /trial/build
inside cmake --build /trial/build
inside /trial/build/memory
inside /trial/build/lab /trial/snapshot.pickle
inside sh -ec 'cd /trial; c++ -std=c++20 memory.cc -o memory $(pkg-config --cflags --libs tenon-memory); ./memory'
inside sh -ec 'cd /trial; cc embed.c -o embed $(pkg-config --cflags --libs tenon-c); ./embed'

step "tenon-training, libtenon-tensor-dev"
install tenon-training libtenon-tensor libtenon-tensor-dev
cp "$source/tests/install/tensor.cc" "$tree/trial"
inside tenon train --help
inside sh -ec 'cd /trial; c++ -std=c++20 tensor.cc -o tensor $(pkg-config --cflags --libs tenon-tensor); ./tensor'

step "and gone again"
inside apt-get purge -y -qq tenon tenon-training libtenon libtenon-dev libtenon-tensor libtenon-tensor-dev python3-tenon
left=$(find "$tree/usr" -path '*tenon*' | head -5)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
