# Sourced by the scripts beside it that compare with programs of Python. It sets here, root and bert, and answers --help. Errors end the
# script.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=$(cd "$here/../.." && pwd)
bert=$root/build/bert
script=$(basename "$0" .sh)
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^$/{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
  esac
done
export TOKENIZERS_PARALLELISM=false TRANSFORMERS_VERBOSITY=error

need() {  # need FILE...: ends with 66 if one of them is missing
  local file
  for file in "$bert" "$@"; do
    [ -e "$file" ] || { echo "$script: $file is missing" >&2; exit 66; }
  done
}

install_peers() {  # install_peers PYTHON [OPTION...]: sets python to PYTHON, or if that is empty to one with the programs of PROGRAMS.txt
  python=$1
  [ -z "$python" ] || return 0
  local wanted=$here/${programs:-$script}.txt peers=${programs:-$script}
  peers=$root/build/${peers//_/-}-python
  python=$peers/bin/python
  cmp -s "$wanted" "$peers/installed.txt" && return
  rm -rf "$peers"
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet "${@:2}" --requirement "$wanted" || { echo "$script: cannot install the Python programs; pip says why above" >&2; exit 69; }
  cp "$wanted" "$peers/installed.txt"
}
