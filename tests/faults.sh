#!/usr/bin/env bash
# tests/faults.sh [--only REGEX] [--jobs N]
# Plants the faults of the tables in tests/faults, one at a time, in a copy of the tree (build-faults/tree), and runs the test that must
# fail then. A row of these tables is
#
#   file | sed expression | test binary | Catch2 filter | equivalent: reason
#
# with the last column only for a fault that changes no result. The binary null_device is bert_tests on the device of host memory. The
# expression must change one line. A comma in a filter needs a backslash before it. A fault that does not compile is an error of the table,
# not a caught fault. Without a fault every filter must match a test, and pass.
#
#   --only REGEX  only the rows that match; REGEX is extended
#   --jobs N      parallel jobs of the build; default 1
#
# Prints a line for each fault, and `N planted, N caught, N missed`; equivalent faults are counted apart. The build takes as long as that of
# the tests, the faults about half a minute each. Exit code 0 if none is missed, 1 if one is, 2 for an error of a table.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
only=. jobs=1
while [ $# -gt 0 ]; do
  case $1 in
    --only) only=${2:?--only needs a regular expression}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    *) echo "faults: unknown option $1; see tests/faults.sh --help" >&2; exit 2 ;;
  esac
  shift
done
tables=("$root"/tests/faults/*)
work=$root/build-faults
tree=$work/tree log=$work/log
build=$tree/build # beside the sources as in every checkout, so that ccache has most objects
longest=300 # seconds that a test may take; a fault that makes it hang is caught
mkdir -p "$tree"
exec 9>"$work/lock"
flock -n 9 || { echo "faults: another run works in $work" >&2; exit 2; }

die() {
  echo "faults: $*" >&2
  exit 2
}

mapfile -t rows < <(cat "${tables[@]}" | grep -vE '^(#|$)' | grep -E -- "$only" || true)
[ ${#rows[@]} -gt 0 ] || die "no row matches $only"
# Sets file, edit, binary, filter and reason.
read_row() {
  local rest=$1
  file=${rest%% | *} rest=${rest#* | }
  edit=${rest%% | *} rest=${rest#* | }
  binary=${rest%% | *} rest=${rest#* | }
  filter=${rest%% | *} reason=
  case $rest in *' | equivalent: '*) reason=${rest#* | equivalent: } ;; esac
  if [ -z "$filter" ] || [ ! -f "$root/$file" ]; then die "$1: want file | sed expression | test binary | Catch2 filter"; fi
}

# The copy: files that have not changed keep their times, so that the build goes on from the last one. The tables stay out of it.
(cd "$root" && git ls-files --cached --others --exclude-standard) | grep -v '^tests/faults' | sort >"$work/files"
while read -r name; do
  [ -f "$root/$name" ] || continue
  cmp -s "$root/$name" "$tree/$name" && continue
  mkdir -p "$tree/$(dirname "$name")"
  cp "$root/$name" "$tree/$name"
done <"$work/files"
(cd "$tree" && find . -path ./build -prune -o -type f -printf '%P\n' | sort | comm -13 "$work/files" - | xargs -r -d '\n' rm --)

declare -A binaries=()
for row in "${rows[@]}"; do
  read_row "$row"
  binaries[$binary]=1
done
"$tree/app/setup.sh" --build "$build" --nvcc help >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "the copy cannot be configured; see $log"; }
compile() { nice -n 10 ninja -C "$build" -j "$jobs" "$@" >"$log" 2>&1 </dev/null; }
compile "${!binaries[@]}" || { tail -n 20 "$log" >&2; die "the copy does not compile without a fault"; }

# run BINARY FILTER: runs the tests
run() {
  local program
  program=$(find "$build" -maxdepth 2 -type f -name "$1")
  [ "$1" != null_device ] || program=$build/null_device/bin/bert_tests
  (cd "$work" && GOMP_SPINCOUNT=1000 timeout "$longest" nice -n 10 "$program" "$2" </dev/null) >"$log" 2>&1
}

declare -A tried=()
for row in "${rows[@]}"; do
  read_row "$row"
  [ -z "${tried[$binary $filter]:-}" ] || continue
  tried[$binary $filter]=1
  run "$binary" "$filter" || { tail -n 20 "$log" >&2; die "$binary '$filter' fails without a fault"; }
  ! grep -qE '^No test' "$log" || die "$binary '$filter' matches no test"
done

planted=0 caught=0 missed=0 equivalent=0 wrong=0
# Reports a row that says something untrue; the other rows are still tried.
wrong() {
  wrong=$((wrong + 1))
  echo "WRONG: $*" >&2
}

for row in "${rows[@]}"; do
  read_row "$row"
  cp "$root/$file" "$work/original"
  sed -E "$edit" "$work/original" >"$work/changed"
  lines=$(diff "$work/original" "$work/changed" | grep -c '^>' || true)
  if [ "$lines" -ne 1 ] || [ "$(wc -l <"$work/original")" -ne "$(wc -l <"$work/changed")" ]; then
    wrong "$file: $edit changes $lines lines; expected one"
    continue
  fi
  cp "$work/changed" "$tree/$file"
  compile "$binary" || {
    tail -n 20 "$log" >&2
    cp "$work/original" "$tree/$file"
    wrong "$file: $edit does not compile"
    continue
  }
  code=0
  run "$binary" "$filter" || code=$?
  cp "$work/original" "$tree/$file"
  if [ -n "$reason" ]; then
    [ $code -eq 0 ] || { wrong "$file: $edit is listed as equivalent, and $binary '$filter' catches it"; continue; }
    equivalent=$((equivalent + 1))
    echo "equivalent: $file: $edit: $reason"
    continue
  fi
  planted=$((planted + 1))
  if [ $code -ne 0 ]; then
    caught=$((caught + 1))
    echo "caught: $file: $edit"
  else
    missed=$((missed + 1))
    echo "MISSED: $file: $edit: $binary '$filter' passes"
  fi
done
[ $equivalent -eq 0 ] || echo "$equivalent equivalent"
echo "$planted planted, $caught caught, $missed missed"
[ $wrong -eq 0 ] || { echo "faults: $wrong rows are wrong" >&2; exit 2; }
[ $missed -eq 0 ]
