#!/usr/bin/env bash
# tests/gpu.sh pack DIR [--build BUILD] [--text FILE] [--peer FILE] [--lengths FILE] [--parts A,B]
# tests/gpu.sh run DIR --output OUT [--full | --parts A,B] [--emulate] [--libtorch DIR] [--tools DIR] [--peer FILE] [--lengths FILE] [--tests F] [--minutes N]
# tests/gpu.sh selftest BUILD [--tests F]
#
# The GPU lane. `pack` builds with CUDA for Hopper and makes a relocatable tree of at most 60 MiB. `run` tests and measures it on a machine
# with a GPU and the release of LibTorch that the programs were built against; another is refused. It needs no other package, no network and no root,
# and ends within 9 minutes. If that machine's C++ runtime is older than this build's, the runtime in the tree is used. The parts that say most
# come first, and gpu.json has every figure as soon as it is measured: a run that is cut loses nothing. pack keeps --peer, --lengths and --parts
# in the tree, and run uses these unless it is given others. The sanitizer and the profile come last and take minutes: --full leaves them to a second call.
# From a build without CUDA, pack makes a rehearsal: a tree with a CUDA device of host memory (tests/README.md), which `run --emulate` takes.
#
#   --build BUILD   pack the programs in BUILD instead of building in build-gpu/ (bert bertrun bert_tests; without CUDA: null_device)
#   --text FILE     English text for the training runs; default: the pages of the source tree
#   --output OUT    directory for gpu.json (the report) and gpu.log (the output of all parts); written even if a part fails
#   --emulate       without a GPU: the same parts on the rehearsal's device, with tiny sizes
#   --libtorch DIR  directory of the torch package or of LibTorch; default: the torch package of python3
#   --tools DIR     directory of compute-sanitizer and ncu; default: PATH, then /usr/local/cuda/bin; without them their parts say so
#   --peer FILE     a script that times Hugging Face's step (its flags: --size --batch --length --lengths --precision --device --steps)
#   --lengths FILE  sequence lengths, one a line, for a step on 128 real lengths
#   --full          everything, in two calls with one OUT: the first leaves out sanitizer and profile, the second makes what gpu.json lacks
#   --parts A,B     only these parts of: steps twins doctor tests training repeatable kernels sanitizer profile; default all
#   --tests F       run only the tests tagged [cuda] that match F, a Catch2 filter; default all
#   --minutes N     time limit of the whole run; default 8.7
#   selftest        tests this script: packs the rehearsal of BUILD, runs it, breaks it, and checks the reports of both runs
#
# Exit codes of run: 0 every part passed or could not be measured here; 1 a part failed; 2 usage; 66 something is missing. pack exits with
# 77 if DIR holds something other than a packed tree.
#
# Example: tests/gpu.sh pack build-gpu/lane
#          tests/gpu.sh run build-gpu/lane --output /tmp/gpu --full    # twice
set -euo pipefail
script=$(readlink -f "$0")
root=$(cd "$(dirname "$script")/.." && pwd)
die() { echo "gpu: ${*:2}" >&2; exit "$1"; }

# ---- pack ----
max_bytes=$((60 * 1024 * 1024))

