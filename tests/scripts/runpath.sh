#!/usr/bin/env bash
# tests/scripts/runpath.sh FILE...: checks that no FILE looks for its libraries in the current directory. The loader does so if RUNPATH has
# an empty entry; `cd DIRECTORY && bert` must not load files from DIRECTORY. Part of tests/run.sh; needs binutils.
set -euo pipefail
code=0
for file in "$@"; do
  places=$(readelf -d "$file" | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2/p')
  while read -r place; do
    [[ "$place" == /* || "$place" == \$ORIGIN* ]] || { echo "$file looks for libraries in \"$place\": RUNPATH is $places" >&2; code=1; }
  done < <([ -z "$places" ] || tr ':' '\n' <<<"$places")
done
exit $code
