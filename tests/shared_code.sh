#!/usr/bin/env bash
# tests/shared_code.sh BUILD: the CPU's loops, which are compiled once for each instruction set, define nothing that a linker may merge
# with another object's: it would keep one copy, perhaps the one whose instructions an older processor does not have. Part of
# tests/run.sh; needs binutils.
set -euo pipefail
mapfile -t objects < <(find "$1" -path '*bert_cpu_simd.dir*' \( -name 'cpu_simd_*.o' -o -name 'cpu_optim_*.o' \))
[ ${#objects[@]} -ge 7 ] || { echo "$1 has ${#objects[@]} objects of cpu_simd_*.cc and cpu_optim_*.cc, expected 7 or more"; exit 1; }
weak=0
for object in "${objects[@]}"; do
  symbols=$(nm -C "$object" | grep -E ' [uVvWw] ' || true)
  [ -z "$symbols" ] || { weak=1; echo "$object: expected no weak symbols, got"; echo "$symbols"; }
done
exit $weak