parts_in_order=(steps twins doctor tests training repeatable kernels sanitizer profile)
check_parts() {
  local name
  for name in ${wanted//,/ }; do declare -F "part_$name" >/dev/null || die 2 "there is no part $name; see --help"; done
}

# version_of DIR: the release of the torch package or LibTorch in DIR, read as app/setup/libtorch.cmake does
version_of() {
  local header=$1/include/torch/headeronly/version.h version
  [ -f "$header" ] || header=$1/include/torch/csrc/api/include/torch/version.h  # up to 2.8
  version=$(sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$header" 2>/dev/null | paste -sd . || true)
  echo "${version:-unknown}"
}
# libtorch_of LIBRARY: directory of the LibTorch that LIBRARY was built against
libtorch_of() {
  local found
  found=$(ldd "$1" | awk '/libtorch_cpu.so/ {print $3}')
  (cd "$(dirname "$found")/.." && pwd)
}

# Libraries of every machine with LibTorch: the C library and the libraries beside LibTorch, with NVIDIA's. A rehearsal has its own of NVIDIA's.
beside_torch='lib(c|m|dl|rt|pthread|util|resolv)\.so|ld-linux|lib(torch|c10|gomp|shm|caffe2|mkl|omp)[^/]*$'
everywhere="$beside_torch|"'lib(cud|cu(blas|fft|file|pti|rand|solver|sparse)|nv[a-zA-Z]*|nccl)[^/]*$'
is_rehearsal() { grep -qa libnull_device_operators.so "$1/bin/libbert.so"; }  # is_rehearsal TREE
# The C++ runtime. The other machine's may be older than the one of this build.
runtime='lib(stdc\+\+|gcc_s)\.so'

# Shared libraries of FILE... that such a machine may lack: those from Debian's packages.
libraries_of() { ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -Ev "/($everywhere|$runtime)" || true; }
runtime_of() { ldd "$@" | awk '$2 == "=>" {print $3}' | sort -u | grep -E "/$runtime" || true; }

# Names of libraries that files of the tree DIR need and that are neither in DIR nor on every machine.
missing_from() {
  local name elsewhere=$everywhere
  ! is_rehearsal "$1" || elsewhere=$beside_torch
  readelf -d "$1"/bin/* "$1"/lib/* | sed -nE 's/.*\(NEEDED\).*\[(.*)\]$/\1/p' | sort -u | grep -Ev "^($elsewhere|$runtime)" |
    while read -r name; do [ -e "$1/lib/$name" ] || [ -e "$1/bin/$name" ] || echo "$name"; done
}

pack() {
  local into=$1 build=$2 text=("$3") program library missing rehearsal=""
  check_parts
  [ -n "$3" ] || text=("$root"/*.md "$root"/*/README.md)
  local programs=(bert bertrun libbert.so libbert_sentencepiece.so tests/bert_tests) how=--cuda what="bert bertrun bert_tests"
  # Only an empty directory or an earlier tree is replaced.
  [ -z "$(ls -A "$into" 2>/dev/null)" ] || { [ -e "$into/commit" ] && { [ -e "$into/programs.tar.gz" ] || [ -d "$into/bin" ]; }; } ||
    die 77 "$into holds other things than a packed tree; name a new directory"
  if [ -z "$build" ]; then
    build=$root/build-gpu
    "$root/app/setup.sh" --cuda --build "$build" -DCMAKE_CUDA_ARCHITECTURES=90-real $what
  elif [ -e "$build/libbert.so" ] && [[ $(readelf -d "$build/libbert.so") != *libtorch_cuda* ]]; then
    rehearsal=1 how=--nvcc what=null_device
    programs=(null_device/bin/{bert,bertrun,libbert.so,libbert_sentencepiece.so,bert_tests})
  fi
  for program in "${programs[@]}"; do
    [ -e "$build/$program" ] || die 66 "$build has no $program; build it with app/setup.sh $how --build $build $what"
  done
  rm -rf "$into"
  mkdir -p "$into/bin" "$into/lib" "$into/fallback" "$into/configs" "$into/data"
  version_of "$(libtorch_of "$build/libbert.so")" >"$into/libtorch"
  git -C "$root" describe --always --dirty >"$into/commit" 2>/dev/null || echo unknown >"$into/commit"
  for program in "${programs[@]}"; do cp "$build/$program" "$into/bin/"; done
  [ -z "$rehearsal" ] || cp "$build"/null_device/lib/* "$into/lib/"
  strip --strip-unneeded "$into"/bin/* ${rehearsal:+"$into"/lib/*}
  for library in $(libraries_of "$into"/bin/*); do
    [ -e "$into/lib/$(basename "$library")" ] || cp -L "$library" "$into/lib/"
  done
  for library in $(runtime_of "$into"/bin/*); do cp -L "$library" "$into/fallback/"; done
  missing=$(missing_from "$into")
  [ -z "$missing" ] || die 1 "$into lacks libraries that its programs need: $missing"
  "$root/tests/scripts/runpath.sh" "$into"/bin/* "$into"/lib/* || die 1 "build $build again"
  [ -z "$peer" ] || cp "$peer" "$into/peer.py"
  [ -z "$lengths" ] || cp "$lengths" "$into/lengths.txt"
  [ -z "$wanted" ] || echo "$wanted" >"$into/parts"
  cp "$root"/configs/bert-base.json "$root"/configs/bert-large.json "$into/configs/"
  cp "$script" "$into/gpu.sh"

  # Makes examples from the text, with the packed program.
  local bert="$into/bin/bert"
  "$bert" vocab --input "${text[@]}" --size 2000 --output "$into/data/vocab.txt" 2>"$into/data/log"
  "$bert" data create --split-sentences --input "${text[@]}" --vocab "$into/data/vocab.txt" --output "$into/data/train.shard" \
    --max-seq-length 128 --dupe-factor 20 --random-seed 1 2>>"$into/data/log" >&2
  rm "$into/data/log"
  # Attention dropout is off: on CUDA LibTorch draws its masks, which differ between precisions.
  cat >"$into/data/train.json" <<-'JSON'
	{
	  "run_directory": "run", "seed": 1, "device": "cuda", "precision": "fp32",
	  "max_steps": 300, "micro_batch_size": 32, "global_batch_size": 32, "checkpoint_every": 0, "evaluate_every": 0, "log_every": 10,
	  "model": {"vocab_size": 2000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024,
	    "max_position_embeddings": 128, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0},
	  "data": {"train": ["train.shard"], "vocab_file": "vocab.txt"},
	  "optimizer": {"type": "lamb", "lr": 4e-3}, "schedule": {"type": "linear", "warmup_proportion": 0.1}
	}
	JSON
  [ -z "$rehearsal" ] || echo "gpu: $build is without CUDA: the tree is a rehearsal, for --emulate only"
  local bytes files
  files=$(find "$into/bin" "$into/lib" -type f | wc -l)
  tar -C "$into" --remove-files -czf "$into/programs.tar.gz" bin lib fallback  # a third of the size; `run` unpacks it
  bytes=$(du -sb "$into" | cut -f 1)
  [ "$bytes" -le $max_bytes ] || die 1 "$into has $bytes bytes, and the lane's limit is $max_bytes"
  echo "gpu: $into: $((bytes / 1024)) KiB with $files programs and libraries; run it there with ./gpu.sh run . --output OUT"
}

# ---- run: helpers ----
json_string() {
  local s=${1//\\/\\\\}
  s=${s//\"/\\\"}
  s=${s//$'\t'/ }
  printf '"%s"' "$(tr -d '\000-\037' <<<"$s")"
}
say() { echo "$*"; echo "$*" >&3; }  # to the log and to the terminal
field() { fields+=", $(json_string "$1"): $2"; }  # for the running part; the value is JSON
remaining() { echo $((deadline - SECONDS)); }
# limited SECONDS COMMAND...: returns 124 if the limit or the whole run's time is over
limited() {
  local limit=$1 left
  left=$(remaining)
  shift
  [ "$left" -ge 2 ] || return 124
  [ "$limit" -le "$left" ] || limit=$left
  echo "+ $*"
  timeout -k 3 "$limit" "$@"
}
# part NAME: runs part_NAME. Its return value decides: 0 passed, 3 not measured, 124 timed out, else failed
part() {
  local name=$1 code=0 status
  [ -z "$wanted" ] || [[ ",$wanted," == *",$name,"* ]] || return 0
  [[ " $left_out " != *" $name "* ]] || return 0
  fields="" note="" running=$name begin=$SECONDS
  echo "==== $name"
  progress
  if [ "$(remaining)" -lt 5 ]; then code=124; else "part_$name" || code=$?; fi
  case $code in 0) status=passed ;; 3) status="not measured" ;; 124) status="timed out" ;; *) status=failed ;; esac
  [ $code -eq 0 ] || [ $code -eq 3 ] || result=failed
  [ -z "$note" ] || field note "$(json_string "$note")"
  say "$name: $status in $((SECONDS - begin)) s${note:+: $note}"
  parts+=$(entry "$status")
  write_report "$parts"
}
# entry STATUS: the running part in the report
entry() {
  printf '%s\n    %s: {"status": "%s", "seconds": %d%s}' "${parts:+,}" "$(json_string "$running")" "$1" $((SECONDS - begin)) "$fields"
}
# Writes the report with what the running part has so far.
progress() { write_report "$parts$(entry running)"; }
# write_report PARTS: called after every part and every measurement, so that a killed run leaves the results so far
write_report() {
  cat >"$out/gpu.json.new" <<-JSON
	{
	  "emulated": $([ -n "$emulate" ] && echo true || echo false),
	  "commit": $(json_string "$(cat "$tree/commit")"),
	  "machine": $(json_string "$machine"),
	  "device": $(json_string "$device_name"),
	  "driver": $(json_string "$driver"),
	  "libtorch": $(json_string "$torch_version"),
	  "seconds": $((SECONDS + seconds_before)),
	  "result": "$result",
	  "parts": {$1
	  }
	}
	JSON
  mv "$out/gpu.json.new" "$out/gpu.json"
}
last_object() { grep -a '^{.*}$' "$1" | tail -n 1; }
json_lines() {  # lines of the input as a list in JSON
  local line list=""
  while IFS= read -r line; do list+="${list:+, }$(json_string "$line")"; done
  printf '[%s]' "$list"
}
number_of() { grep -oE "\"$2\": ?-?[0-9.eE+-]+" <<<"$1" | head -n 1 | sed 's/.*: *//'; }

# ---- run: parts ----
part_doctor() {
  limited 60 "$tree/bin/bert" doctor >"$work/doctor.log" 2>&1 || { cat "$work/doctor.log"; note="bert doctor found a problem"; return 1; }
  cat "$work/doctor.log"
  grep -q 'ok .*CUDA device 0' "$work/doctor.log" || { note="bert doctor sees no CUDA device"; return 1; }
  local name
  name=$(sed -nE 's/.*CUDA device 0, (.*), computes.*/\1/p' "$work/doctor.log")
  [ -z "$name" ] || device_name=$name  # works without nvidia-smi too
}

declare -A done_tests=()  # what became of each test that has run
# run_test NAME: runs it in its own process, because a CUDA error breaks the rest of its process
run_test() {
  local name=$1 escaped code=0 log="$work/test.log" status=passed flags=()
  [ -z "${done_tests[$name]:-}" ] || return 0
  escaped=$(sed 's/[][\\,"]/\\&/g' <<<"$name")
  : >"$log"
  [ "$name" != "$twin_test" ] || flags=("${twin_flags[@]}")
  [ $SECONDS -lt $tests_until ] || code=124
  [ $code -ne 0 ] || limited "$test_limit" "$tree/bin/bert_tests" "$escaped" "${flags[@]}" >"$log" 2>&1 || code=$?
  cat "$log"
  if [ $code -eq 124 ]; then
    status="timed out"
  elif [ $code -ne 0 ] || ! grep -qa '^All tests passed' "$log"; then
    status=failed
  elif grep -qa '^SKIPPED' "$log"; then
    status="skipped$(sed -n 's/^SKIPPED//p' "$log" | tail -n 1)"
  fi
  done_tests[$name]=$status
}

twin_test='Every operator on CUDA equals its CPU twin'
# Before all other tests: without it no other figure counts.
part_twins() {
  run_test "$twin_test"
  note=${done_tests[$twin_test]}
  case $note in passed) ;; "timed out") return 124 ;; *) return 1 ;; esac
}

