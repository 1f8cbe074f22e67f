#!/usr/bin/env bash
# tests/setup_test.sh
# What app/setup.sh and app/quickstart.sh refuse before they install, build or change anything, and with which exit code; that a quick
# start keeps the last result that is whole; and that app/wheels.py follows pip's configuration.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# refused CODE TEXT COMMAND...: the command ends with CODE and says TEXT
refused() {
  local code=0
  timeout 60 "${@:3}" >"$work/out" 2>&1 || code=$?
  if [ $code -ne "$1" ] || ! grep -qF -- "$2" "$work/out"; then
    echo "wanted exit code $1 and \"$2\" of: ${*:3}"
    echo "got $code and:"
    cat "$work/out"
    failed=1
  fi
}
yes 'The program works because there is no bug in it.' | head -c 20000 >"$work/prose.txt" || true
head -c 20000 "$work/prose.txt" | iconv -f UTF-8 -t UTF-16 >"$work/utf16.txt"
head -c 20000 /dev/urandom >"$work/random"
printf '%020000d' 0 >"$work/digits"
quickstart=$root/app/quickstart.sh
refused 66 "is a directory" "$quickstart" "$work"
refused 66 "there is no file $work/absent" "$quickstart" "$work/prose.txt" "$work/absent"
head -c 9000 "$work/prose.txt" >"$work/small.txt"
refused 65 "at least 10 KB" "$quickstart" "$work/small.txt"
refused 66 "cannot read /dev/null" "$quickstart" /dev/null
refused 65 "of the text's bytes are UTF-8, and 90 % are needed" "$quickstart" "$work/random"
refused 65 "words, which is too few" "$quickstart" "$work/utf16.txt"
refused 65 "the text has 0 words" "$quickstart" "$work/digits"
refused 2 "unknown option --nonsense" "$quickstart" --nonsense
refused 2 "unknown option --nonsense" "$root/app/setup.sh" --nonsense
refused 66 "HOME is not set" env -u HOME "$root/app/setup.sh"

# A tree whose bert only leaves the files of each verb behind; pretrain fails where $work/fail is.
mkdir -p "$work/tree/app" "$work/tree/configs" "$work/tree/build"
cp "$quickstart" "$work/tree/app/"
cp "$root/configs/quickstart.json" "$work/tree/configs/"
printf '#!/bin/sh\n' >"$work/tree/app/setup.sh"
cat >"$work/tree/build/bert" <<'STUB'
#!/usr/bin/env bash
here=$(dirname "$0")/quickstart
while [ $# -gt 0 ]; do
  case $1 in
    vocab) printf '%s\n' a b c >"$here/vocab.txt" ;;
    split) cat ;;
    create) touch "$here/train.shard" "$here/validation.shard" ;;
    pretrain)
      [ ! -e "$here/../../../fail" ] || exit 70
      mkdir -p "$here/run/checkpoints/step-1" "$here/run/checkpoints/step-1.damaged"
      ln -sfn checkpoints/step-1 "$here/run/latest"
      echo '{"mlm_loss": 1.0, "mlm_loss_untrained": 3.0, "unigram_entropy": 2.0}' >"$here/run/summary.json"
      ;;
    export) echo "$BERT_TEST_TEXT" >"$here/bert.pt" ;;
  esac
  shift
done
STUB
chmod +x "$work/tree/app/setup.sh" "$work/tree/build/bert"
made=$work/tree/build/quickstart
for name in first second third; do
  { echo "$name"; cat "$work/prose.txt"; } >"$work/$name.txt"
done
start() {  # start NAME CODE: a quick start on NAME.txt ends with CODE
  local code=0
  BERT_TEST_TEXT=$1 "$work/tree/app/quickstart.sh" "$work/$1.txt" >"$work/out" 2>&1 || code=$?
  [ $code -eq "$2" ] || { echo "quick start on $1: wanted $2, got $code:"; cat "$work/out"; failed=1; }
}
kept() {  # kept FILE NAME: FILE is the export of NAME
  [ "$(cat "$made/$1" 2>&1)" = "$2" ] || { echo "wanted $2 in $1, got $(cat "$made/$1" 2>&1)"; failed=1; }
}
start first 0
kept bert.pt first
grep -q '^checkpoint  .*/run/checkpoints/step-1$' "$work/out" || { echo "not the newest checkpoint:"; cat "$work/out"; failed=1; }
grep -q 'vocab --input .*/first.txt --size 30522' "$work/out" || { echo "no way to BERT-base:"; cat "$work/out"; failed=1; }
touch "$work/fail"
start second 70
kept previous/bert.pt first
start third 70
kept previous/bert.pt first
rm "$work/fail"
start third 0
kept bert.pt third
kept previous/bert.pt first
start second 0
kept previous/bert.pt third

# A text of one sentence a line and without empty lines is cut into documents, whatever its size.
for i in $(seq 60000); do echo "This is sentence number $i of it."; done >"$work/fourth.txt"
start fourth 0
[ "$(grep -c '^$' "$made/sentences.txt")" -eq 3000 ] || { echo "not cut into documents:"; cat "$work/out"; failed=1; }

if command -v python3 >/dev/null; then
  timeout 120 python3 "$root/tests/wheels_test.py" || failed=1
else
  echo "no python3: what app/wheels.py reads of pip's configuration is not tested"
fi
exit $failed
