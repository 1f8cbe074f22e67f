#!/usr/bin/env bash
# Compares `bert data extract wikipedia` with wikiextractor: MB of XML per second of processor time, and the sentences that
# only one of them keeps. Makes a Python environment of its own in build/wikiextractor.
# Usage: tests/bench/wikiextractor.sh DUMP.xml
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dump=$(readlink -f "$1")
environment=$root/build/wikiextractor
if [ ! -x "$environment/bin/python" ]; then
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet wikiextractor==3.1.0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%U %S'
{ time "$root/build/bert" data extract wikipedia "$dump" --output "$work/ours" --num-threads 1 --with-titles --keep-duplicates \
  --min-characters 0 >/dev/null 2>&1; } 2>"$work/ours.time"
{ time "$environment/bin/python" -m wikiextractor.WikiExtractor "$dump" -o "$work/theirs" --processes 1 --no-templates -q \
  >/dev/null 2>&1; } 2>"$work/theirs.time"
python3 - "$work" "$dump" <<'PY'
import html, os, pathlib, re, sys
work, dump = pathlib.Path(sys.argv[1]), sys.argv[2]
text = {name: "\n".join(p.read_text() for p in sorted((work / name).rglob("*")) if p.is_file() and p.name[0] != ".")
        for name in ("ours", "theirs")}
for name in text:
    seconds = sum(map(float, (work / f"{name}.time").read_text().split()))
    print(f"{name}: {os.path.getsize(dump) / 1e6 / seconds:.1f} MB of XML per second of one core")
words = lambda s: re.findall(r"\w+", html.unescape(s).lower())
grams = lambda w: {tuple(w[i:i + 3]) for i in range(len(w) - 2)}
for kept, other in (("theirs", "ours"), ("ours", "theirs")):
    known = grams(words(text[other]))
    sentences = [s for line in text[kept].split("\n") for s in re.split(r"(?<=[.!?])\s+", line) if len(s.split()) >= 6]
    # A sentence is kept if three of five of its word trigrams are.
    lost = [s for s in sentences if len(grams(words(s)) & known) < 0.6 * len(grams(words(s)))]
    print(f"{len(lost)} of {len(sentences)} sentences of {kept} are not in {other}, for example: {lost[:3]}")
PY