part_tests() {
  local name passed=0 failed=0 skipped=0 tests=""
  local help list=(--list-tests --verbosity quiet)  # Catch2 3
  help=$("$tree/bin/bert_tests" --help)
  [[ "$help" != *list-test-names-only* ]] || list=(--list-test-names-only)
  mapfile -t names < <("$tree/bin/bert_tests" "[cuda]$filter" "${list[@]}" 2>/dev/null || true)
  [ ${#names[@]} -gt 0 ] || { note="bert_tests has no test tagged [cuda]"; return 1; }
  for name in "${names[@]}"; do
    run_test "$name"
    case ${done_tests[$name]} in passed) passed=$((passed + 1)) ;; skipped*) skipped=$((skipped + 1)) ;; *) failed=$((failed + 1)) ;; esac
    tests+="${tests:+, }$(json_string "$name"): $(json_string "${done_tests[$name]}")"
    fields=""
    field passed $passed
    field failed $failed
    field skipped $skipped
    field tests "{$tests}"
    progress
  done
  note="$passed passed, $failed failed, $skipped skipped"
  [ $failed -eq 0 ] && [ $passed -gt 0 ]  # tests may skip: some need two GPUs
}

part_kernels() {
  local log="$work/kernels.log" code=0 object line lines=""
  : >"$log"
  # A line for each operator, in the report as soon as it is printed; the last one has all of them.
  while IFS= read -r line; do
    echo "$line" | tee -a "$log"
    [[ "$line" != "+ "* ]] || continue  # the command
    lines+="${lines:+, }$(json_string "$line")"
    fields=""
    field lines "[$lines]"
    progress
  done < <(limited $kernel_limit env "${kernel_sizes[@]}" BERT_KERNEL_SECONDS=$kernel_seconds BERT_TEST_PROGRAM="$kernel_program" \
    "$tree/bin/bert_tests" 2>"$work/kernels.err" || echo $? >"$work/kernels.code")
  [ ! -e "$work/kernels.code" ] || code=$(cat "$work/kernels.code")
  cat "$work/kernels.err"
  object=$(last_object "$log")
  if [ -n "$object" ]; then
    fields=""
    field kernels "$object"
  fi
  [ $code -eq 0 ] || { note="$(tail -n 1 "$work/kernels.err")"; return $code; }
  [ -n "$object" ] || { note="$kernel_program printed no JSON"; return 1; }
}

