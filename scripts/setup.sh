#!/usr/bin/env bash
# scripts/setup.sh [LIST]: installs the packages of LIST (packages.txt) that are missing. A line `a|b`
# is the first of the two that the distribution has. Does nothing, and needs no root, when all are
# there.
set -euo pipefail
cd "$(dirname "$0")/.."
list=${1:-packages.txt}
missing=()
for entry in $(sed 's/#.*//' "$list"); do
  for package in ${entry//|/ }; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' && continue 2
  done
  missing+=("$entry")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "these packages are missing, and installing them needs root: ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
$sudo apt-get update -qq
packages=()
for entry in "${missing[@]}"; do
  for package in ${entry//|/ }; do
    [ -n "$(apt-cache show "$package" 2>/dev/null)" ] && break
  done
  packages+=("$package")
done
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
