#!/usr/bin/env bash
# tests/scripts/faults_test.sh: tests/faults.sh in a small tree of its own finds the fault that a test misses, and refuses rows that are none.
# Part of tests/run.sh.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree/app" "$tree/tests/faults"
cp "$root/tests/faults.sh" "$tree/tests/"
# A program in place of Catch2's: its test "sums" never calls difference().
cat >"$tree/sums.cc" <<'CC'
#include <cstdio>
#include <string>
int sum(int a, int b) { return a + b; }
int difference(int a, int b) { return a - b; }
int product(int a, int b) { return a * b; }
int main(int, char** argv) {
  if (std::string(argv[1]) == "sums") return sum(2, 3) == 5 && product(2, 2) == 4 ? 0 : 1;
  std::puts("No tests ran");
}
CC
printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(sums LANGUAGES CXX)' 'add_executable(sums sums.cc)' >"$tree/CMakeLists.txt"
printf '%s\n' '#!/bin/sh' 'exec cmake -S "$(dirname "$0")/.." -B "$2" -G Ninja' >"$tree/app/setup.sh"
chmod +x "$tree/app/setup.sh"
printf 'build-faults/\n' >"$tree/.gitignore"
git -C "$tree" init -q
: >"$tree/tests/faults/kernels"
failed=0
# plants CODE TEXT ROW...: the command ends with CODE and prints TEXT
plants() {
  local want=$1 text=$2 code=0
  printf '%s\n' '# comment' "${@:3}" >"$tree/tests/faults/code"
  "$tree/tests/faults.sh" >"$work/log" 2>&1 || code=$?
  if [ $code -ne "$want" ] || ! grep -qF -- "$text" "$work/log"; then
    echo "wanted code $want and \"$text\" of ${*:3}, got $code:"
    cat "$work/log"
    failed=1
  fi
}
sum='sums.cc | s/a \+ b/a - b/ | sums | sums'
plants 1 '2 planted, 1 caught, 1 missed' "$sum" 'sums.cc | s/return a - b/return b - a/ | sums | sums'
grep -qF 'MISSED: sums.cc: s/return a - b/return b - a/' "$work/log" || { echo "the missed fault is not named"; failed=1; }
plants 0 '1 planted, 1 caught, 0 missed' "$sum" 'sums.cc | s/a \* b/b * a/ | sums | sums | equivalent: a product commutes'
grep -qF '1 equivalent' "$work/log" || { echo "the equivalent fault is not counted"; failed=1; }
plants 2 'is listed as equivalent, and sums' 'sums.cc | s/a \+ b/a - b/ | sums | sums | equivalent: it is not'
plants 2 'changes 3 lines; expected one' 'sums.cc | s/int a/int c/ | sums | sums'
plants 2 'changes 0 lines; expected one' 'sums.cc | s/none/some/ | sums | sums'
plants 2 'does not compile' 'sums.cc | s/a \+ b/a + c/ | sums | sums'
plants 2 'matches no test' 'sums.cc | s/a \+ b/a - b/ | sums | other'
exit $failed
