#!/usr/bin/env bash
# tests/package/package.sh BUILD: installs BUILD, moves the installed tree, and builds and runs a program outside of the tree
# (tests/package/) with it. Part of tests/run.sh.
set -euo pipefail
source=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
build=$(readlink -f "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
fail() { echo "package: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$here/first" >"$here/log" || { cat "$here/log"; exit 1; }
mv "$here/first" "$here/moved"
cp -r "$source" "$here/program"
launcher=
! command -v ccache >/dev/null ||
  launcher="env;CCACHE_BASEDIR=$here;CCACHE_NOHASHDIR=1;CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime;ccache"
cmake -S "$here/program" -B "$here/program/build" -G Ninja -DCMAKE_PREFIX_PATH="$here/moved" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build "$here/program/build"
"$here/program/build/program"

"$source/../scripts/runpath.sh" "$here"/moved/bin/* "$here/moved/lib/libbert.so" || fail "of what is installed"
"$source/exports.sh" "$here/moved/lib" || fail "of the libraries"

# The package contains no path of this machine, neither of the source tree nor of the build's LibTorch.
root=$(cd "$source/../.." && pwd)
torch=$(dirname "$(ldd "$build/libbert.so" | awk '/libtorch_cpu.so/ {print $3}')")
! grep -rl -e "$here/first" -e "$root" -e "$torch" "$here/moved/include" "$here/moved/lib/cmake" || fail "these files name the machine"
! readelf -d "$here"/moved/{bin/*,lib/*.so} | grep -F "$torch" || fail "the installed programs look into the build's LibTorch"
# The programs find the library at its new place.
"$here/moved/bin/bert" version | grep -q LibTorch || fail "the installed bert does not find libbert.so"
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
