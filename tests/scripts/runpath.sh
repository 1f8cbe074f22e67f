#!/usr/bin/env bash
# tests/scripts/runpath.sh FILE...: none of these looks for its libraries in the current directory, which is what the loader makes of an empty
# place in RUNPATH (and `cd DIRECTORY && bert` must not load what lies there). Part of tests/run.sh; needs binutils.
set -euo pipefail
code=0
for file in "$@"; do
  places=$(readelf -d "$file" | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2/p')
  while read -r place; do
    [[ "$place" == /* || "$place" == \$ORIGIN* ]] || { echo "$file looks for libraries in \"$place\": RUNPATH is $places" >&2; code=1; }
  done < <([ -z "$places" ] || tr ':' '\n' <<<"$places")
done
exit $code
