#!/usr/bin/env bash
# scripts/test_distribution.sh [SUITE]: runs `make test` of this commit in a bare tree of another
# release (default: trixie, Debian 13; noble is Ubuntu 24.04). Needs root, for debootstrap and chroot.
#   JOBS  at once (default: one for each core)
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-trixie}
if [ "$suite" = noble ]; then  # Debian has neither Ubuntu's keys nor a script for this release
  mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
  options=(--no-check-gpg --components=main,universe)
  script=(/usr/share/debootstrap/scripts/gutsy)
else
  mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
  options=()
  script=()
fi
[ "$(id -u)" -eq 0 ] || { echo "make test-distribution needs root: it makes a Debian tree and changes into it" >&2; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/$suite
if [ ! -f "$cache.tar" ]; then
  mkdir -p "$cache"
  debootstrap --variant=minbase "${options[@]}" "$suite" "$cache" "$mirror" "${script[@]}"
  tar -C "$cache" -cf "$cache.tar.part" .
  rm -rf --one-file-system "$cache"
  mv "$cache.tar.part" "$cache.tar"
fi
tree=$(mktemp -d)
finish() { umount "$tree/proc" 2>/dev/null || true; rm -rf --one-file-system "$tree"; }
trap finish EXIT
tar -C "$tree" -xf "$cache.tar"
mount -t proc proc "$tree/proc"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
mkdir "$tree/tenon"
git archive HEAD | tar -C "$tree/tenon" -xf -
inside() { chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends make
inside make -C /tenon test JOBS="${JOBS:-$(nproc)}"
