#!/usr/bin/env bash
# tests/scripts/hardening.sh FILE...: checks that each program or library FILE is position-independent, that its tables of addresses are
# read-only once it runs (RELRO with BIND_NOW), that its stack is not executable, and that functions with buffers check their ends (stack
# protector, FORTIFY_SOURCE). Part of tests/run.sh; needs binutils.
set -euo pipefail
code=0
for file in "$@"; do
  lacks=()
  segments=$(readelf -lW "$file") dynamic=$(readelf -dW "$file") symbols=$(readelf --dyn-syms -W "$file")
  grep -q 'Elf file type is DYN' <<<"$segments" || lacks+=("position-independent code")
  grep -q GNU_RELRO <<<"$segments" || lacks+=(RELRO)
  grep -qE '\(BIND_NOW\)|Flags:.* NOW' <<<"$dynamic" || lacks+=(BIND_NOW)
  grep -E GNU_STACK <<<"$segments" | grep -q 'RWE' && lacks+=("a stack without code")
  grep -q __stack_chk_fail <<<"$symbols" || lacks+=("the stack protector")
  # A plugin of one file may call no function that FORTIFY_SOURCE checks.
  [[ "$(basename "$file")" == libbert_*.so ]] || grep -qE '__(mem|str|f?printf|vs?n?printf|snprintf|read|recv|fd|poll|pread|longjmp)[a-z]*_chk' <<<"$symbols" ||
    lacks+=(FORTIFY_SOURCE)
  [ ${#lacks[@]} -eq 0 ] || { printf '%s lacks %s\n' "$file" "$(printf '%s, ' "${lacks[@]}")" >&2; code=1; }
done
exit $code
