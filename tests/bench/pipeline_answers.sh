#!/usr/bin/env bash
# tests/bench/pipeline_answers.sh [WORK]
# Fine-tunes small models for sst2, mrpc, ner, squad-v1 and squad-v2, converts them with `bert convert --to huggingface`, and asks the
# pipelines of transformers and `bert predict` the same: labels and answers must be the same, and scores must agree within 1e-4.
#
# Begins with the quick start's model. WORK, by default build/pipeline-answers, keeps the runs. Needs build/quickstart (app/quickstart.sh)
# and ../shared/data. transformers 5 has no pipeline for questions, so the version in pipeline_answers.txt is older.
#
#   BERT_PIPELINES_PYTHON=PYTHON   one that has the programs of pipeline_answers.txt; by default they are installed into
#                                  build/pipeline-answers-python
#
# Exit codes: 0 all agree; 1 not so; 66 something is missing; 69 no network; else that of the program that failed.

. "$(dirname "$(readlink -f "$0")")/peers.sh"
work=$(realpath -m -- "${1:-$root/build/pipeline-answers}")
quickstart=$root/build/quickstart/run shared=$root/../shared/data
need "$quickstart/latest" "$shared/glue/SST-2/train.tsv" "$shared/glue/MRPC/train.tsv" "$shared/squad/dev-v1.1.json"
install_peers "${BERT_PIPELINES_PYTHON:-}"
mkdir -p "$work/data"
[ -f "$work/data/dev.txt" ] || "$python" "$here/pipeline_answers.py" data "$shared/squad/dev-v1.1.json" "$work/data"

model() {  # model TASK DIRECTORY STEPS [OVERRIDES]: WORK/TASK, and the same for transformers in WORK/TASK-model
  "$bert" finetune "$root/configs/$1.json" "initial_checkpoint=$quickstart" "run_directory=$work/$1" "data.directory=$2" "max_steps=$3" \
    global_batch_size=16 micro_batch_size=16 optimizer.lr=5e-4 data.max_seq_length=64 checkpoint_every=0 evaluate_every=0 log_every=100 \
    "${@:4}" 2>"$work/$1.log" || { local code=$?; tail -n 3 "$work/$1.log" >&2; return $code; }
  [ -f "$work/$1-model/config.json" ] ||
    "$bert" convert --to huggingface --input "$work/$1" --output "$work/$1-model" >>"$work/$1.log" 2>&1 ||
    { local code=$?; tail -n 3 "$work/$1.log" >&2; return $code; }
}
squad=(data.max_query_length=24 data.doc_stride=16 optimizer.lr=1e-3)
model sst2 "$shared/glue/SST-2" 500
model mrpc "$shared/glue/MRPC" 300
model ner "$work/data" 40
model squad-v1 "$work/data" 1000 "${squad[@]}"
model squad-v2 "$work/data" 1000 "${squad[@]}" data.search_null_threshold=false
"$python" "$here/pipeline_answers.py" compare --bert "$bert" --glue "$shared/glue" --squad "$shared/squad/dev-v1.1.json" "$work"
