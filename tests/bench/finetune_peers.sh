#!/usr/bin/env bash
# tests/bench/finetune_peers.sh [WORK [RUN [LENGTH]]]
# The same fine-tuning by bert and by transformers' Trainer: SST-2 and MRPC with five seeds each, from the pre-trained RUN, by default the
# quick start's, with at most LENGTH tokens, by default 64. Prints the metrics and the training speeds of every seed, and whether the
# means agree within two standard errors of their difference.
#
# Both have the hyper-parameters of configs/TASK.json, but for rate and steps, which fit the quick start's small model: 5e-4, for SST-2
# 1,500 steps, for MRPC 3 epochs. Both have fp32, all cores and batches of 32, which Trainer pads to their longest sequence. Tokenization,
# evaluation and checkpoints are outside of the time. The programs take turns, seed by seed. WORK, by default build/finetune-peers, keeps
# every run; a second call does what is left. Needs app/quickstart.sh and ../shared/data.
#
#   BERT_TRANSFORMERS_PYTHON=PYTHON   one that has the programs of finetune_peers.txt; by default they are installed into
#                                     build/finetune-peers-python
#
# Exit codes: 0 means agree and bert is at least twice as fast; 1 not so; 66 something is missing; 69 no network; else that of the program
# that failed.
#
# Example: tests/bench/finetune_peers.sh build/finetune-phase2 runs/phase2 128

. "$(dirname "$(readlink -f "$0")")/peers.sh"
work=$(realpath -m -- "${1:-$root/build/finetune-peers}")
run=$(realpath -m -- "${2:-$root/build/quickstart/run}") length=${3:-64}
glue=$root/../shared/data/glue
need "$run" "$glue/SST-2/train.tsv" "$glue/MRPC/train.tsv"
install_peers "${BERT_TRANSFORMERS_PYTHON:-}"
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS
mkdir -p "$work"
[ -f "$work/model/config.json" ] ||
  "$bert" convert --to huggingface --input "$run" --output "$work/model" >"$work/convert.log" 2>&1 ||
  { code=$?; tail -n 3 "$work/convert.log" >&2; exit $code; }

pair() {  # pair TASK DIRECTORY STEPS: both programs with each seed
  local task=$1 data=$glue/$2 steps=$3 seed
  local ours=("$root/configs/$task.json" "initial_checkpoint=$run" "data.directory=$data" "data.max_seq_length=$length" "max_steps=$steps"
    optimizer.lr=5e-4 checkpoint_every=0 log_every=100)
  mkdir -p "$work/$task/transformers"
  for seed in 42 43 44 45 46; do
    "$bert" finetune "${ours[@]}" "seed=$seed" "run_directory=$work/$task/bert/seed-$seed" 2>"$work/$task/bert-$seed.log" ||
      { local code=$?; tail -n 3 "$work/$task/bert-$seed.log" >&2; return $code; }
    [ -f "$work/$task/transformers/seed-$seed.json" ] ||
      "$python" "$here/finetune_peers.py" train --task "$task" --model "$work/model" --data "$data" --seed "$seed" --steps "$steps" \
        --lr 5e-4 --max-seq-length "$length" --output "$work/$task/transformers/seed-$seed.json" >"$work/$task/transformers-$seed.log" 2>&1 ||
      { local code=$?; tail -n 5 "$work/$task/transformers-$seed.log" >&2; return $code; }
  done
  "$bert" finetune "${ours[@]}" "run_directory=$work/$task/bert" --seeds 5 2>"$work/$task/bert.log"  # runs are done: mean and deviation
}

pair sst2 SST-2 1500
pair mrpc MRPC 344
"$python" "$here/finetune_peers.py" compare "$work" sst2 mrpc
