#!/usr/bin/env bash
# tests/package/other_user.sh BUILD: root installs BUILD, and another user runs what is installed; bert doctor tells this user what is closed
# or absent. Part of tests/run.sh; needs root and setpriv.
set -euo pipefail
build=$(readlink -f "$1")
here=$(mktemp -d /var/tmp/bert-other-user.XXXXXX)  # TMPDIR may be closed to others; hard links need the disk of the cache
trap 'rm -rf "$here"' EXIT
chmod 755 "$here"
fail() { echo "other_user: $*" >&2; exit 1; }
as_other() { (cd / && setpriv --reuid=65534 --regid=65534 --clear-groups env -i HOME=/nonexistent "$@"); }

prefix=$here/opt/bert
(umask 077 && cmake --install "$build" --prefix "$prefix" >"$here/log" 2>&1) || { cat "$here/log"; fail "the installation failed"; }
closed=$(find "$prefix" ! -type l ! -perm -004; find "$prefix" -type d ! -perm -005)
[ -z "$closed" ] || fail "others cannot read $closed"
open=$(find "$prefix" ! -type l -perm /022)
[ -z "$open" ] || fail "others can change $open"
as_other "$prefix/bin/bert" version | grep -q '^LibTorch [0-9]' || fail "another user cannot run bert"
as_other "$prefix/bin/bert" doctor >"$here/report" || { cat "$here/report"; fail "bert doctor finds faults"; }
as_other "$prefix/bin/bertrun" --help >"$here/report" || fail "another user cannot run bertrun"
outside=$(as_other ldd "$prefix/lib/libbert.so" | grep '=> /' | grep -Ev "=> ($prefix|/lib|/usr/lib)" || true)
[ -z "$outside" ] || fail "the installation uses what is outside of it: $outside"

# says TEXT REMEDY PROGRAM: doctor, and a verb that needs LibTorch, name the cause and the remedy
says() {
  local code=0
  as_other "$3" doctor >"$here/report" || code=$?
  [ $code -eq 66 ] && grep '^BAD   LibTorch' "$here/report" | grep -F -- "$1" | grep -qF -- "$2" ||
    { cat "$here/report"; fail "wanted exit code 66, \"$1\" and \"$2\", got $code"; }
  code=0
  as_other "$3" export --checkpoint none --output none 2>"$here/report" || code=$?
  [ $code -eq 66 ] || fail "bert export ends with $code, not 66"
  grep -F "cannot load LibTorch: " "$here/report" | grep -F -- "$1" | grep -qF -- "$2" ||
    { cat "$here/report"; fail "bert export does not say \"$1\" and \"$2\""; }
}
chmod 700 "$prefix/lib/bert/torch"
says "libbert.so needs libtorch_cpu.so, and user nobody may not enter $prefix/lib/bert/torch (mode 700, owner root)" \
  "app/setup.sh --prefix" "$prefix/bin/bert"
chmod 755 "$prefix/lib/bert/torch"
chmod 750 "$prefix/lib/libbert.so"
says "user nobody may not read $prefix/lib/libbert.so (mode 750, owner root)" "app/setup.sh --prefix" "$prefix/bin/bert"
chmod 755 "$prefix/lib/libbert.so"
[ ! -d "$prefix/lib/bert/nvidia" ] || mv "$prefix/lib/bert/nvidia" "$here/nvidia"
lacking=$(as_other ldd "$prefix/lib/libbert.so" | awk '/not found/ {print $1; exit}')
[ -z "$lacking" ] ||
  says "libtorch_cpu.so needs $lacking, and there is no $prefix/lib/bert/nvidia" "run app/setup.sh again" "$prefix/bin/bert"
mv "$prefix/lib/bert" "$here/elsewhere"
says "libbert.so needs libtorch_cpu.so, and there is no $prefix/lib/bert" "run app/setup.sh again" "$prefix/bin/bert"

# The programs of the build, where the build's LibTorch is in a home that is closed to others.
torch=$(ldd "$build/libbert.so" | awk '/libtorch_cpu.so/ {print $3}')
if ! as_other test -r "$torch"; then
  mkdir -m 755 "$here/build"
  for file in bert libbert.so; do cp "$build/$file" "$here/build"; done
  chmod 755 "$here"/build/*
  says "libbert.so needs libtorch_cpu.so, and user nobody may not enter /" "app/setup.sh --prefix" "$here/build/bert"
fi