# pretrain NAME PRECISION [OVERRIDE...]
pretrain() {
  limited 70 "$tree/bin/bert" pretrain "$tree/data/train.json" device=cuda precision="$2" run_directory="$work/$1" \
    "${training_flags[@]}" "${@:3}" 2>&1 | tr '\r' '\n' | tail -n 5
}
# Mean masked-token loss over the last third of a run's log lines, because single batches are noisy.
final_loss() {
  grep -oE '"mlm_loss": ?[0-9.eE+-]+' "$1/metrics.jsonl" | sed 's/.*: *//' |
    awk '{x[NR] = $1} END {n = int((NR + 2) / 3); for (i = NR - n + 1; i <= NR; ++i) sum += x[i]; if (n) printf "%.5f", sum / n}'
}
all_losses() { grep -oE '"mlm_loss": ?[0-9.eE+-]+' "$1/metrics.jsonl" | sed 's/.*: *//' | paste -sd , -; }

# Loss parity: seed, data and dropout masks are the same in every precision, so the runs differ only by rounding.
part_training() {
  local precision loss reference="" difference worst=0 runs=""
  for precision in fp32 bf16 fp16; do
    pretrain $precision $precision || return $?
    loss=$(final_loss "$work/$precision")
    [ -n "$loss" ] || { note="the $precision run logged no loss"; return 1; }
    reference=${reference:-$loss}
    difference=$(awk -v a="$loss" -v b="$reference" 'BEGIN {printf "%.5f", a - b}')
    worst=$(awk -v a="$worst" -v d="$difference" 'BEGIN {d = d < 0 ? -d : d; printf "%.5f", (d > a ? d : a)}')
    fields=""
    runs+="${runs:+, }\"$precision\": {\"mlm_loss\": $loss, \"difference_to_fp32\": $difference, \"losses\": [$(all_losses "$work/$precision")]}"
    field runs "{$runs}"
    progress
  done
  field tolerance $loss_tolerance
  note="mlm loss fp32 $reference; largest difference of bf16 and fp16 $worst, allowed $loss_tolerance"
  awk -v a="$worst" -v b="$loss_tolerance" 'BEGIN {exit !(a != "" && a + 0 <= b + 0)}'
}

# Two equal runs with attention dropout must give the same bytes.
part_repeatable() {
  local run sums=()
  for run in first second; do
    pretrain repeat-$run bf16 "${repeat_flags[@]}" model.attention_probs_dropout_prob=0.1 || return $?
    sums+=("$(cat "$work/repeat-$run"/checkpoints/step-*/model.safetensors | sha256sum | cut -d ' ' -f 1)")
  done
  field sha256 "[\"${sums[0]}\", \"${sums[1]}\"]"
  [ "${sums[0]}" = "${sums[1]}" ] || { note="two equal bf16 runs ended in different weights"; return 1; }
}

# step_pair SIZE BATCH PRECISION LENGTH-FLAGS...: times our step, and the peer's step with the same shape
step_pair() {
  local size=$1 batch=$2 precision=$3 log="$work/step.log" ours theirs="null" code=0 ratio=null object
  shift 3
  limited 60 "$tree/bin/bert" benchmark step --config "${step_config:-$tree/configs/bert-$size.json}" --batch "$batch" --precision "$precision" \
    --device cuda "${step_flags[@]}" "$@" --json >"$log" 2>&1 || code=$?
  cat "$log"
  ours=$(last_object "$log")
  [ $code -eq 0 ] && [ -n "$ours" ] || { note="our step failed: $(tail -n 1 "$log")"; return $((code > 0 ? code : 1)); }
  if [ -n "$peer" ]; then
    limited 80 python3 "$peer" --size "$size" --batch "$batch" --precision "$precision" --device cuda "${step_flags[@]}" "$@" >"$log" 2>&1 || true
    cat "$log"
    object=$(last_object "$log")
    if [ -n "$object" ]; then
      theirs=$object
      ratio=$(awk -v a="$(number_of "$ours" tokens_per_second)" -v b="$(number_of "$theirs" tokens_per_second)" 'BEGIN {printf "%.3f", a / b}')
    fi
  fi
  pairs+="${pairs:+, }{\"ours\": $ours, \"peer\": $theirs, \"ratio\": $ratio}"
  fields=""
  field steps "[$pairs]"
  progress
  say "  $size, batch $batch, $precision, $*: $(number_of "$ours" tokens_per_second) tokens/s, peer $(number_of "$theirs" tokens_per_second)"
}
part_steps() {
  pairs=""
  local code=0 shape
  [ -z "$lengths" ] || shapes=("${shapes[0]}" "$lengths_shape --lengths $lengths" "${shapes[@]:1}")
  for shape in "${shapes[@]}"; do
    [ $SECONDS -lt $steps_until ] || { note="no time was left for $shape and what follows"; code=124; break; }
    step_pair $shape || code=$?
  done
  if [ -z "$peer" ]; then note="${note:+$note; }Hugging Face's step: not measured, no --peer"; fi
  return $code
}

