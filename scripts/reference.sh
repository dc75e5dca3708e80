#!/usr/bin/env bash
# scripts/reference.sh [COMMAND]: prints docs/reference.md, from what the command (build/tenon) says
# of itself.
set -euo pipefail
tenon=${1:-$(dirname "$0")/../build/tenon}
source=$(dirname "$0")/../tools/tenon/commands.h

# help WORDS...: the help without the names of files of this machine.
help() {
  "$tenon" "$@" --help | sed -e "s|^Usage: [^ ]*|Usage: tenon|" -e 's/ *$//' | cat -s | sed '${/^$/d}'
}

# subcommands WORDS...: their names.
subcommands() {
  help "$@" | sed -n '/^Subcommands:/,/^$/ s/^  \([a-z-]*\) .*/\1/p'
}

# section HEADING WORDS...
section() {
  printf '\n%s\n\n```\n' "$1"
  help "${@:2}"
  echo '```'
}

cat <<'END'
# Reference of the command

Made by `scripts/reference.sh`, from what the command says of itself; a test compares. What the figures mean:
[figures.md](figures.md).

## Exit statuses

| status | meaning |
|---|---|
END
sed -n 's/^inline constexpr int k[A-Za-z]* = \([0-9]*\); *\/\/ \(.*\)/| \1 | \2 |/p' "$source"
cat <<'END'

## Environment variables

END
echo '```'
env -i "$tenon" info --environment
echo '```'
section '## tenon'
for command in $(subcommands); do
  section "## tenon $command" "$command"
  for inner in $(subcommands "$command"); do
    section "### tenon $command $inner" "$command" "$inner"
  done
done
