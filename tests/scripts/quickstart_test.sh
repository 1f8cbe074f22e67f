#!/usr/bin/env bash
# tests/scripts/quickstart_test.sh BUILD: the quick start on this tree's pages, with few steps, ends with commands that fine-tune on its table
# and answer. Part of tests/run.sh.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "$*"; failed=1; }

mkdir -p "$work/tree/app" "$work/tree/build"
cp "$root/app/quickstart.sh" "$work/tree/app/"
cp -r "$root/configs" "$work/tree/"
printf '#!/bin/sh\n' >"$work/tree/app/setup.sh"
printf '#!/bin/sh\nverb=$1\nshift\ncase $verb in\n  pretrain) exec "%s/bert" pretrain "$@" max_steps=4 evaluate_every=4 ;;\n  finetune) exec "%s/bert" finetune "$@" max_steps=4 ;;\n  *) exec "%s/bert" "$verb" "$@" ;;\nesac\n' \
  "$build" "$build" "$build" >"$work/tree/build/bert"
chmod +x "$work/tree/app/setup.sh" "$work/tree/build/bert"

# run NAME FILE...: a quick start, then the two commands that it names
run() {
  local texts=$work/tree/build/quickstart/texts
  "$work/tree/app/quickstart.sh" "${@:2}" >"$work/out" 2>"$work/err" || { fail "$1: the quick start ends with $?:"; cat "$work/err"; return; }
  grep -E "^    .*/bert (finetune|predict) " "$work/out" >"$work/commands"
  [ "$(wc -l <"$work/commands")" -eq 2 ] || { fail "$1: wanted two commands:"; cat "$work/out"; return; }
  bash -e "$work/commands" >"$work/answers" 2>"$work/err" || { fail "$1: the commands end with $?:"; cat "$work/commands" "$work/err"; return; }
  [ "$(head -n 1 "$texts/train.csv")" = text,label ] && [ "$(wc -l <"$texts/dev.csv")" -gt 3 ] || { fail "$1: the table:"; wc -l "$texts"/*; }
  grep -q '"accuracy"' "$work/tree/build/quickstart/classifier/summary.json" || fail "$1: no accuracy"
}
cat "$root"/README.md "$root"/CONTRIBUTING.md "$root"/*/README.md >"$work/one.txt"
run "one file" "$work/one.txt"
[ "$(grep -cE '"label": ?"(first|second) half"' "$work/answers")" -eq 2 ] || { fail "not the halves:"; cat "$work/answers"; }
cp "$root/README.md" "$work/a \"b\", c.md"  # a name that CSV and the shell quote
cat "$root"/app/README.md "$root"/data/README.md >"$work/d.txt"
run "two files" "$work/a \"b\", c.md" "$work/d.txt"
[ -e "$work/tree/build/quickstart/previous/classifier" ] || fail "the classifier of another text is not moved aside"
grep -q '"label": \?"a \\"b\\", c.md"' "$work/answers" || grep -q '"label": \?"d.txt"' "$work/answers" || { fail "not the names:"; cat "$work/answers"; }
exit $failed
