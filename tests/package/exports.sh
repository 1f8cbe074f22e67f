#!/usr/bin/env bash
# tests/package/exports.sh LIBDIR: checks that our shared libraries in LIBDIR export no symbol of others, and that nothing but
# libbert_sentencepiece.so needs sentencepiece. Without this, LibTorch may bind to copies of templates that another compiler made: Note
# [Sentencepiece apart] in data/tokenizer/sentencepiece_library.h. Part of tests/run.sh; needs binutils.
set -euo pipefail
code=0
complain() { echo "$*" >&2; code=1; }

exported() { nm -D --defined-only --format=posix "$1" | cut -d ' ' -f 1 | sort; }
own='^((vtable|VTT|construction vtable|typeinfo|typeinfo name|guard variable|virtual thunk|non-virtual thunk) (for|to) )?bert::'
names=$(exported "$1/libbert.so")
for name in bert_torch_command bert_torch_describe; do
  grep -qx $name <<<"$names" || complain "libbert.so does not export $name"
  names=$(grep -vx $name <<<"$names")
done
foreign=$(c++filt <<<"$names" | grep -vE "$own" || true)
[ -z "$foreign" ] || complain "libbert.so exports what is not its own: $(head -n 5 <<<"$foreign")"
count=$(wc -l <<<"$names")
[ "$count" -ge 200 ] || complain "libbert.so exports only $count symbols"

[ "$(exported "$1/libbert_sentencepiece.so")" = bert_sentencepiece_library ] ||
  complain "libbert_sentencepiece.so exports more than one function: $(exported "$1/libbert_sentencepiece.so" | c++filt)"
needs=$(ldd "$1/libbert.so")
! grep sentencepiece <<<"$needs" >&2 || complain "libbert.so needs sentencepiece"
! grep 'not found' <<<"$needs" >&2 || complain "libraries are missing"
exit $code
