#!/usr/bin/env bash
# tests/gpu.sh pack DIR [--build BUILD] [--text FILE] [--peer FILE]
# tests/gpu.sh run DIR --output OUT [--emulate] [--libtorch DIR] [--peer FILE] [--lengths FILE] [--parts A,B] [--tests F] [--minutes N]
# tests/gpu.sh selftest BUILD [--tests F]
#
# The GPU lane. `pack` builds with CUDA for Hopper and makes a relocatable tree of at most 60 MiB. `run` tests and measures it on a machine
# with a GPU and LibTorch 2.11. It needs no other package, no network and no root, and ends within 9 minutes. If that machine's C++ runtime
# is older than this build's, the runtime in the tree is used.
#
#   --build BUILD   pack the programs in BUILD instead of building in build-gpu/ (bert bertrun bert_tests bert_tests_cuda)
#   --text FILE     English text for the training runs; default: the pages of the source tree
#   --output OUT    directory for gpu.json (the report) and gpu.log (the output of all parts); written even if a part fails
#   --emulate       without a GPU: the same parts on the CPU with tiny sizes, and the kernels in the emulator
#   --libtorch DIR  directory of the torch package or of LibTorch; default: the torch package of python3
#   --peer FILE     a script that times Hugging Face's step (its flags: --size --batch --length --lengths --precision --device --steps);
#                   pack copies it into the tree, and run uses that copy by default
#   --lengths FILE  sequence lengths, one a line, for a step on real lengths
#   --parts A,B     run only these parts of: doctor tests emulator training repeatable kernels steps; default all
#   --tests F       run only the tests tagged [cuda] that match F, a Catch2 filter; default all
#   --minutes N     time limit of the whole run; default 8.7
#   selftest        tests this script: packs BUILD, runs it in emulation, breaks it, and checks the reports of both runs
#
# Exit codes of run: 0 every part passed or could not be measured here; 1 a part failed; 2 usage; 66 something is missing. pack exits with
# 77 if DIR holds something other than a packed tree.
#
# Example: tests/gpu.sh pack build-gpu/lane && tests/gpu.sh run build-gpu/lane --output /tmp/gpu
set -euo pipefail
script=$(readlink -f "$0")
root=$(cd "$(dirname "$script")/.." && pwd)
die() { echo "gpu: ${*:2}" >&2; exit "$1"; }

# ---- pack ----
max_bytes=$((60 * 1024 * 1024))

# Libraries of every machine with LibTorch: the C library and the libraries beside LibTorch (also CUDA's).
everywhere='lib(c|m|dl|rt|pthread|util|resolv)\.so|ld-linux|lib(torch|c10|gomp|cud|cu(blas|fft|file|pti|rand|solver|sparse)|nv[a-zA-Z]*|nccl|shm|caffe2|mkl|omp)[^/]*$'
# The C++ runtime. The other machine's may be older than the one of this build.
runtime='lib(stdc\+\+|gcc_s)\.so'

# Shared libraries of FILE... that such a machine may lack: those from Debian's packages.
libraries_of() { ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -Ev "/($everywhere|$runtime)" || true; }
runtime_of() { ldd "$@" | awk '$2 == "=>" {print $3}' | sort -u | grep -E "/$runtime" || true; }

