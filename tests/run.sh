#!/usr/bin/env bash
# tests/run.sh [OPTIONS] [FILTER]
# Installs, builds and runs the tests. FILTER is a tag like [optim] or part of a test's name.
#
#   --slow   also the tests tagged [slow]
#   --asan   the tests that need no LibTorch, under AddressSanitizer and UndefinedBehaviorSanitizer (in build-asan/)
#   --tsan   the same under ThreadSanitizer (in build-tsan/)
#   --fuzz SECONDS  libFuzzer's targets instead of the tests, each for so long (tests/fuzz/fuzz.sh); FILTER is the name of one
#   --gpu    with CUDA: only the tests tagged [cuda], which fail without a GPU
#   --user   install without root (app/setup.sh --help)
#
# Prints at the end the reason and the number of skips, and `N passed, N failed, N skipped` in test cases. Exit code 0 if none failed.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
build=$root/build filter= slow='~[slow]' setup=() sanitized=
while [ $# -gt 0 ]; do
  case $1 in
    --slow) slow= ;;
    --asan) sanitized=1 build=$root/build-asan setup+=(--build "$root/build-asan" -DBERT_SANITIZE=address -DBERT_WITH_TORCH=OFF) ;;
    --tsan) sanitized=1 build=$root/build-tsan setup+=(--build "$root/build-tsan" -DBERT_SANITIZE=thread -DBERT_WITH_TORCH=OFF) ;;
    --fuzz) exec "$root/tests/fuzz/fuzz.sh" "${@:2}" ;;
    --gpu) export BERT_TEST_DEVICE=cuda; filter='[cuda]' setup+=(--cuda) ;;
    --user) setup+=(--user) ;;
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    -*) echo "tests: unknown option $1; see tests/run.sh --help" >&2; exit 2 ;;
    \[* | ~*) filter+=$1 ;;
    *) filter+="*$1*" ;;
  esac
  shift
done

targets=(test_binaries)
[ -n "$sanitized" ] || { targets+=(all null_device); setup+=(--nvcc); }
"$root/app/setup.sh" "${setup[@]}" "${targets[@]}" || exit $?

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
chmod 711 "$results"  # for the other users of some tests
mkdir "$results/tmp"
export TMPDIR=$results/tmp  # failing jobs of bertrun leave their logs here
passed=0 failed=0 skipped=0

# check NAME COMMAND...: runs one test case that is not in a binary
check() {
  local name=$1
  shift
  if "$@" >"$results/check" 2>&1; then
    passed=$((passed + 1))
    echo "ok: $name"
  else
    failed=$((failed + 1))
    cat "$results/check"
    echo "FAILED: $name"
  fi
}

if [ -z "$filter$sanitized" ]; then
  check "layering, and faults that it must find" "$root/tests/scripts/layering_test.sh"
  check "tests/faults.sh counts what it plants" "$root/tests/scripts/faults_test.sh"
  check "CMakePresets.json" cmake -S "$root" --list-presets=all
  check "set-up and the quick start refuse what they cannot use" "$root/tests/scripts/setup_test.sh"
  if grep -q '^build cuda_compile:' "$build/build.ninja"; then  # before the binaries, because one test reads its output
    kernels=cuda_compile
    [ -n "$slow" ] || kernels=cuda_compile_all
    check "every .cu file compiles with nvcc ($kernels)" "$root/app/setup.sh" "${setup[@]}" $kernels
  else
    echo "SKIPPED: no nvcc, so the .cu files were not compiled for the device" >>"$results/skips"
    passed=$((passed + 1))
  fi
fi

# The binaries and the scripts run at the same time, because most of them sometimes wait for a process, a file or the other core. A test
# case without assertions fails. Hidden test cases are the ranks of other tests. The variable shortens the spinning of OpenMP, as bert does
# for itself (app/system/machine/libbert.cc).
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
mapfile -t binaries <"$build/test_binaries.txt"
# The tests tagged [cuda] run on a GPU, or else on the device of host memory, with bert_tests' twin.
device=null_device not_here=
if [ -z "$sanitized" ] && grep -q '^build null_device/bin/bert_tests' "$build/build.ninja"; then
  binaries=("$device" "${binaries[@]}") not_here='~[cuda]'
elif [ -z "$sanitized${BERT_TEST_DEVICE:-}" ]; then
  echo "SKIPPED: there is no device of host memory: it needs LibTorch 2.11 with libtorch_cuda.so, nvcc and CUDA's headers" >>"$results/skips"
  passed=$((passed + 1))