# find_tool NAME: sets `tool`; returns 3 and says why where the machine lacks it
find_tool() {
  local place
  tool=$(command -v "$tools/$1" || true)
  if [ -z "$tools" ] && [ -z "$emulate" ]; then
    for place in "$1" "/usr/local/cuda/bin/$1"; do [ -n "$tool" ] || tool=$(command -v "$place" || true); done
  fi
  [ -n "$tool" ] || { note="no $1 on this machine; name its directory with --tools"; return 3; }
}

# Accesses outside of memory, and races in shared memory. LibTorch's cache of memory would hide the first: it hands out parts of large blocks.
part_sanitizer() {
  local check code=0 result_code=0 log="$work/sanitizer.log" only=() help
  find_tool compute-sanitizer || return $?
  help=$("$tool" --help 2>&1 || true)
  [[ "$help" != *--kernel-name* ]] || only=(--kernel-name kns=bert)  # our kernels alone, by a part of their names
  for check in memcheck racecheck; do
    code=0
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 limited $sanitizer_limit "$tool" --tool $check "${only[@]}" --error-exitcode 99 \
      "$tree/bin/bert_tests" "$twin_test" >"$log" 2>&1 || code=$?
    cat "$log"
    field $check "{\"exit_code\": $code, \"summary\": $(grep -a 'SUMMARY' "$log" | json_lines)}"
    progress
    [ $code -eq 0 ] || { note="${note:+$note; }$check: $(grep -a 'SUMMARY' "$log" | tail -n 1 || echo "exit code $code")"; result_code=$code; }
  done
  return $result_code
}

# How close each of our kernels comes to the limits of the GPU: one section of ncu for its first launch of each shape.
part_profile() {
  local code=0 log="$work/profile.log" list
  find_tool ncu || return $?
  limited $profile_limit "$tool" --section SpeedOfLight --csv --kernel-name-base demangled --kernel-name regex:bert:: \
    --filter-mode per-launch-config --launch-count 1 \
    env "${kernel_sizes[@]}" BERT_KERNEL_SECONDS=0.001 BERT_TEST_PROGRAM="$kernel_program" "$tree/bin/bert_tests" >"$log" 2>&1 || code=$?
  cat "$log"
  list=$(grep -a '^"' "$log" | json_lines)
  field lines "$list"
  if grep -qa ERR_NVGPUCTRPERM "$log"; then note="ncu may not read the counters of this GPU"; return 3; fi
  [ $code -eq 0 ] || { note="ncu ended with $code"; return $code; }
  [ "$list" != "[]" ] || { note="ncu printed no figures"; return 1; }
}

# take_earlier: what an earlier call with --full has ended stays in the report
take_earlier() {
  local report=$out/gpu.json line name
  [ -e "$report" ] || { left_out="sanitizer profile"; return 0; }
  grep -qxF "  \"commit\": $(json_string "$(cat "$tree/commit")")," "$report" || die 77 "$report is of another commit; name another --output"
  seconds_before=$(number_of "$(cat "$report")" seconds)
  [ "$device_name" != none ] || device_name=$(sed -nE 's/^  "device": "(.*)",$/\1/p' "$report")
  while IFS= read -r line; do
    name=$(cut -d '"' -f 2 <<<"$line")
    left_out+=" $name"
    parts+="${parts:+,}"$'\n'"${line%,}"
    [[ "$line" != *"\"$name\": {\"status\": \"failed\""* ]] || result=failed
  done < <(grep -aE '^    "[a-z]+": \{"status": "(passed|failed|not measured)"' "$report")
}

