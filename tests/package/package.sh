#!/usr/bin/env bash
# tests/package/package.sh BUILD: installs BUILD, moves the installed tree, and builds and runs programs outside of the tree with it:
# tests/package/, and the installed copy of app/examples/. Part of tests/run.sh.
set -euo pipefail
source=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
build=$(readlink -f "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
fail() { echo "package: $*" >&2; exit 1; }

install_first() { cmake --install "$build" --prefix "$here/first" >"$here/log" || { cat "$here/log"; exit 1; }; }
install_first
# Over an older installation: its files do not stay among the new ones; those of others do. A build keeps the LibTorch that it uses.
installed=("$here"/first/{include/bert/data,lib/bert/torch/lib,lib/bert/torch/include/torch,lib})
for directory in "${installed[@]}"; do touch "$directory/older"; done
find "$here/first" ! -name older | sort >"$here/files"
cmake -DCMAKE_INSTALL_PREFIX="$here/first" -DTORCH_ROOT="$here/first/lib/bert/torch" -P "$source/../../app/setup/install_over.cmake"
[ -e "$here/first/lib/bert/torch/lib/older" ] || fail "an installation removes the LibTorch that its build uses"
install_first
[ "$(find "$here/first" -name older)" = "$here/first/lib/older" ] || fail "of an older installation stays $(find "$here/first" -name older)"
rm "$here/first/lib/older"
find "$here/first" | sort | cmp - "$here/files" || fail "an installation over an older one has other files than a new one"
mv "$here/first" "$here/moved"
cp -r "$source" "$here/program"
launcher=
! command -v ccache >/dev/null ||
  launcher="env;CCACHE_BASEDIR=$here;CCACHE_NOHASHDIR=1;CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime;ccache"
build_program() {  # build_program DIRECTORY
  cmake -S "$1" -B "$1/build" -G Ninja -DCMAKE_PREFIX_PATH="$here/moved" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
  cmake --build "$1/build"
}
build_program "$here/program"
cp -r "$here/moved/share/bert/examples" "$here/examples"
build_program "$here/examples"

# The installed programs make a tiny model of the licence's text.
quietly() { "$@" >"$here/log" 2>&1 || { cat "$here/log"; fail "$*"; }; }
bert=$here/moved/bin/bert text=$source/../../LICENSE
quietly "$bert" vocab --input "$text" --size 400 --allow-fewer --allow-fewer-characters --output "$here/vocab.txt"
quietly "$bert" data create --split-sentences --input "$text" --vocab "$here/vocab.txt" --max-seq-length 32 --max-predictions-per-seq 5 \
  --output "$here/train.shard"
cat >"$here/tiny.json" <<JSON
{"run_directory": "run", "max_steps": 2, "micro_batch_size": 8, "global_batch_size": 8, "device": "cpu",
 "data": {"train": ["train.shard"], "vocab_file": "vocab.txt"},
 "model": {"vocab_size": $(wc -l <"$here/vocab.txt"), "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
           "intermediate_size": 64, "max_position_embeddings": 32}}
JSON
quietly "$bert" pretrain "$here/tiny.json"
quietly "$bert" export --checkpoint "$here/run" --output "$here/bert.pt"

if [ -e "$build/libbert_arrow.so" ]; then  # app/setup.sh --arrow
  quietly "$bert" data convert "$here/train.shard" --vocab "$here/vocab.txt" --format parquet --output "$here/train.parquet"
  quietly "$bert" data verify "$here/train.parquet" --vocab "$here/vocab.txt"
  "$source/../scripts/runpath.sh" "$here/moved/lib/libbert_arrow.so" || fail "of what reads Parquet"
fi

# A program of somebody else. LibTorch's forward has waited for ever beside a library that brings a second copy of a symbol.
hang=120
timeout $hang "$here/program/build/program" "$here/bert.pt" || fail "program: exit code $? (124: it hangs)"

# The examples: two steps of Lamb, whose loss falls, into a file with the names of a checkpoint; and answers, those of bert predict.
timeout $hang "$here/examples/build/train" "$here/train.shard" "$here/trained.safetensors" >"$here/losses" || fail "train: exit code $?"
cat "$here/losses"
awk '{ loss[NR] = $NF } END { exit !(NR == 3 && loss[2] < loss[1] && loss[3] < loss[2] && loss[3] > 0) }' "$here/losses" ||
  fail "train: the loss of a batch did not fall"
names() { head -c 65536 "$1" | grep -aoE '"(bert|cls)\.[A-Za-z0-9_.]+"' | grep -vE 'layer\.[1-9]' | sort; }
cmp <(names "$here/trained.safetensors") <(names "$here/run/latest/model.safetensors") || fail "train: other names than a checkpoint's"
texts=("You may [MASK] copies of the Work." "[MASK] and [MASK]" "the License [MASK]")
"$bert" predict --checkpoint "$here/run" --top-k 3 "${texts[@]}" | grep -oE '"token_str":"([^"\\]|\\.)*"' | sed -E 's/^"token_str":"(.*)"$/\1/' >"$here/wanted"
[ "$(wc -l <"$here/wanted")" -eq 12 ] || fail "bert predict gave $(wc -l <"$here/wanted") fillers"
for path in run run/latest bert.pt; do
  timeout $hang "$here/examples/build/answer" "$here/$path" "${texts[@]}" >"$here/answers" || fail "answer $path: exit code $?"
  cmp <(sed -nE 's/^[01]\.[0-9]{4} //p' "$here/answers") "$here/wanted" || fail "answer $path and bert predict disagree"
  grep -qE '^likeness -?[01]\.[0-9]+$' "$here/answers" || fail "answer $path: no likeness"
done
! "$here/examples/build/answer" "$here/absent" x 2>"$here/log" || fail "answer reads what is not there"
grep -q "^answer: .*absent" "$here/log" || fail "answer does not name the path that is not there"

"$source/../scripts/runpath.sh" "$here"/moved/bin/* "$here/moved/lib/libbert.so" || fail "of what is installed"
"$source/exports.sh" "$here/moved/lib" || fail "of the libraries"

# The package contains no path of this machine, neither of the source tree nor of the build's LibTorch.
root=$(cd "$source/../.." && pwd)
torch=$(dirname "$(ldd "$build/libbert.so" | awk '/libtorch_cpu.so/ {print $3}')")
! grep -rl -e "$here/first" -e "$root" -e "$torch" "$here/moved/include" "$here/moved/lib/cmake" || fail "these files name the machine"
readelf -d "$here"/moved/{bin/*,lib/*.so} >"$here/log"
! grep -F "$torch" "$here/log" || fail "the installed programs look into the build's LibTorch"
! grep -rnE '#include <(nlohmann|CLI|fmt|sentencepiece|openssl)' "$here/moved/include" || fail "these headers want what a program may not have"
# The programs find the library at its new place.
"$here/moved/bin/bert" doctor >"$here/log" || true
grep -q '^ok    LibTorch' "$here/log" || fail "the installed bert does not find libbert.so"
for file in bash-completion/completions/bert{,run} zsh/site-functions/_bert fish/vendor_completions.d/bert{,run}.fish man/man1/bert{,run,-pretrain}.1; do
  [ -s "$here/moved/share/$file" ] || fail "share/$file is not installed"
done
"$here/moved/bin/bertrun" --help >"$here/log" || fail "the installed bertrun does not run"

printf 'one two three two one\n' >"$here/text"
"$here/moved/bin/bert" vocab --input "$here/text" --size 30 --allow-fewer --output "$here/vocab.txt" 2>"$here/log" ||
  { cat "$here/log"; fail "the installed bert does not find libbert_sentencepiece.so"; }

# Another version of LibTorch than the build's is refused, and the message has both versions.
mkdir -p "$here/other/include/torch/headeronly" "$here/other/lib"
touch "$here/other/include/torch/script.h"
for library in torch_cpu c10; do cp "$here/moved/bin/bertrun" "$here/other/lib/lib$library.so"; done  # any ELF file is enough
printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n#define TORCH_VERSION_PATCH 0\n' >"$here/other/include/torch/headeronly/version.h"
! cmake -S "$here/program" -B "$here/program/other" -G Ninja -DCMAKE_PREFIX_PATH="$here/other;$here/moved" >"$here/log" 2>&1 ||
  fail "another LibTorch was accepted"
tr -s ' \n' ' ' <"$here/log" | grep -q '2\.99\.0, and libbert.so was built with' || { cat "$here/log"; fail "no message about LibTorch's version"; }
