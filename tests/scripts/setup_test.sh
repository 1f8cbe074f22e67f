#!/usr/bin/env bash
# tests/scripts/setup_test.sh
# Checks the refusals of app/setup.sh and app/quickstart.sh and their exit codes (before anything is installed, built or changed), that a
# quick start keeps the last complete result, and that app/setup/wheels.py follows pip's configuration.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# refused CODE TEXT COMMAND...: the command exits with CODE and prints TEXT
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
head -c 20000 "$work/prose.txt" | iconv -f UTF-8 -t UTF-16LE >"$work/utf16le.txt"
head -c 20000 /dev/urandom >"$work/random"
for i in $(seq 10000); do printf '\340\270\201'; done >"$work/spaceless.txt"  # Thai
printf '%020000d' 0 >"$work/digits"
quickstart=$root/app/quickstart.sh
refused 66 "is a directory" "$quickstart" "$work"
refused 66 "there is no file $work/absent" "$quickstart" "$work/prose.txt" "$work/absent"
head -c 9000 "$work/prose.txt" >"$work/small.txt"
refused 65 "at least 10 KB" "$quickstart" "$work/small.txt"
refused 66 "cannot read /dev/null" "$quickstart" /dev/null
refused 65 "bytes of $work/random are not UTF-8, and one in 100 may be" "$quickstart" "$work/prose.txt" "$work/random"
refused 65 "$work/utf16.txt is UTF-16" "$quickstart" "$work/prose.txt" "$work/utf16.txt"
refused 65 "only 0 of the text's 40000 bytes belong to words" "$quickstart" "$work/utf16le.txt"
refused 65 "only 0 of the text's 30000 bytes belong to words of at most 200 letters" "$quickstart" "$work/spaceless.txt"
refused 65 "only 0 of the text's 20000 bytes belong to words" "$quickstart" "$work/digits"
refused 2 "unknown option --nonsense" "$quickstart" --nonsense
refused 2 "unknown option --nonsense" "$root/app/setup.sh" --nonsense
refused 2 "--prefix wants a directory" "$root/app/setup.sh" --prefix
refused 74 "cannot write to $work/prose.txt; name a directory" "$root/app/setup.sh" --prefix "$work/prose.txt/bert"
refused 74 "cannot write to $work/prose.txt" "$root/app/setup.sh" --package "$work/prose.txt/bert.tar.gz"
refused 2 "--user installs none" "$root/app/setup.sh" --user --package
refused 66 "HOME is not set" env -u HOME "$root/app/setup.sh"
refused 66 "XDG_CACHE_HOME is ignored: some/cache is no absolute path; using ~/.cache" env -u HOME XDG_CACHE_HOME=some/cache "$root/app/setup.sh"
! env -u HOME XDG_CACHE_HOME=/some/cache "$root/app/setup.sh" 2>&1 | grep XDG || { echo "an absolute XDG_CACHE_HOME is ignored"; failed=1; }

# With only these programs, set-up finds neither a compiler nor Debian, so it stops before it installs anything.
mkdir "$work/bin"
for name in awk basename bash cat cut date df dirname du flock grep head id mkdir nproc paste readlink realpath sed sort tail uname xargs; do
  ln -s "$(command -v "$name")" "$work/bin/$name"
done
with_prefix() {  # with_prefix CODE TEXT PREFIX
  refused "$1" "$2" env PATH="$work/bin" HOME="$work" XDG_CACHE_HOME="$work/cache" CMAKE_PREFIX_PATH="$3" "$root/app/setup.sh" --cpu --build "$work/build"
}
with_prefix 66 "CMAKE_PREFIX_PATH ($work/none:$work) holds no LibTorch >= 2.8: the wheel of LibTorch 2.11.0 is used" "$work/none:$work"
with_prefix 66 "this is neither Debian nor Ubuntu" "$work"
for version in 1.13 2.7 2.8 2.10; do
  torch=$work/torch-$version/include/torch/headeronly
  [ $version != 2.8 ] || torch=$work/torch-$version/include/torch/csrc/api/include/torch
  mkdir -p "$torch" "$work/torch-$version/share/cmake"
  touch "$work/torch-$version/include/torch/script.h"
  printf '#define TORCH_VERSION_MAJOR %s\n#define TORCH_VERSION_MINOR %s\n#define TORCH_VERSION_PATCH 0\n' ${version/./ } >"$torch/version.h"
done
with_prefix 66 "the LibTorch 1.13.0 in $work/torch-1.13, which CMAKE_PREFIX_PATH names, is too old" "$work/torch-1.13"
with_prefix 66 "the LibTorch 2.7.0 in $work/torch-2.7/share/cmake, which" "$work:$work/torch-2.7/share/cmake"
for version in 2.8 2.10; do
  with_prefix 66 "this is neither Debian nor Ubuntu" "$work/torch-$version"
  ! grep -q "LibTorch" "$work/out" || { echo "LibTorch $version is not taken:"; cat "$work/out"; failed=1; }
done
if command -v cmake >/dev/null; then
  printf 'include("%s")\nbert_cache(cache)\nmessage(NOTICE "the cache is ${cache}")\n' "$root/app/setup/cache.cmake" >"$work/cache.cmake"
  for cache in /some/cache some/cache ''; do
    HOME=/home XDG_CACHE_HOME=$cache cmake -P "$work/cache.cmake" >>"$work/caches" 2>&1
  done
  diff "$work/caches" - <<'LINES' || { echo "wrong caches"; failed=1; }