fi
for binary in "${binaries[@]}"; do
  (
    code=0 here=$not_here
    program=("$(find "$build" -maxdepth 2 -type f -name "$binary")")
    [ "$binary" != $device ] || program=("$root/tests/null_device/run" "$build/tests/bert_tests") here='[cuda]'
    "${program[@]}" -w NoAssertions "$here~[.]$slow$filter" </dev/null >"$results/$binary" 2>&1 || code=$?
    echo $code >"$results/$binary.code"
  ) &
done
if [ -z "$filter$sanitized" ]; then
  (
    passed=0 failed=0
    mapfile -t built < <(find "$build" -maxdepth 2 -type f \( -name libbert.so -o -name bert -o -name bertrun -o -name 'bert_tests*' \) -perm -u+x)
    check "no program looks for libraries in the current directory" "$root/tests/scripts/runpath.sh" "${built[@]}"
    check "programs and libraries are hardened" "$root/tests/scripts/hardening.sh" "${built[@]}"
    check "links and commands in the pages" "$root/tests/scripts/pages_test.sh" "$build"
    check "the quick start's table fine-tunes, and its model answers" "$root/tests/scripts/quickstart_test.sh" "$build"
    check "help, completion and manual pages" "$root/tests/scripts/command_lines.sh" "$build"
    passed=$((passed + $(grep -c '^SKIPPED: ' "$results/check" || true)))
    grep '^SKIPPED: ' "$results/check" >>"$results/skips" || true
    check "the loops of one instruction set share no code with another's" "$root/tests/scripts/shared_code.sh" "$build"
    check "a program outside of the tree trains with the installed library" "$root/tests/package/package.sh" "$build"
    if command -v python3 >/dev/null && command -v patchelf >/dev/null && command -v dpkg-deb >/dev/null; then
      check "an archive of an installation is complete and says what is in it" "$root/tests/package/archive.sh" "$build"
    else
      echo "SKIPPED: packing an archive needs python3, patchelf and Debian" >>"$results/skips"
      passed=$((passed + 1))
    fi
    if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
      check "another user runs what root has installed" "$root/tests/package/other_user.sh" "$build"
    else
      echo "SKIPPED: installing for another user needs root and setpriv" >>"$results/skips"
      passed=$((passed + 1))
    fi
    check "the GPU lane runs on the device of host memory and reports what breaks" "$root/tests/gpu.sh" selftest "$build" --tests '*ropout*'
    echo "$passed $failed" >"$results/scripts.counts"
  ) >"$results/scripts" 2>&1 &
fi
wait
if [ -e "$results/scripts" ]; then
  cat "$results/scripts"
  read -r more wrong <"$results/scripts.counts"
  passed=$((passed + more)) failed=$((failed + wrong))
fi
asserted=0
for binary in "${binaries[@]}"; do
  log=$results/$binary code=$(cat "$results/$binary.code")
  grep -a '^SKIPPED: ' "$log" >>"$results/skips" || true
  # Catch2's last lines: "All tests passed (A assertions in T test cases)", or "test cases: T | P passed | F failed".
  line=$(grep -aE '^(All tests passed|test cases:|No tests ran|No test cases matched)' "$log" | tail -n 1 || true)
  cases=$(sed -nE 's/.* in ([0-9]+) test cases?.*/\1/p; s/^test cases: +([0-9]+).*/\1/p' <<<"$line")
  wrong=$(sed -nE 's/.*\| +([0-9]+) failed.*/\1/p' <<<"$line")
  cases=${cases:-0} wrong=${wrong:-0}
  [[ "$line" == "No test"* ]] || asserted=$((asserted + cases))
  if [ "$code" -ne 0 ] && [ "$wrong" -eq 0 ] && [[ "$line" != "No test"* ]]; then
    wrong=1  # the binary crashed, or a test case had no assertion
    [ $cases -gt 0 ] || cases=1
  fi
  if [ -z "$filter" ] && { [ $cases -eq 0 ] || grep -aq '^assertions: - none -' "$log"; }; then
    echo "$binary ran no assertion"
    cases=1 wrong=1
  fi
  if [ "$wrong" -gt 0 ]; then
    cat "$log"
    echo "FAILED: $binary (exit code $code)"
  else
    echo "ok: $binary, ${line:-nothing to run}"
  fi
  passed=$((passed + cases - wrong)) failed=$((failed + wrong))
done
if [ $asserted -eq 0 ]; then
  echo "no test ran${filter:+ for $filter}"
  failed=$((failed + 1))
fi

if [ -s "$results/skips" ]; then
  skipped=$(wc -l <"$results/skips")
  passed=$((passed - skipped))
  echo "skipped:"
  sed 's/^SKIPPED: //' "$results/skips" | sort | uniq -c | sort -rn
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
