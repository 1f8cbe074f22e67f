#!/usr/bin/env bash
# tests/bench/distillation.sh [WORK]
# A small student of SST-2 with and without a teacher: ten accuracies, over five seeds, and their paired differences.
#
# The teacher is the quick start's model (2 layers of 128), fine-tuned for 1,500 steps. The student has 2 layers of 64 and a short
# pre-training on the quick start's text. All students have the same steps, rate and order of sentences. WORK, by default
# build/distillation, keeps every run; a second call does what is left. Needs build/quickstart (app/quickstart.sh) and ../shared/data.
#
# Prints a row for each seed, then the mean, the standard deviation and the standard error of the differences. Exit codes: 0 the mean
# difference is above 0; 1 it is not; 66 something is missing; else that of the run that failed.

. "$(dirname "$(readlink -f "$0")")/peers.sh"
work=$(realpath -m -- "${1:-$root/build/distillation}")
quickstart=$root/build/quickstart sst2=$root/../shared/data/glue/SST-2
need "$quickstart/run/latest" "$sst2/train.tsv"
mkdir -p "$work"
finetune=(global_batch_size=32 micro_batch_size=32 data.max_seq_length=64 "data.directory=$sst2" checkpoint_every=0 log_every=100)

"$bert" finetune "$root/configs/sst2.json" "${finetune[@]}" "run_directory=$work/teacher" "initial_checkpoint=$quickstart/run" \
  max_steps=1500 optimizer.lr=5e-4
"$bert" pretrain "$root/configs/quickstart.json" "run_directory=$work/student" max_steps=1000 evaluate_every=0 \
  model.hidden_size=64 model.intermediate_size=256 model.vocab_size="$(wc -l <"$quickstart/vocab.txt")" \
  "data.train=$quickstart/train.shard" "data.vocab_file=$quickstart/vocab.txt"
student=("${finetune[@]}" "initial_checkpoint=$work/student" max_steps=1500 optimizer.lr=5e-4 --seeds 5)
"$bert" finetune "$root/configs/sst2.json" "${student[@]}" "run_directory=$work/plain"
"$bert" finetune "$root/configs/sst2.json" "${student[@]}" "run_directory=$work/distilled" "distillation.teacher=$work/teacher" \
  distillation.temperature=2 distillation.attention_weight=0.1

accuracies() {  # accuracies RUN: one a line, in the order of the seeds
  for run in "$work/$1"/seed-*; do sed -nE 's/^ *"accuracy": *([0-9.]+).*/\1/p' "$run/summary.json"; done
}
echo "teacher $(sed -nE 's/^ *"accuracy": *([0-9.]+).*/\1/p' "$work/teacher/summary.json")"
paste <(accuracies plain) <(accuracies distilled) | awk '
  BEGIN { print "plain     distilled  difference" }
  { d = $2 - $1; n += 1; sum += d; squares += d * d; plain += $1; distilled += $2; printf "%.4f    %.4f     %+.4f\n", $1, $2, d }
  END {
    mean = sum / n; deviation = sqrt((squares - n * mean * mean) / (n - 1))
    printf "mean %.4f, %.4f; difference %+.4f, standard deviation %.4f, standard error %.4f\n", plain / n, distilled / n, mean, deviation,
      deviation / sqrt(n)
    exit !(mean > 0)
  }'
