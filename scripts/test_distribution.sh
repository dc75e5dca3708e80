#!/usr/bin/env bash
# scripts/test_distribution.sh SUITE: runs `make test` of this commit in a bare tree of another
# distribution: trixie (Debian 13) or noble (Ubuntu 24.04). Needs root, for debootstrap and chroot.
# Debian has no keys of Ubuntu's, so the packages of noble are not verified.
#   JOBS  at once (default: one for each core)
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-trixie}
case $suite in
  trixie) mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian} like=trixie options=() ;;
  noble) mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} like=gutsy
         options=(--components=main,universe --no-check-gpg) ;;
  *) echo "test_distribution.sh: $suite is none of trixie, noble" >&2; exit 1 ;;
esac
[ "$(id -u)" -eq 0 ] || { echo "test_distribution.sh needs root: it makes a tree of $suite and changes into it" >&2; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tenon/$suite
if [ ! -f "$cache.tar" ]; then
  mkdir -p "$cache"
  debootstrap --variant=minbase "${options[@]}" "$suite" "$cache" "$mirror" "/usr/share/debootstrap/scripts/$like"
  tar -C "$cache" -cf "$cache.tar.part" .
  rm -rf --one-file-system "$cache"
  mv "$cache.tar.part" "$cache.tar"
fi
tree=$(mktemp -d)
finish() { umount "$tree/proc" "$tree/dev" 2>/dev/null || true; rm -rf --one-file-system "$tree"; }
trap finish EXIT
tar -C "$tree" -xf "$cache.tar"
mount -t proc proc "$tree/proc"
mount --bind /dev "$tree/dev"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
mkdir "$tree/tenon"
git archive HEAD | tar -C "$tree/tenon" -xf -
inside() { chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends make
inside make -C /tenon test JOBS="${JOBS:-$(nproc)}"
