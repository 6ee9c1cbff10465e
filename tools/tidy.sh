#!/bin/sh
# clang-tidy over the sources of src/ and cli/ that a build folder compiles, by .clang-tidy.
#
#   tidy.sh BUILD JOBS [clang-tidy's arguments]
#
# BUILD was configured with CMAKE_EXPORT_COMPILE_COMMANDS.
set -eu
build=$1
jobs=$2
shift 2
sources=$(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u)
[ -n "$sources" ] || { echo "tidy.sh: no sources in $build/compile_commands.json" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# It says of every file how many warnings of other people's headers it has left out.
if ! echo "$sources" | xargs -P "$jobs" -n 8 clang-tidy -p "$build" --quiet "$@" >"$log" 2>&1; then
    grep -v 'warnings generated\.$' "$log" >&2
    exit 1
fi
echo "tidy.sh: $(echo "$sources" | wc -l) files"