# Names of libraries that files of the tree DIR need and that are neither in DIR nor on every machine.
missing_from() {
  local name
  readelf -d "$1"/bin/* "$1"/lib/* | sed -nE 's/.*\(NEEDED\).*\[(.*)\]$/\1/p' | sort -u | grep -Ev "^($everywhere|$runtime)" |
    while read -r name; do [ -e "$1/lib/$name" ] || [ -e "$1/bin/$name" ] || echo "$name"; done
}

pack() {
  local into=$1 build=$2 text=("$3") peer=$4 program library missing
  [ -n "$3" ] || text=("$root"/*.md "$root"/*/README.md)
  local programs=(bert bertrun libbert.so libbert_sentencepiece.so tests/bert_tests tests/bert_tests_cuda)
  # Only an empty directory or an earlier tree is replaced.
  [ -z "$(ls -A "$into" 2>/dev/null)" ] || { [ -e "$into/commit" ] && { [ -e "$into/programs.tar.gz" ] || [ -d "$into/bin" ]; }; } ||
    die 77 "$into holds other things than a packed tree; name a new directory"
  if [ -z "$build" ]; then
    build=$root/build-gpu
    "$root/app/setup.sh" --cuda --build "$build" -DCMAKE_CUDA_ARCHITECTURES=90-real bert bertrun bert_tests bert_tests_cuda
  fi
  for program in "${programs[@]}"; do
    [ -e "$build/$program" ] || die 66 "$build has no $program; build it with app/setup.sh --cuda --build $build $(basename "$program")"
  done
  rm -rf "$into"
  mkdir -p "$into/bin" "$into/lib" "$into/fallback" "$into/configs" "$into/data"
  git -C "$root" describe --always --dirty >"$into/commit" 2>/dev/null || echo unknown >"$into/commit"
  for program in "${programs[@]}"; do cp "$build/$program" "$into/bin/"; done
  strip --strip-unneeded "$into"/bin/*
  for library in $(libraries_of "$into"/bin/*); do cp -L "$library" "$into/lib/"; done
  for library in $(runtime_of "$into"/bin/*); do cp -L "$library" "$into/fallback/"; done
  missing=$(missing_from "$into")
  [ -z "$missing" ] || die 1 "$into lacks libraries that its programs need: $missing"
  "$root/tests/scripts/runpath.sh" "$into"/bin/* || die 1 "build $build again"
  [ -z "$peer" ] || cp "$peer" "$into/peer.py"
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
  [[ $(readelf -d "$into/bin/libbert.so") == *libtorch_cuda* ]] || echo "gpu: $build is without CUDA: the tree runs with --emulate only"
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
  local name=$1 begin=$SECONDS code=0 status
  [ -z "$wanted" ] || [[ ",$wanted," == *",$name,"* ]] || return 0
  fields="" note=""
  echo "==== $name"
  if [ "$(remaining)" -lt 5 ]; then code=124; else "part_$name" || code=$?; fi
  case $code in 0) status=passed ;; 3) status="not measured" ;; 124) status="timed out" ;; *) status=failed ;; esac
  [ $code -eq 0 ] || [ $code -eq 3 ] || result=failed
  [ -z "$note" ] || field note "$(json_string "$note")"
  say "$name: $status in $((SECONDS - begin)) s${note:+: $note}"
  parts+="${parts:+,}
    $(json_string "$name"): {\"status\": \"$status\", \"seconds\": $((SECONDS - begin))$fields}"
  write_report
}
# Called after every part, so that a killed run leaves the results so far.
write_report() {
  cat >"$out/gpu.json.new" <<-JSON
	{
	  "emulated": $([ -n "$emulate" ] && echo true || echo false),
	  "commit": $(json_string "$(cat "$tree/commit")"),
	  "machine": $(json_string "$machine"),
	  "device": $(json_string "$device_name"),
	  "driver": $(json_string "$driver"),
	  "libtorch": $(json_string "$torch_version"),
	  "seconds": $SECONDS,
	  "result": "$result",
	  "parts": {$parts
	  }
	}
	JSON
  mv "$out/gpu.json.new" "$out/gpu.json"
}
last_object() { grep -a '^{.*}$' "$1" | tail -n 1; }
number_of() { grep -oE "\"$2\": ?-?[0-9.eE+-]+" <<<"$1" | head -n 1 | sed 's/.*: *//'; }

# ---- run: parts ----
part_doctor() {
  limited 150 "$tree/bin/bert" version || return $?  # it may read several GB from a cold disk
  limited 60 "$tree/bin/bert" doctor >"$work/doctor.log" 2>&1 || { cat "$work/doctor.log"; note="bert doctor found a problem"; return 1; }
  cat "$work/doctor.log"
  [ -n "$emulate" ] || grep -q 'ok .*CUDA device 0' "$work/doctor.log" || { note="bert doctor sees no CUDA device"; return 1; }
  local name
  name=$(sed -nE 's/.*CUDA device 0, (.*), computes$/\1/p' "$work/doctor.log")
  [ -z "$name" ] || device_name=$name  # works without nvidia-smi too
}

