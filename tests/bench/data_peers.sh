#!/usr/bin/env bash
# tests/bench/data_peers.sh [--dump FILE] [--text FILE]... [--vocab FILE] [--json FILE]
# Prints the figures of `bert benchmark data` beside those of the Python programs that people use, in one run: WordPiece beside Hugging
# Face's tokenizers, extraction of a Wikipedia dump beside wikiextractor, and examples beside Google's algorithm in Python
# (google_examples.py). Each figure is per second of processor time, so it holds for one core, also on a busy machine. At the end stands what
# the full English Wikipedia costs by these figures.
#
#   --dump FILE   a MediaWiki dump, XML or bzip2; without it extraction has no peer, and Wikipedia no estimate
#   --text FILE   prose; default: the novels in ../shared/data
#   --vocab FILE  default: bert-base-uncased-vocab.txt in ../shared/data
#   --json FILE   also write the figures to FILE
#
# The Python programs go into build/data-peers, an environment of their own, with the versions in data_peers.txt. Exit codes: 0 ok; 2 usage;
# 66 something is missing; 69 no network; others from the programs that failed.
#
# Example: tests/bench/data_peers.sh --dump enwiki-latest-pages-articles1.xml-p1p41242.bz2
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
root=$(cd "$here/../.." && pwd)
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
  esac
done
bert=$root/build/bert
[ -x "$bert" ] || { echo "build/bert is missing; app/setup.sh builds it" >&2; exit 66; }
peers=$root/build/data-peers
if ! cmp -s "$here/data_peers.txt" "$peers/installed.txt"; then
  rm -rf "$peers"
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet --no-deps --requirement "$here/data_peers.txt" || { echo "cannot install the Python programs; pip says why above" >&2; exit 69; }
  cp "$here/data_peers.txt" "$peers/installed.txt"
fi
exec "$peers/bin/python" "$here/data_peers.py" --bert "$bert" --shared "$root/../shared/data" "$@"
