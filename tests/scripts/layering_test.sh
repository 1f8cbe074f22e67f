#!/usr/bin/env bash
# tests/scripts/layering_test.sh: tests/scripts/layering.cmake passes on this tree and fails on copies with one fault each. Part of
# tests/run.sh.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
layering() { cmake -DROOT="$1" -P "$root/tests/scripts/layering.cmake"; }

layering "$root" || failed=1
mkdir "$work/tree"
cp -r "$root"/{CONTRIBUTING.md,app,cuda_ext,data,model,optim,tests} "$work/tree"

# expect MESSAGE FAULT: layering fails with MESSAGE
expect() {
  if layering "$work/tree" >"$work/log" 2>&1; then
    echo "passes with a fault: $2"
    failed=1
  elif ! grep -qF -- "$1" "$work/log"; then
    echo "wanted \"$1\" for $2, got:"
    cat "$work/log"
    failed=1
  fi
}

# fault MESSAGE FILE LINE: after LINE is added to the end of FILE, which may be new, layering fails with MESSAGE
fault() {
  local file=$work/tree/$2 made=
  if [ -e "$file" ]; then cp "$file" "$work/kept"; else made=1; mkdir -p "$(dirname "$file")"; fi
  echo "$3" >>"$file"
  expect "$1" "$3 in $2"
  if [ -n "$made" ]; then rm "$file"; rmdir --ignore-fail-on-non-empty "$(dirname "$file")"; else mv "$work/kept" "$file"; fi
}

# edit MESSAGE FILE SED: after the edit of FILE, which changes it, layering fails with MESSAGE
edit() {
  local file=$work/tree/$2
  cp "$file" "$work/kept"
  sed -i "$3" "$file"
  if cmp -s "$file" "$work/kept"; then
    echo "changes nothing: $3 in $2"
    failed=1
  fi
  expect "$1" "$3 in $2"
  mv "$work/kept" "$file"
}

fault 'app/system has level' app/system/signals.h '#include "app/config/fields.h"'
fault 'model sees no optim' model/bert.cc '#include "optim/lamb.h"'
fault 'data sees no app' data/tokenizer/tokenizer.cc '#include "app/cli/percentage.h"'
fault 'cuda_ext/simd is for cuda_ext alone' model/bert.cc '#include "cuda_ext/simd/kernels.h"'
fault 'app/report has level' app/report/metrics.h '#include "app/verbs/verbs.h"'
fault 'there is no such file' app/main.cc '#include "app/none.h"'
fault 'write the path from the root' app/main.cc '#include "none.h"'
fault 'app/attic is not in the list' app/attic/old.h '#pragma once'
fault '`app/attic` has no source files' CONTRIBUTING.md '- 3 `app/attic`: nothing'
fault 'want - LEVEL' CONTRIBUTING.md '- 3 app/attic: nothing'
fault '#include <torch/types.h>: app/config has no mark' app/config/fields.h '#include <torch/types.h>'
fault '#include <ATen/ATen.h>: cuda_ext/scalar has no mark' cuda_ext/scalar/philox.h '#include <ATen/ATen.h>'
fault '#include <nlohmann/json.hpp>: not in data/' data/formats/shard.h '#include <nlohmann/json.hpp>'
fault 'no CMakeLists.txt names it' app/system/unlisted.cc ''
fault 'behind a name of math.h or launch.h' cuda_ext/kernels/dropout.cu '__syncthreads();'
fault 'no test reads it' tests/golden/unread.json '{}'
edit 'dropout_backward() is registered for CUDA' cuda_ext/cuda/dropout.cc '/^Tensor dropout_backward/,/^}/{/CUDAGuard/d}'
edit 'multi_tensor/cuda.cc:' cuda_ext/multi_tensor/cuda.cc '/void compute(/,/^  }/{/CUDAGuard/d}'
edit 'multi_tensor/cuda.cc:' cuda_ext/multi_tensor/cuda.cc '/\[\](const LrSchedule/,/}};/{/CUDAGuard/d}'
exit $failed