# Each test runs in its own process, because a CUDA error breaks the rest of its process.
part_tests() {
  local name escaped code log="$work/test.log" passed=0 failed=0 skipped=0 tests="" status
  local help list=(--list-tests --verbosity quiet)  # Catch2 3
  help=$("$tree/bin/bert_tests" --help)
  [[ "$help" != *list-test-names-only* ]] || list=(--list-test-names-only)
  mapfile -t names < <("$tree/bin/bert_tests" "[cuda]$filter" "${list[@]}" 2>/dev/null || true)
  [ ${#names[@]} -gt 0 ] || { note="bert_tests has no test tagged [cuda]"; return 1; }
  for name in "${names[@]}"; do
    code=0
    escaped=$(sed 's/[][\\,"]/\\&/g' <<<"$name")
    : >"$log"
    [ $SECONDS -lt $tests_until ] || code=124
    [ $code -ne 0 ] || limited "$test_limit" "$tree/bin/bert_tests" "$escaped" >"$log" 2>&1 || code=$?
    cat "$log"
    status=passed
    if [ $code -eq 124 ]; then
      status="timed out"
    elif [ $code -ne 0 ] || ! grep -qa '^All tests passed' "$log"; then
      status=failed
    elif grep -qa '^SKIPPED' "$log"; then
      status="skipped$(sed -n 's/^SKIPPED//p' "$log" | tail -n 1)"
    fi
    case $status in passed) passed=$((passed + 1)) ;; skipped*) skipped=$((skipped + 1)) ;; *) failed=$((failed + 1)) ;; esac
    tests+="${tests:+, }$(json_string "$name"): $(json_string "$status")"
  done
  field passed $passed
  field failed $failed
  field skipped $skipped
  field tests "{$tests}"
  note="$passed passed, $failed failed, $skipped skipped"
  [ $failed -eq 0 ] && [ $passed -gt 0 ]  # tests may skip: some need two GPUs
}

part_emulator() {
  [ -n "$emulate" ] || { note="only with --emulate"; return 3; }
  limited 120 "$tree/bin/bert_tests_cuda" '*GELU*' >"$work/emulator.log" 2>&1 || { cat "$work/emulator.log"; return 1; }
  cat "$work/emulator.log"
  grep -qa '^All tests passed' "$work/emulator.log" || { note="no test of the emulator ran"; return 1; }
}

part_kernels() {
  local log="$work/kernels.log" code=0 object
  limited $kernel_limit "$tree/bin/bert" benchmark kernels --device $device "${kernel_flags[@]}" --json >"$log" 2>"$work/kernels.err" || code=$?
  cat "$log" "$work/kernels.err"
  [ $code -ne 2 ] || { note="$(tail -n 1 "$work/kernels.err")"; return 3; }
  object=$(last_object "$log")
  [ -z "$object" ] || field kernels "$object"
  [ $code -eq 0 ] || { note="$(tail -n 1 "$work/kernels.err")"; return $code; }
  [ -n "$object" ] || { note="bert benchmark kernels printed no JSON"; return 1; }
}

