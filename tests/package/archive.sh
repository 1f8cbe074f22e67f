#!/usr/bin/env bash
# tests/package/archive.sh BUILD: app/setup/package.py on a small installation, bertrun of BUILD alone. Equal input gives equal bytes; the unpacked
# program uses the libraries beside it; the list of contents is right; a library of unknown origin is refused, and leaves no file. Part of
# tests/run.sh; needs python3, patchelf and Debian. tests/package/release.sh tests the whole archive.
set -euo pipefail
source=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
bertrun=$(readlink -f "$1")/bertrun
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
fail() { echo "archive: $*" >&2; exit 1; }
stage=$here/stage/bert-1.2.3
install_small() {
  rm -rf "$here/stage"
  mkdir -p "$stage/bin" "$stage/share/man/man1"
  cp "$bertrun" "$stage/bin/bertrun"
  ln -f "$stage/bin/bertrun" "$here/linked"  # as LibTorch's files are linked to the cache
  echo page >"$stage/share/man/man1/bertrun.1"
}
pack() { "$source/../../app/setup/package.py" "$stage" "$1" 1.2.3 1700000000 "$here"; }  # no wheels

for file in a.tar.gz b.tar.gz a.tar.zst a.deb b.deb; do
  [ $file != a.tar.zst ] || command -v zstd >/dev/null || continue
  install_small
  pack "$here/$file"
  cmp "$here/linked" "$bertrun" || fail "packing changes a file that is linked into the installation"
done
cmp "$here/a.tar.gz" "$here/b.tar.gz" || fail "two archives of one input differ"
cmp "$here/a.deb" "$here/b.deb" || fail "two .deb of one input differ"
[ ! -e "$here/a.tar.zst" ] || cmp <(gzip -dc "$here/a.tar.gz") <(zstd -dc "$here/a.tar.zst") || fail "the archives hold different files"

mkdir "$here/moved"
tar -C "$here/moved" -xzf "$here/a.tar.gz"
tree=$here/moved/bert-1.2.3
env -i "$tree/bin/bertrun" --help >"$here/log" || fail "the unpacked program does not run"
outside=$(env -i /bin/sh -c "ldd '$tree/bin/bertrun'" | awk '$2 == "=>" {print $3}' | grep -v "^$tree/" | grep -vE '/lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)\.so\.[0-9]+$' || true)
[ -z "$outside" ] || fail "the unpacked program uses $outside"
[ "$(stat -c '%a %Y' "$tree/bin/bertrun" "$tree/share/doc/bert/sbom.spdx.json" | sort -u | xargs)" = "644 1700000000 755 1700000000" ] || fail "modes or times"
"$source/sbom_check.py" "$tree"
"$source/../scripts/runpath.sh" "$tree/bin/bertrun" "$tree"/lib/bert/debian/* || fail "of the archive"

dpkg-deb --fsys-tarfile "$here/a.deb" | tar -t >"$here/list"
for path in ./opt/bert/bin/bertrun ./usr/bin/bertrun ./usr/share/man/man1/bertrun.1; do grep -qx "$path" "$here/list" || fail "no $path in the .deb"; done

install_small
mkdir -p "$stage/lib/bert/torch/lib"
cp "$bertrun" "$stage/lib/bert/torch/lib/libforeign.so"
code=0
pack "$here/foreign.tar.gz" 2>"$here/log" || code=$?
[ $code -eq 66 ] && grep -q "libforeign.so is of no wheel" "$here/log" && ! ls "$here"/foreign* 2>/dev/null ||
  { cat "$here/log"; fail "a library without an origin: exit code $code"; }