# ---- run ----
run() {
  deadline=$(awk -v m="$minutes" 'BEGIN {printf "%d", 60 * m}')
  SECONDS=0
  [ -e "$tree/bin" ] || [ ! -e "$tree/programs.tar.gz" ] || tar -C "$tree" -xzf "$tree/programs.tar.gz"
  [ -x "$tree/bin/bert" ] || die 66 "$tree is no packed tree; make one with tests/gpu.sh pack DIR"
  if is_rehearsal "$tree"; then
    [ -n "$emulate" ] || die 66 "$tree has a device of host memory in place of CUDA's libraries; it runs with --emulate only"
  else
    [ -z "$emulate" ] || die 66 "$tree is for a GPU; --emulate runs a tree that was packed from a build without CUDA"
  fi
  mkdir -p "$out"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT

  [ -n "$wanted$full" ] || [ ! -e "$tree/parts" ] || wanted=$(cat "$tree/parts")
  [ -n "$peer" ] || [ ! -e "$tree/peer.py" ] || peer=$tree/peer.py
  [ -n "$lengths" ] || [ ! -e "$tree/lengths.txt" ] || lengths=$tree/lengths.txt
  [ -z "$lengths" ] || { cp "$lengths" "$work/lengths.txt" && lengths=$work/lengths.txt; }  # a path without spaces
  check_parts
  if [ -z "$libtorch" ]; then
    libtorch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
      die 66 "python3 has no torch; name a LibTorch 2.11 with --libtorch"
  fi
  [ -e "$libtorch/lib/libtorch_cpu.so" ] || die 66 "$libtorch/lib has no libtorch_cpu.so"
  torch_version=$(version_of "$libtorch")
  [ "$torch_version" = "$(cat "$tree/libtorch")" ] ||
    die 66 "$libtorch is LibTorch $torch_version, and $tree was built against $(cat "$tree/libtorch"); name that one with --libtorch, or pack a build against this one"
  # LibTorch's own files find each other. Ours need LibTorch's directory, and the CUDA runtime's in one of the two layouts of the wheels.
  local paths=$tree/lib:$libtorch/lib place
  for place in "$libtorch"/../nvidia/cu13/lib "$libtorch"/../nvidia/*/lib; do [ ! -d "$place" ] || paths+=:$place; done
  export LD_LIBRARY_PATH=$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # If the machine's C++ runtime is older than ours, the loader names the missing version.
  local cxx="the machine's" loads
  loads=$(ldd "$tree"/bin/* 2>&1 || true)
  if grep -qE "version .(GLIBCXX|CXXABI|GCC)_.* not found|$runtime.* not found" <<<"$loads"; then
    export LD_LIBRARY_PATH=$tree/fallback:$LD_LIBRARY_PATH
    cxx="the tree's"
  fi
  machine="$(uname -sr), $(nproc) x $(sed -nE '/^model name/ {s/^model name\s*: //p;q}' /proc/cpuinfo)"
  device_name=none driver=none result=passed parts="" left_out="" seconds_before=0
  if command -v nvidia-smi >/dev/null; then
    device_name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  fi
  # Tolerance of the parity. On the CPU, a two-layer model's bf16 loss was within 3e-4 of fp32's over 300 steps, fp16's within 2e-5.
  step_config="" test_limit=90 kernel_limit=150 kernel_seconds=0.5 sanitizer_limit=120 profile_limit=120 loss_tolerance=0.01
  # If steps or tests hang, the other parts still get their time.
  steps_until=$((deadline * 45 / 100)) tests_until=$((deadline * 7 / 10))
  kernel_program="kernel times" kernel_sizes=() twin_flags=() training_flags=() repeat_flags=(max_steps=40 checkpoint_every=40) step_flags=(--steps 20 --warmup 5)
  # Up to 32,768 tokens, as a GPU of 80 GB has in phase 1 (256 x 128) and in phase 2 (64 x 512); --lengths gives 128 sequences.
  shapes=("large 256 bf16 --length 128" "base 64 bf16 --length 128" "large 32 bf16 --length 128" "large 16 bf16 --length 512"
    "large 64 bf16 --length 512") lengths_shape="large 128 bf16"
  if [ -n "$emulate" ]; then
    step_config=$tree/data/train.json test_limit=240
    local tiny=(micro_batch_size=4 global_batch_size=4 model.hidden_size=32 model.num_hidden_layers=1 model.intermediate_size=64)
    kernel_sizes=(BERT_KERNEL_TOKENS=128 BERT_KERNEL_HIDDEN=64) kernel_seconds=0.001 twin_flags=(-c "rows of 128") training_flags=("${tiny[@]}" max_steps=6 log_every=1)
    repeat_flags=(max_steps=4 checkpoint_every=4) step_flags=(--steps 1 --warmup 0) shapes=("base 1 fp32 --length 8") lengths_shape="base 2 fp32"
  fi

  export BERT_TEST_DEVICE=cuda  # tests fail if the device is missing

  [ -z "$full" ] || take_earlier
  [ -n "$parts" ] || rm -f "$out/gpu.log"
  exec 3>&1 >>"$out/gpu.log" 2>&1
  say "gpu: $(cat "$tree/commit") on ${device_name:-none}, driver ${driver:-none}, LibTorch $torch_version, $cxx C++ runtime, $machine"
  limited 150 "$tree/bin/bert" doctor || true  # reads several GB from a cold disk, which no part should pay
  local name
  for name in "${parts_in_order[@]}"; do part "$name"; done
  write_report "$parts"
  say "gpu: $result in $SECONDS s: $out/gpu.json, $out/gpu.log"
  [ $result = passed ]
}

# ---- selftest ----
selftest() {
  local build=$1 torch
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  [ -e "$build/libbert.so" ] || die 66 "$build has no libbert.so; name a build directory"
  if ! grep -qs '^build null_device/bin/bert_tests' "$build/build.ninja"; then
    echo "SKIPPED: there is no device of host memory: it needs LibTorch 2.11 with libtorch_cuda.so, nvcc and CUDA's headers"
    return 0
  fi
  torch=$(libtorch_of "$build/libbert.so")
  echo 'import json; print(json.dumps({"tokens_per_second": 1.0}))' >"$work/peer.py"
  # Foreign files are not replaced, and a tree is not replaced if the build does not exist.
  mkdir -p "$work/own/bin"
  kept() {  # kept CODE BUILD FILE
    local code=0
    touch "$work/own/$3"
    "$script" pack "$work/own" --build "$2" || code=$?
    [ $code -eq "$1" ] && [ -e "$work/own/$3" ] || die 1 "pack over $3 ended with $code, not $1, or removed it"
  }
  kept 77 "$build" file
  kept 66 "$work" commit
  printf '5\n8\n' >"$work/lengths"
  "$script" pack "$work/tree" --build "$build" --peer "$work/peer.py" --lengths "$work/lengths"
  mv "$work/tree" "$work/moved"  # the tree must be relocatable
  tar -C "$work/moved" -xzf "$work/moved/programs.tar.gz"
  if ldd "$work"/moved/bin/* | grep -F " $build/"; then die 1 "the programs of the tree load libraries of the build"; fi
  lane() {  # lane NAME FLAG...
    env -u LD_LIBRARY_PATH ${older:+"LD_LIBRARY_PATH=$older"} "$work/moved/gpu.sh" run "$work/moved" --output "$work/$1" --emulate --libtorch "$torch" "${@:2}"
  }
  says() { grep -q "$2" "$work/$1/gpu.json" || { cat "$work/$1/gpu.json"; die 1 "gpu.json of the $1 run lacks $2"; }; }
  local older="" library
  # Everything in two calls: the second one has the figures of the first.
  lane whole --full --tests "$filter" || { cat "$work/whole/gpu.log"; die 1 "the lane failed in emulation"; }
  if grep -q '"sanitizer"' "$work/whole/gpu.json"; then die 1 "the first call with --full did not leave out the sanitizer"; fi
  grep -E '^    "(steps|kernels)": ' "$work/whole/gpu.json" | sed 's/,$//' >"$work/first"
  lane whole --full || { cat "$work/whole/gpu.log"; die 1 "the second call with --full failed"; }
  [ "$(grep -cFf "$work/first" "$work/whole/gpu.json")" -eq 2 ] || die 1 "the second call with --full has lost or repeated parts of the first"
  [ "$(grep -c '"status"' "$work/whole/gpu.json")" -eq ${#parts_in_order[@]} ] || die 1 "the two calls with --full lack parts"
  if lane whole --full --parts doctor; then die 1 "--full was taken with --parts"; fi
  sed -i 's/"commit": ".*"/"commit": "other"/' "$work/whole/gpu.json"
  if lane whole --full; then die 1 "--full went on from the report of another commit"; fi
  says whole '"result": "passed"'
  says whole '"passed": [1-9][0-9]*, "failed": 0'
  if command -v python3 >/dev/null; then says whole '"peer": {"tokens_per_second": 1.0}, "ratio": [0-9]'; fi
  says whole '"steps": \[{.*}, {.*}\]'  # the packed lengths are timed too
  says whole '"sanitizer": {"status": "not measured".*no compute-sanitizer on this machine'
  says whole '"profile": {"status": "not measured".*no ncu on this machine'
  says whole '"twins": {"status": "passed"'
  rm "$work/moved/peer.py" "$work/moved/lengths.txt"
  # The parts that pack was given are run's, unless it is given others; unknown ones are refused by both.
  echo doctor >"$work/moved/parts"
  lane chosen || die 1 "the lane failed with packed parts"
  [ "$(grep -c '"status"' "$work/chosen/gpu.json")" -eq 1 ] || die 1 "the packed parts were not the ones that ran"
  rm "$work/moved/parts"
  # A rehearsal is not taken for a GPU's tree, nor a GPU's tree for a rehearsal.
  if "$work/moved/gpu.sh" run "$work/moved" --output "$work/other" --libtorch "$torch"; then die 1 "a rehearsal ran without --emulate"; fi
  mv "$work/moved/bin/libbert.so" "$work/aside"
  touch "$work/moved/bin/libbert.so"
  if lane other 2>"$work/refusal"; then die 1 "a tree without the device of host memory ran with --emulate"; fi
  grep -q 'is for a GPU' "$work/refusal" || die 1 "a tree for a GPU was not refused as such"
  mv "$work/aside" "$work/moved/bin/libbert.so"
  if "$script" pack "$work/none" --build "$build" --parts nothing; then die 1 "pack took a part that does not exist"; fi
  # Another LibTorch is refused.
  mkdir -p "$work/torch/lib" "$work/torch/include/torch/headeronly"
  touch "$work/torch/lib/libtorch_cpu.so"
  printf '#define TORCH_VERSION_%s\n' 'MAJOR 2' 'MINOR 8' 'PATCH 0' >"$work/torch/include/torch/headeronly/version.h"
  if "$work/moved/gpu.sh" run "$work/moved" --output "$work/other" --emulate --libtorch "$work/torch" 2>"$work/refusal"; then
    die 1 "the lane ran on another LibTorch"
  fi
  [[ $(cat "$work/moved/libtorch") =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die 1 "the tree does not say its LibTorch"
  grep -q 'is LibTorch 2.8.0, and' "$work/refusal" || die 1 "another LibTorch was not refused by its version"
  # What the tools find is in the report: an error is a failure.
  mkdir "$work/tools"
  printf '#!/bin/sh\ncase $* in *help*) ;; *racecheck*) echo "RACECHECK SUMMARY: 1 hazard displayed"; exit 99 ;; *) echo "ERROR SUMMARY: $PYTORCH_NO_CUDA_MEMORY_CACHING errors" ;; esac\n' \
    >"$work/tools/compute-sanitizer"
  printf '#!/bin/sh\necho "\\"0\\",\\"bert::gelu\\",\\"12\\""\n' >"$work/tools/ncu"
  chmod +x "$work"/tools/*
  if lane tools --parts sanitizer,profile --tools "$work/tools"; then die 1 "the lane passed over a race"; fi
  says tools '"memcheck": {"exit_code": 0, "summary": \["ERROR SUMMARY: 1 errors"\]}'
  says tools '"racecheck": {"exit_code": 99, "summary": \["RACECHECK SUMMARY: 1 hazard displayed"\]}'
  says tools '"profile": {"status": "passed".*bert::gelu'
  # A run that is killed leaves the kernels that it has timed.
  local lane_pid
  mv "$work/moved/bin/bert_tests" "$work/moved/bin/real"
  printf '#!/bin/sh\necho "bert_gelu 1.000 ms"\nexec sleep 20\n' >"$work/moved/bin/bert_tests"
  chmod +x "$work/moved/bin/bert_tests"
  lane killed --parts kernels &
  lane_pid=$!
  for _ in $(seq 300); do
    ! grep -qs '"lines": \["bert_gelu' "$work/killed/gpu.json" || break
    sleep 0.1
  done
  pkill -KILL -P $lane_pid  # the script, which the function has started
  wait $lane_pid || true
  says killed '"kernels": {"status": "running".*"lines": \["bert_gelu 1.000 ms"\]'
  mv "$work/moved/bin/real" "$work/moved/bin/bert_tests"
  # A library that is missing from the tree is noticed, even if this machine has it.
  for library in "$work"/moved/lib/*; do
    mv "$library" "$work/aside"
    [ "$(missing_from "$work/moved")" = "$(basename "$library")" ] || die 1 "$(basename "$library") is not missed when it is not there"
    mv "$work/aside" "$library"
  done
  # On a machine with an older C++ runtime, the tree's runtime is used.
  mkdir "$work/runtime"
  echo 'GLIBCXX_3.4 {};' >"$work/map"
  "${CXX:-c++}" -shared -nostdlib -Wl,--version-script="$work/map" -Wl,-soname,libstdc++.so.6 -x c++ /dev/null -o "$work/runtime/libstdc++.so.6"
  older=$work/runtime
  lane older --parts doctor,steps || { cat "$work/older/gpu.log"; die 1 "the lane failed beside an older C++ runtime"; }
  grep -q "the tree's C++ runtime" "$work/older/gpu.log" || die 1 "an older C++ runtime was not seen"
  grep -q "the machine's C++ runtime" "$work/whole/gpu.log" || die 1 "the machine's C++ runtime was not taken"
  says older 'Hugging Face.s step: not measured'
  older=""
  # With a broken test program the other parts still run, and the report names the failure.
  printf '#!/bin/sh\nexit 139\n' >"$work/moved/bin/bert_tests"
  if lane broken --parts tests,doctor; then die 1 "the lane passed without its tests"; fi
  says broken '"result": "failed"'
  says broken '"tests": {"status": "failed"'
  says broken '"doctor": {"status": "passed"'
  # Tests that cannot run, such as tests for two GPUs on a machine with one, are no failure. If no test can run, that is a failure.
  skipping() {  # skipping NAMES: a test program whose test "two" is skipped
    printf '#!/bin/sh\ncase $* in --help) ;; *list-tests*) printf "%%s\\n" %s ;; *) [ "$1" = one ] || echo "SKIPPED: one GPU"; echo All tests passed ;; esac\n' \
      "$1" >"$work/moved/bin/bert_tests"
  }
  skipping 'one two'
  lane skips --parts tests || die 1 "the lane failed over a skipped test"
  says skips '"passed": 1, "failed": 0, "skipped": 1, "tests": {"one": "passed", "two": "skipped: one GPU"}'
  skipping two
  if lane none --parts tests; then die 1 "the lane passed though it ran no test"; fi
  # A run that is killed within a part leaves the figures of that part.
  printf '#!/bin/sh\ncase $* in --help) ;; *list-tests*) echo one; echo two ;; one) echo All tests passed ;; *) kill -9 $(cat %s) ;; esac\n' "$work/pid" \
    >"$work/moved/bin/bert_tests"
  (echo "$BASHPID" >"$work/pid"; TMPDIR=$work exec "$work/moved/gpu.sh" run "$work/moved" --output "$work/cut" --emulate --libtorch "$torch" --parts tests) || true
  says cut '"tests": {"status": "running".*"tests": {"one": "passed"}'
  # When the time is over, every part reports that.
  if lane late --minutes 0; then die 1 "the lane passed in no time"; fi
  [ "$(grep -c '"status": "timed out"' "$work/late/gpu.json")" -eq ${#parts_in_order[@]} ] || die 1 "gpu.json of a run out of time lacks parts"
}

# ---- command line ----
[ $# -gt 0 ] || die 2 "say pack, run or selftest; see tests/gpu.sh --help"
case $1 in -h | --help) sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "$script"; exit 0 ;; esac
verb=$1 tree="" out="" emulate="" libtorch="" tools="" peer="" lengths="" build="" wanted="" filter="" text="" minutes=8.7 full=""
shift
while [ $# -gt 0 ]; do
  case $1 in
    --emulate) emulate=1 ;;
    --full) full=1 ;;
    --output | --libtorch | --tools | --peer | --lengths | --build | --text | --parts | --tests | --minutes)
      [ $# -gt 1 ] || die 2 "$1 wants a value"
      case $1 in
        --output) out=$2 ;;
        --libtorch) libtorch=$2 ;;
        --tools) tools=$2 ;;
        --peer) peer=$2 ;;
        --lengths) lengths=$2 ;;
        --build) build=$2 ;;
        --text) text=$2 ;;
        --parts) wanted=$2 ;;
        --tests) filter=$2 ;;
        --minutes) minutes=$2 ;;
      esac
      shift ;;
    -*) die 2 "unknown option $1; see tests/gpu.sh --help" ;;
    *) [ -z "$tree" ] || die 2 "one directory is wanted, got $tree and $1"; tree=$1 ;;
  esac
  shift
done
[ -n "$tree" ] || die 2 "$verb wants a directory; see tests/gpu.sh --help"
[ -z "$full" ] || [ -z "$wanted" ] || die 2 "--full is all parts; leave out --parts"
for file in ${text:+"$text"} ${peer:+"$peer"} ${lengths:+"$lengths"}; do
  [ -r "$file" ] || die 66 "cannot read $file"
done
case $verb in
  pack) pack "$(readlink -m "$tree")" "$build" "$text" ;;
  run)
    [ -n "$out" ] || die 2 "run wants --output OUT"
    [ -n "$emulate" ] || [ -e /dev/nvidiactl ] || [ -e /proc/driver/nvidia/version ] || die 66 "there is no NVIDIA driver; --emulate rehearses the lane without one"
    tree=$(readlink -f "$tree") out=$(readlink -m "$out")
    run ;;
  selftest) selftest "$(readlink -f "$tree")" ;;
  *) die 2 "unknown command $verb; see tests/gpu.sh --help" ;;
esac