# pretrain NAME PRECISION [OVERRIDE...]
pretrain() {
  limited 70 "$tree/bin/bert" pretrain "$tree/data/train.json" device=$device precision="$2" run_directory="$work/$1" \
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
    runs+="${runs:+, }\"$precision\": {\"mlm_loss\": $loss, \"difference_to_fp32\": $difference, \"losses\": [$(all_losses "$work/$precision")]}"
  done
  field runs "{$runs}"
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
    --device $device "${step_flags[@]}" "$@" --json >"$log" 2>&1 || code=$?
  cat "$log"
  ours=$(last_object "$log")
  [ $code -eq 0 ] && [ -n "$ours" ] || { note="our step failed: $(tail -n 1 "$log")"; return $((code > 0 ? code : 1)); }
  if [ -n "$peer" ]; then
    limited 80 python3 "$peer" --size "$size" --batch "$batch" --precision "$precision" --device $device "${step_flags[@]}" "$@" >"$log" 2>&1 || true
    cat "$log"
    object=$(last_object "$log")
    if [ -n "$object" ]; then
      theirs=$object
      ratio=$(awk -v a="$(number_of "$ours" tokens_per_second)" -v b="$(number_of "$theirs" tokens_per_second)" 'BEGIN {printf "%.3f", a / b}')
    fi
  fi
  pairs+="${pairs:+, }{\"ours\": $ours, \"peer\": $theirs, \"ratio\": $ratio}"
  say "  $size, batch $batch, $precision, $*: $(number_of "$ours" tokens_per_second) tokens/s, peer $(number_of "$theirs" tokens_per_second)"
}
part_steps() {
  pairs=""
  local code=0 shape
  for shape in "${shapes[@]}"; do step_pair $shape || code=$?; done
  if [ -n "$lengths" ]; then step_pair "${lengths_shape[@]}" --lengths "$lengths" || code=$?; fi
  field steps "[$pairs]"
  if [ -z "$peer" ]; then note="${note:+$note; }Hugging Face's step: not measured, no --peer"; fi
  return $code
}

