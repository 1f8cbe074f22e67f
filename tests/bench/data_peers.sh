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
# The Python programs go into build/data-peers-python, an environment of their own, with the versions in data_peers.txt. Exit codes: 0 ok; 2 usage;
# 66 something is missing; 69 no network; others from the programs that failed.
#
# Example: tests/bench/data_peers.sh --dump enwiki-latest-pages-articles1.xml-p1p41242.bz2

. "$(dirname "$(readlink -f "$0")")/peers.sh"
need
install_peers "" --no-deps
exec "$python" "$here/data_peers.py" --bert "$bert" --shared "$root/../shared/data" "$@"
