#!/usr/bin/env bash
# tests/scripts/shared_code.sh BUILD: checks the objects of the CPU's loops, which are compiled once for each instruction set. They must not
# define symbols that a linker may merge: it would keep one copy, perhaps with instructions that an older processor lacks. Part of
# tests/run.sh; needs binutils.
set -euo pipefail
mapfile -t objects < <(find "$1" -path '*bert_cpu_simd.dir*' \( -path '*/simd/kernels_*.o' -o -path '*/simd/optim_*.o' \))
[ ${#objects[@]} -ge 7 ] || { echo "$1 has ${#objects[@]} objects of simd/kernels_*.cc and simd/optim_*.cc, expected 7 or more"; exit 1; }
weak=0
for object in "${objects[@]}"; do
  symbols=$(nm -C "$object" | grep -E ' [uVvWw] ' || true)
  [ -z "$symbols" ] || { weak=1; echo "$object: expected no weak symbols, got"; echo "$symbols"; }
done
exit $weak