# ---- run ----
run() {
  deadline=$(awk -v m="$minutes" 'BEGIN {printf "%d", 60 * m}')
  SECONDS=0
  [ -e "$tree/bin" ] || [ ! -e "$tree/programs.tar.gz" ] || tar -C "$tree" -xzf "$tree/programs.tar.gz"
  [ -x "$tree/bin/bert" ] || die 66 "$tree is no packed tree; make one with tests/gpu.sh pack DIR"
  mkdir -p "$out"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT

  local name
  for name in ${wanted//,/ }; do declare -F "part_$name" >/dev/null || die 2 "there is no part $name; see --help"; done
  if [ -z "$libtorch" ]; then
    libtorch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
      die 66 "python3 has no torch; name a LibTorch 2.11 with --libtorch"
  fi
  [ -e "$libtorch/lib/libtorch_cpu.so" ] || die 66 "$libtorch/lib has no libtorch_cpu.so"
  torch_version=$(sed -nE "s/^__version__ = '(.*)'/\1/p" "$libtorch/version.py" 2>/dev/null || true)
  [ -n "$torch_version" ] || torch_version=$(cat "$libtorch/build-version" 2>/dev/null || echo unknown)
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
  [ -n "$peer" ] || [ ! -e "$tree/peer.py" ] || peer=$tree/peer.py

  machine="$(uname -sr), $(nproc) x $(sed -nE '/^model name/ {s/^model name\s*: //p;q}' /proc/cpuinfo)"
  device_name=none driver=none result=passed parts=""
  if command -v nvidia-smi >/dev/null; then
    device_name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  fi
  # Tolerance of the parity. On the CPU, a two-layer model's bf16 loss was within 3e-4 of fp32's over 300 steps, fp16's within 2e-5.
  device=cuda step_config="" test_limit=90 kernel_limit=150 loss_tolerance=0.01
  tests_until=$((deadline * 6 / 10))  # if tests hang, the other parts still get their time
  kernel_flags=() training_flags=() repeat_flags=(max_steps=40 checkpoint_every=40) step_flags=(--steps 20 --warmup 5)
  shapes=("base 64 bf16 --length 128" "large 32 bf16 --length 128" "large 16 bf16 --length 512") lengths_shape=(large 16 bf16)
  if [ -n "$emulate" ]; then
    device=cpu step_config=$tree/data/train.json test_limit=240
    local tiny=(micro_batch_size=4 global_batch_size=4 model.hidden_size=32 model.num_hidden_layers=1 model.intermediate_size=64)
    kernel_flags=(--tokens 512 --hidden 64 --seconds 0.02) training_flags=("${tiny[@]}" max_steps=6 log_every=1)
    repeat_flags=(max_steps=4 checkpoint_every=4) step_flags=(--steps 1 --warmup 0) shapes=("base 1 fp32 --length 8") lengths_shape=(base 1 fp32)
  fi

  export BERT_TEST_DEVICE=$device  # tests fail if the device is missing

  exec 3>&1 >"$out/gpu.log" 2>&1
  say "gpu: $(cat "$tree/commit") on ${device_name:-none}, driver ${driver:-none}, LibTorch $torch_version, $cxx C++ runtime, $machine"
  for name in doctor tests emulator training repeatable kernels steps; do part $name; done
  say "gpu: $result in $SECONDS s: $out/gpu.json, $out/gpu.log"
  [ $result = passed ]
}

# ---- selftest ----
selftest() {
  local build=$1 torch
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  [ -e "$build/libbert.so" ] || die 66 "$build has no libbert.so; name a build directory"
  torch=$(ldd "$build/libbert.so" | awk '/libtorch_cpu.so/ {print $3}')
  torch=$(cd "$(dirname "$torch")/.." && pwd)
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
  "$script" pack "$work/tree" --build "$build" --peer "$work/peer.py"
  mv "$work/tree" "$work/moved"  # the tree must be relocatable
  lane() {  # lane NAME FLAG...
    env -u LD_LIBRARY_PATH ${older:+"LD_LIBRARY_PATH=$older"} "$work/moved/gpu.sh" run "$work/moved" --output "$work/$1" --emulate --libtorch "$torch" "${@:2}"
  }
  says() { grep -q "$2" "$work/$1/gpu.json" || { cat "$work/$1/gpu.json"; die 1 "gpu.json of the $1 run lacks $2"; }; }
  local older="" library
  lane whole --tests "$filter" || { cat "$work/whole/gpu.log"; die 1 "the lane failed in emulation"; }
  says whole '"result": "passed"'
  says whole '"passed": [1-9][0-9]*, "failed": 0'
  if command -v python3 >/dev/null; then says whole '"peer": {"tokens_per_second": 1.0}, "ratio": [0-9]'; fi
  rm "$work/moved/peer.py"
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
  if lane broken --parts tests,emulator; then die 1 "the lane passed without its tests"; fi
  says broken '"result": "failed"'
  says broken '"tests": {"status": "failed"'
  says broken '"emulator": {"status": "passed"'
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
  # When the time is over, every part reports that.
  if lane late --minutes 0; then die 1 "the lane passed in no time"; fi
  [ "$(grep -c '"status": "timed out"' "$work/late/gpu.json")" -eq 7 ] || die 1 "gpu.json of a run out of time lacks parts"
}

# ---- command line ----
[ $# -gt 0 ] || die 2 "say pack, run or selftest; see tests/gpu.sh --help"
case $1 in -h | --help) sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "$script"; exit 0 ;; esac
verb=$1 tree="" out="" emulate="" libtorch="" peer="" lengths="" build="" wanted="" filter="" text="" minutes=8.7
shift
while [ $# -gt 0 ]; do
  case $1 in
    --emulate) emulate=1 ;;
    --output | --libtorch | --peer | --lengths | --build | --text | --parts | --tests | --minutes)
      [ $# -gt 1 ] || die 2 "$1 wants a value"
      case $1 in
        --output) out=$2 ;;
        --libtorch) libtorch=$2 ;;
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
for file in ${text:+"$text"} ${peer:+"$peer"} ${lengths:+"$lengths"}; do
  [ -r "$file" ] || die 66 "cannot read $file"
done
case $verb in
  pack) pack "$(readlink -m "$tree")" "$build" "$text" "$peer" ;;
  run)
    [ -n "$out" ] || die 2 "run wants --output OUT"
    [ -n "$emulate" ] || [ -e /dev/nvidiactl ] || [ -e /proc/driver/nvidia/version ] || die 66 "there is no NVIDIA driver; --emulate runs the lane on the CPU"
    tree=$(readlink -f "$tree") out=$(readlink -m "$out")
    run ;;
  selftest) selftest "$(readlink -f "$tree")" ;;
  *) die 2 "unknown command $verb; see tests/gpu.sh --help" ;;
esac
