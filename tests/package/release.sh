#!/usr/bin/env bash
# tests/package/release.sh [ARCHIVE.tar.gz]: the archive of app/setup.sh --package works on machines that have nothing: the base system of Debian
# 12 and of Debian 13, each in a directory, without compiler and Python. There it goes from text to vocabulary, examples, a short training and
# its continuation on two ranks, and answers. Without ARCHIVE it makes one, twice, which must give the same bytes, and a .deb, which is installed.
# Prints sizes, and the start times on warm files. Needs root, debootstrap and Debian's archive; not part of tests/run.sh.
#
#   BERT_SPDX_PYTHON=PYTHON   also read the list of contents with spdx-tools of PyPI, which PYTHON has
#   BERT_BARE=DIR             keep the two base systems in DIR for the next run
set -euo pipefail
source=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$(cd "$source/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
fail() { echo "release: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "chroot needs root"
command -v debootstrap >/dev/null || fail "there is no debootstrap; install it"

archive=${1:-} deb=
if [ -z "$archive" ]; then
  archive=$work/bert.tar.gz deb=$work/bert.deb
  "$root/app/setup.sh" --package "$archive"
  "$root/app/setup.sh" --package "$work/again.tar.gz"
  cmp "$archive" "$work/again.tar.gz" || fail "two archives of one build differ"
  "$root/app/setup.sh" --package "$deb"
fi
mkdir "$work/tree"
tar -C "$work/tree" -xzf "$archive"
tree=$(echo "$work"/tree/*)
[ -x "$tree/bin/bert" ] || fail "the archive holds $(ls "$work/tree"), not one directory with bin/bert"
"$source/sbom_check.py" "$tree"
"$source/../scripts/runpath.sh" "$tree"/bin/* "$tree"/lib/*.so "$tree"/lib/bert/debian/* || fail "of the archive"
paths=$(grep -rlIF -e "$root/" -e "$HOME/.cache" "$tree" || true)
[ -z "$paths" ] || fail "these texts name the machine that made them: $paths"
echo "archive $(stat -c %s "$archive") bytes, unpacked $(du -sb "$tree" | cut -f 1) bytes"

# base RELEASE: prints the path of a tar with the base system
base() {
  local bare=${BERT_BARE:-$work} mirror
  if [ ! -e "$bare/$1.tar" ]; then
    mirror=$(grep -hE '^URIs:' /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '{print $2; exit}')
    debootstrap --variant=minbase "$1" "$work/make" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
      { tail -n 3 "$work/log" >&2; fail "no base system of $1"; }
    tar -C "$work/make" -cf "$bare/$1.new" . && mv "$bare/$1.new" "$bare/$1.tar"
    rm -rf "$work/make"
  fi
  echo "$bare/$1.tar"
}
inside() {  # inside DIR COMMAND...: as process 1 of the base system in DIR, with its own /proc
  unshare --mount --pid --fork --kill-child --mount-proc="$1/proc" chroot "$1" /usr/bin/env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin "${@:2}"
}

cat >"$work/inside.sh" <<'SCRIPT'
set -euo pipefail
for program in gcc g++ cc c++ cmake python3; do ! command -v $program || { echo "this machine has $program"; exit 1; }; done
top=$1 bin=$1/bin share=$1/share/bert
mkdir /tmp/w && cd /tmp/w
quietly() { "$@" >log 2>&1 || { cat log; echo "failed: $*"; exit 1; }; }
missing=$(ldd "$bin"/* "$top"/lib/*.so | grep 'not found' || true)
[ -z "$missing" ] || { echo "$missing"; exit 1; }
"$bin/bert" version
quietly "$bin/bert" doctor
cp "$top/share/doc/bert/licences/torch/LICENSE" text
quietly "$bin/bert" vocab --input text --size 2000 --allow-fewer --allow-fewer-characters --output vocab.txt
quietly "$bin/bert" data create --split-sentences --input text --vocab vocab.txt --max-seq-length 64 --max-predictions-per-seq 26 \
  --masked-lm-prob 0.4 --output train.shard --validation-output validation.shard --validation-share 0.1
train=(pretrain "$share/configs/quickstart.json" data.train=train.shard data.validation=validation.shard data.vocab_file=vocab.txt
  model.vocab_size="$(wc -l <vocab.txt)" micro_batch_size=8 max_steps=40 evaluate_every=20 log_every=10 checkpoint_every=20)
quietly "$bin/bert" config validate "$share/configs/quickstart.json"
quietly "$bin/bert" "${train[@]}" run_directory=one
quietly "$bin/bert" "${train[@]}" run_directory=two stop_at_step=20
quietly "$bin/bertrun" --nproc-per-node 2 bert "${train[@]}" run_directory=two
for run in one two; do
  grep -q '"steps": *40' $run/summary.json || { cat $run/summary.json; exit 1; }
  "$bin/bert" predict --checkpoint $run --task fill-mask --top-k 1 "the [MASK] of the software"
done
quietly "$bin/bert" export --checkpoint one --format torchscript --output bert.pt

best() {  # best NAME COMMAND...: prints the least ms of 10
  local least= ms i begin
  for i in $(seq 10); do
    begin=$(date +%s%N)
    "${@:2}" >/dev/null 2>&1
    ms=$((($(date +%s%N) - begin) / 10000))
    [ -n "$least" ] && [ $ms -ge $least ] || least=$ms
  done
  printf '%s: %d.%02d ms\n' "$1" $((least / 100)) $((least % 100))
}
best "bert --help" "$bin/bert" --help
best "bert config validate" "$bin/bert" config validate "$share/configs/quickstart.json"
best "bert version" "$bin/bert" version
best "bert predict, a run" "$bin/bert" predict --checkpoint one --task fill-mask "the [MASK] of the software"
best "bert predict, an export" "$bin/bert" predict --checkpoint bert.pt --task fill-mask "the [MASK] of the software"
SCRIPT

for release in bookworm trixie; do
  bare=$work/$release
  mkdir "$bare"
  tar -C "$bare" -xf "$(base $release)"
  name=$(. "$bare/etc/os-release" && echo "$PRETTY_NAME")
  mkdir -p "$bare/opt"
  cp "$archive" "$bare/tmp/archive.tar.gz"
  inside "$bare" tar -C /opt -xzf /tmp/archive.tar.gz
  mv "$bare/opt/$(basename "$tree")" "$bare/opt/anywhere"
  cp "$work/inside.sh" "$bare/tmp"
  echo "$name:"
  inside "$bare" bash /tmp/inside.sh /opt/anywhere || fail "the archive does not work on $name"
  if [ -n "$deb" ]; then
    rm -rf "$bare/opt/anywhere"
    cp "$deb" "$bare/tmp"
    inside "$bare" dpkg -i "/tmp/$(basename "$deb")" >"$work/log" 2>&1 || { cat "$work/log"; fail "$name does not install the .deb"; }
    inside "$bare" bert doctor >"$work/log" || true
    grep -q '^ok    LibTorch' "$work/log" || fail "bert of the .deb does not run on $name"
    inside "$bare" bertrun --help >"$work/log" || fail "bertrun of the .deb does not run on $name"
    inside "$bare" dpkg --purge bert >"$work/log" 2>&1 && [ ! -e "$bare/opt/bert" ] || { cat "$work/log"; fail "$name does not remove the .deb"; }
    echo ".deb: installed, ran, removed; $(stat -c %s "$deb") bytes"
  fi
  rm -rf --one-file-system "$bare"
done
