#!/usr/bin/env bash
# tests/fuzz/fuzz.sh SECONDS [TARGET...]
# Builds the targets in tests/fuzz/targets in build-fuzz/, and feeds each for SECONDS with libFuzzer, under AddressSanitizer and
# UndefinedBehaviorSanitizer, at low priority. Needs clang and its runtime libraries (Debian's clang-14 and libclang-rt-14-dev), which it
# installs as root. Inputs that reach new code stay in build-fuzz/corpus/TARGET, where the next run begins. An input that crashes a target,
# takes more than 10 s or 2 GB, or gives a wrong result is left in build-fuzz/findings.
#
# Prints a line for each target, and `N passed, N failed, N skipped`. Exit code 0 if none failed.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
build=$root/build-fuzz
[[ "${1:-}" =~ ^[0-9]+$ ]] || { sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0" >&2; exit 2; }
seconds=$1
shift

# Prints the name of a clang++ with libFuzzer, if there is one.
find_clang() {
  local compiler
  for compiler in clang++-14 clang++; do
    if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$compiler" -fsanitize=fuzzer,address,undefined -x c++ - -o "$build/probe" 2>/dev/null; then
      echo "$compiler"
      return
    fi
  done
}
mkdir -p "$build/findings"
compiler=$(find_clang)
if [ -z "$compiler" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends clang-14 libclang-rt-14-dev; } >/dev/null || true
  compiler=$(find_clang)
fi
if [ -z "$compiler" ]; then
  echo "there is no clang with libFuzzer; install Debian's clang-14 and libclang-rt-14-dev" >&2
  exit 66
fi
"$root/app/setup.sh" --build "$build" -DCMAKE_CXX_COMPILER="$compiler" -DBERT_SANITIZE=fuzzer -DBERT_WITH_TORCH=OFF bert_fuzz || exit $?

program=$(find "$build" -maxdepth 2 -type f -name bert_fuzz)
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -nE 's/^FuzzTarget ([a-z0-9_]+)_target\(\);$/\1/p' "$root/tests/fuzz/targets/fuzz_targets.h")
passed=0 failed=0
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target log=$build/$target.log code=0
  mkdir -p "$corpus"
  BERT_FUZZ_TARGET=$target BERT_FUZZ_SEEDS=$corpus nice -n 19 "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$build/findings/$target-" "$corpus" >"$log" 2>&1 </dev/null || code=$?
  if [ $code -eq 0 ]; then
    passed=$((passed + 1))
    echo "ok: $target, $(sed -nE 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
  else
    failed=$((failed + 1))
    tail -n 40 "$log"
    echo "FAILED: $target (exit code $code); all of its output is in $log"
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