the cache is /some/cache/bert
XDG_CACHE_HOME is ignored: some/cache is no absolute path; using ~/.cache
the cache is /home/.cache/bert
the cache is /home/.cache/bert
LINES
fi

# A tree with a stub of bert that only writes the output files of each verb. pretrain fails if $work/fail exists.
mkdir -p "$work/tree/app" "$work/tree/configs" "$work/tree/build"
cp "$quickstart" "$work/tree/app/"
cp "$root/configs/quickstart.json" "$work/tree/configs/"
printf '#!/bin/sh\necho "set-up sees ${XDG_CACHE_HOME-no cache}"\n' >"$work/tree/app/setup.sh"
cat >"$work/tree/build/bert" <<'STUB'
#!/usr/bin/env bash
here=$(dirname "$0")/quickstart
while [ $# -gt 0 ]; do
  case $1 in
    vocab) printf '%s\n' a b c >"$here/vocab.txt" ;;
    split) grep . && echo ;;
    create) touch "$here/train.shard" "$here/validation.shard" ;;
    pretrain)
      [ ! -e "$here/../../../fail" ] || exit 70
      mkdir -p "$here/run/checkpoints/step-1" "$here/run/checkpoints/step-1.damaged"
      ln -sfn checkpoints/step-1 "$here/run/latest"
      echo '{"mlm_loss": 1.0, "mlm_loss_untrained": 3.0, "unigram_entropy": 2.0}' >"$here/run/summary.json"
      ;;
    export) echo "$BERT_TEST_TEXT" >"$here/bert.pt" ;;
    predict) printf '%s\n' "$@" >"$here/asked" ;;
  esac
  shift
done
STUB
chmod +x "$work/tree/app/setup.sh" "$work/tree/build/bert"
made=$work/tree/build/quickstart
for name in first second third; do
  { echo "$name"; cat "$work/prose.txt"; } >"$work/$name.txt"
done
start() {  # start NAME CODE: a quick start on NAME.txt exits with CODE
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

# A text with one sentence per line and without empty lines is cut into documents, whatever its size.
for i in $(seq 60000); do echo "This is sentence number $i of it."; done >"$work/fourth.txt"
start fourth 0
[ "$(grep -c '^$' "$made/sentences.txt")" -eq 3000 ] || { echo "not cut into documents:"; cat "$work/out"; failed=1; }

grep -qx 'It is one of the most \[MASK\] things in the world.' "$made/asked" || { echo "not asked in English:"; cat "$made/asked"; failed=1; }

# A language without spaces and full stops (here Chinese) also gets enough documents, and no character is cut.
sentence=$(printf '\344\270\200\344\272\214\344\270\211\345\233\233\344\272\224\345\205\255\344\270\203')
for i in $(seq 550); do printf %s "$sentence"; done >"$work/fifth.txt"
start fifth 0
documents=$(grep -c '^$' "$made/sentences.txt" || true)
[ "$documents" -ge 7 ] || { echo "not cut into documents, but $documents:"; cat "$work/out"; failed=1; }
tr -d '\n' <"$made/sentences.txt" | cmp - "$work/fifth.txt" || { echo "what was cut is another text"; failed=1; }
iconv -f UTF-8 -t UTF-8 "$made/sentences.txt" >/dev/null || { echo "cut within characters"; failed=1; }
[ "$(LC_ALL=C awk '{ if (length($0) > most) most = length($0) } END { print most }' "$made/sentences.txt")" -le 300 ] || { echo "not cut into sentences"; failed=1; }
[ "$(grep -c '\[MASK\]' "$made/asked")" -eq 3 ] && [ "$(grep '\[MASK\]' "$made/asked" | iconv -f UTF-8 -t UTF-32LE | wc -c)" -le 750 ] ||
  { echo "asked for too long words:"; cat "$made/asked"; failed=1; }
! grep -q 'things in the world' "$made/asked" || { echo "asked in English:"; cat "$made/asked"; failed=1; }

# For a text with full stops, the prompts are its own sentences.
for i in $(seq 400); do printf '%s%s%s\343\200\202\n' "$sentence" "$sentence" "$sentence"; done >"$work/sixth.txt"
start sixth 0
[ "$(grep -c "^${sentence}.*\[MASK\].*$(printf '\343\200\202')\$" "$made/asked")" -eq 3 ] || { echo "not asked for its own words:"; cat "$made/asked"; failed=1; }

# A text of 1,000 Russian words, which have two bytes per letter, is long enough. A relative cache directory is ignored, with one message.
for i in $(seq 400); do printf '\320\232\320\276\320\264 \321\200\320\260\320\261\320\276\321\202\320\260\320\265\321\202 %s.\n' "$i"; done >"$work/seventh.txt"
XDG_CACHE_HOME=some/cache start seventh 0
[ "$(grep -c 'XDG_CACHE_HOME is ignored' "$work/out")" -eq 1 ] && grep -q 'set-up sees no cache' "$work/out" ||
  { echo "a relative cache is not ignored:"; cat "$work/out"; failed=1; }

# Documents are counted as bert counts them, even if empty lines separate paragraphs.
sed G "$work/prose.txt" >"$work/eighth.txt"
start eighth 0
[ -s "$made/sentences.txt" ] || { echo "one document is not cut:"; cat "$work/out"; failed=1; }

if command -v python3 >/dev/null; then
  timeout 120 python3 "$root/tests/scripts/wheels_test.py" || failed=1
  timeout 120 python3 "$root/tests/scripts/sbom_test.py" || failed=1
else
  echo "no python3: what app/setup/wheels.py reads of pip's configuration, and app/setup/sbom.py, is not tested"
fi
exit $failed
