#!/usr/bin/env bash
# scripts/package.sh BUILD: Debian packages of what is built, into BUILD/packages; lintian looks at
# them, and errors of its end this with status 1.
set -euo pipefail
build=${1:-build}
rm -rf "$build/packages"
(cd "$build" && cpack -G DEB >cpack.log 2>&1) || { cat "$build/cpack.log"; exit 1; }
rm -rf "$build/packages/_CPack_Packages"
for package in "$build"/packages/*.deb; do
  ls -l "$package" | awk '{printf "%s: %.1f MB\n", $NF, $5 / 1e6}'
  dpkg-deb --field "$package" Depends | sed 's/^/  needs /'
done
# Packages of our own archive: no closed bug, and names that say less than the soname does.
lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host \
  --no-tag-display-limit "$build"/packages/*.deb
