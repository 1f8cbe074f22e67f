#!/usr/bin/env bash
# tests/scripts/pages_test.sh BUILD: tests/scripts/pages.sh passes on this tree, and finds each fault of a page that is full of them. Part of
# tests/run.sh.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
"$root/tests/scripts/pages.sh" "$1" || failed=1

ln -s "$root"/{app,configs,tests} "$work"
cat >"$work/faults.md" <<'PAGE'
# Faults
See [nothing](nothing.md), [no heading](#no-heading) and [this heading](#faults).
`bert prepare corpus.txt`, `bert data mix`, `bert config show configs/bert-base.json optimizer.rate=1`, `tests/run.sh --fast`
```
build/bert vocab --input a.txt --pieces 100 --output vocab.txt
build/bert data download squid && build/bert data download squad --release 1.1
build/bert data create --input a.txt \
    --vocabulary vocab.txt
build/bertrun --nproc-per-node 8 --ranks 9 build/bert pretrain c.json max_stepz=3
cat a.txt | build/bert tokenize --vocab v.txt --shout && app/missing.sh
```
PAGE
code=0
"$root/tests/scripts/pages.sh" "$1" "$work" >"$work/log" 2>&1 || code=$?
[ $code -eq 1 ] || { echo "expected exit code 1, got $code"; failed=1; }
for fault in 'faults.md:2: the link to nothing.md leads nowhere' 'faults.md:2: #no-heading: there is no such heading' \
  'there is no verb prepare' 'bert data has no mix' 'faults.md:3: bert config show configs/bert-base.json optimizer.rate=1: bert config show: ' \
  'there is no option --fast' 'there is no option --pieces' 'bert data download has no squid' 'there is no option --release' 'faults.md:7:' 'there is no option --vocabulary' 'there is no option --ranks' \
  '/max_stepz: unknown key' 'there is no option --shout' 'there is no script app/missing.sh'; do
  grep -qF -- "$fault" "$work/log" || { echo "not found: $fault, in"; cat "$work/log"; failed=1; }
done
[ "$(grep -c '^faults.md' "$work/log")" -eq 14 ] || { echo "expected 14 faults, got"; cat "$work/log"; failed=1; }
exit $failed
