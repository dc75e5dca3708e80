#!/usr/bin/env bash
# run_rust.sh RUSTC LIBRARIES WORK: builds embed.rs over libtenon_c and runs it.
set -euo pipefail
"$1" "$(dirname "$0")/embed.rs" -o "$3/example_rust" -L "$2" -C "link-arg=-Wl,-rpath,$2"
"$3/example_rust"
