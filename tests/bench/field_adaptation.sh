#!/usr/bin/env bash
# tests/bench/field_adaptation.sh [--quick] [WORK]
# The worth of adapting a general BERT to a field: held-out loss, tokens a word, and a task of the field.
#
# The general BERT (4 layers of 256) learns from novels and WikiText of ../shared/data. The field is the Jargon File of the quick start:
# its text without the documents that have a text of the task's development set; these are the held-out text. The task is the class of
# the word (noun, verb or adjective) that a definition belongs to. Rows of the table:
#
#   general           no adaptation
#   adapted           further pre-training on the field
#   adapted, words    the same number of tokens, with 1,000 words and pieces of the field (bert vocab --extend, initial_vocabulary)
#   adapted, random   the same, with random rows for them
#   field             a new BERT on the field alone, with as many tokens as the adaptation
#   field, minutes    the same, with as many minutes as general and adapted took together
#   MiniLM            with BERT_MINILM: all-MiniLM-L6-v2, which has no head for masked tokens
#   MiniLM, adapted   the same as adapted from it
#   MiniLM, words     the same as adapted, words from it
#
# Perplexity is that of a word with its tokens masked in turn, so vocabularies compare; losses of masked tokens compare within one
# vocabulary only. Accuracy is the mean of five seeds with its standard error. WORK, by default build/field-adaptation, keeps every run;
# a second call does what is left. It is sized for 80 minutes on two quiet cores with AVX2, --quick for 10: fewer tokens, two seeds.
#
#   BERT_MINILM=DIRECTORY   the directory of all-MiniLM-L6-v2, as sentence-transformers lays it out; without it, its rows are left out
#
# Needs app/quickstart.sh and ../shared/data. Prints a table in Markdown. Exit codes: 0; 66 something is missing; else that of the program
# that failed.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
quick=
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    --quick) quick=1; shift ;;
  esac
done
work=$(realpath -m -- "${1:-$root/build/field-adaptation${quick:+-quick}}")
bert=$root/build/bert quickstart=$root/build/quickstart texts=$root/../shared/data/text
for needed in "$bert" "$quickstart/text.txt" "$quickstart/texts/dev.csv" "$texts/novels" "$texts/wikitext-2"; do
  [ -e "$needed" ] || { echo "field_adaptation: $needed is missing" >&2; exit 66; }
done
minilm=${BERT_MINILM:+$(realpath -- "$BERT_MINILM")}
general_tokens=2500000 field_tokens=600000 task_steps=70 seeds=5 pseudo=200
[ -z "$quick" ] || { general_tokens=250000 field_tokens=60000 task_steps=40 seeds=2 pseudo=20; }
precision=fp32
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then precision=bf16; fi  # other processors would emulate it
mkdir -p "$work"
cd "$work"
exec 3>&1 >&2  # the table alone goes to standard output
say() { echo "field_adaptation: $*" >&2; }
make() {  # make FILE COMMAND...: runs the command, whose output is FILE, unless it is there
  [ -e "$1" ] || { "${@:2}" >"$1.new" && mv "$1.new" "$1"; }
}

# Documents with a text of dev.csv, which has one on each line in quotes, and the others.
split_field() {  # split_field 1: the held-out documents; split_field 0: the others
  awk -v held="$1" '
    FNR == NR { if (match($0, /^".*","/)) { text = substr($0, 2, RLENGTH - 4); gsub(/""/, "\"", text); known[text] = 1 } next }
    NF { document = document $0 "\n"; if ($0 in known) found = 1; next }
    { end() }
    END { end() }
    function end() { if (document != "" && found == held) printf "%s\n", document; document = ""; found = 0 }' \
    "$quickstart/texts/dev.csv" "$quickstart/text.txt"
}
make field.txt split_field 0
make held-out.txt split_field 1
[ -e general.vocab ] || "$bert" vocab --input "$texts/novels" "$texts/wikitext-2" --layout prose --size 8192 --allow-fewer-characters \
  --output general.vocab
[ -e words.vocab ] || "$bert" vocab --extend general.vocab --input field.txt --layout prose --add 1000 --output words.vocab
[ -e field.vocab ] || "$bert" vocab --input field.txt --layout prose --size 4096 --allow-fewer-characters --output field.vocab
shard() {  # shard NAME VOCABULARY INPUT...
  [ -e "$1.shard" ] || "$bert" data create --input "${@:3}" --layout prose --vocab "$2" --output "$1.shard" --max-seq-length 64 \
    --objective mlm --masking none
}
shard general general.vocab "$texts/novels" "$texts/wikitext-2"
shard adapted general.vocab field.txt
shard words words.vocab field.txt
shard field field.vocab field.txt
if [ -n "$minilm" ]; then
  [ -e minilm-words.vocab ] || "$bert" vocab --extend "$minilm/vocab.txt" --input field.txt --layout prose --add 1000 \
    --output minilm-words.vocab
  shard minilm "$minilm/vocab.txt" field.txt
  shard minilm-words minilm-words.vocab field.txt
fi

pretrain() {  # pretrain RUN SHARD VOCABULARY OVERRIDE...: begins the run, or goes on with one that was stopped
  if tail -n 1 "$1/attempts.jsonl" 2>/dev/null | grep -q '"reason":"finished"'; then return 0; fi
  say "pre-training $1"
  "$bert" pretrain "$root/configs/quickstart.json" "run_directory=$1" "data.train=$2" "data.vocab_file=$3" 'data.validation=[]' \
    evaluate_every=0 "${shape[@]/#/model.}" "model.vocab_size=$(wc -l <"$3")" data.masking=dynamic data.masked_lm_prob=0.3 \
    global_batch_size=32 precision=$precision micro_batch_size=32 checkpoint_every=0 checkpoint_every_minutes=5 \
    schedule.type=wsd schedule.decay_proportion=0.3 schedule.warmup_proportion=0.05 'report=["jsonl"]' "${@:4}"
}
seconds() {  # seconds RUN...: of all their processes
  sed -nE 's/.*"event":"(begin|end)","time":([0-9.]+).*/\1 \2/p' "${@/%//attempts.jsonl}" |
    awk '$1 == "begin" { begin = $2 } $1 == "end" { sum += $2 - begin } END { print sum }'
}
shape=(hidden_size=256 num_hidden_layers=4 num_attention_heads=4 intermediate_size=1024 initializer_range=0.05)
pretrain general general.shard general.vocab "max_tokens=$general_tokens"
further=("max_tokens=$field_tokens" initial_checkpoint=general optimizer.lr=5e-4)
pretrain adapted adapted.shard general.vocab "${further[@]}"
pretrain minutes field.shard field.vocab max_steps=100000 schedule.warmup_proportion=0.001 \
  "max_hours=$(seconds general adapted | awk '{ print $1 / 3600 }')"
pretrain words words.shard words.vocab "${further[@]}" initial_vocabulary.rows=mean_of_pieces
pretrain random words.shard words.vocab "${further[@]}" initial_vocabulary.rows=random
pretrain field field.shard field.vocab "max_tokens=$field_tokens"
scored=(general adapted words random field minutes)
if [ -n "$minilm" ]; then
  shape=(hidden_size=384 num_hidden_layers=6 num_attention_heads=12 intermediate_size=1536 max_position_embeddings=512
    initializer_range=0.02)
  further=("max_tokens=$field_tokens" "initial_checkpoint=$minilm" optimizer.lr=5e-4)
  pretrain minilm-adapted minilm.shard "$minilm/vocab.txt" "${further[@]}"
  pretrain minilm-words minilm-words.shard minilm-words.vocab "${further[@]}" initial_vocabulary.rows=mean_of_pieces
  scored+=(minilm-adapted minilm-words)
fi

list=$(IFS=,; echo "${scored[*]}")
make held-out.json "$bert" evaluate pretraining --checkpoint "$list" --dataset held-out.txt --max-examples 2000 \
  --pseudo-examples "$pseudo"
task() {  # task RUN: its accuracy; takes the place of the shell that calls it
  local start=$1
  [ "$1" != minilm ] || start=$minilm
  if [ -e "$1-task/summary.json" ]; then return 0; fi
  say "the task with $1"
  OMP_NUM_THREADS=$(($(nproc) > 1 ? $(nproc) / 2 : 1)) exec "$bert" finetune "$root/configs/text-classification.json" "run_directory=$1-task" \
    "initial_checkpoint=$start" "data.directory=$quickstart/texts" data.max_seq_length=64 "max_steps=$task_steps" global_batch_size=16 \
    micro_batch_size=16 optimizer.lr=3e-4 precision=$precision checkpoint_every=0 log_every=0 'report=["jsonl"]' --seeds "$seeds"
}
pids=()  # two tasks at once: these models are small
trap 'kill $(jobs -pr) 2>/dev/null || true' EXIT  # if one task fails, the other ends too, and can go on later
for run in ${minilm:+minilm} "${scored[@]}"; do
  if [ ${#pids[@]} = 2 ]; then
    wait "${pids[0]}"
    pids=("${pids[1]}")
  fi
  task "$run" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done

figure() {  # figure RUN NAME FORMAT: of the models' figures; nothing if RUN has none
  sed -n '$p' held-out.json | sed 's/{"checkpoint"/\n&/g' | grep -F "{\"checkpoint\":\"$1\"" | sed -nE 's/.*"'"$2"'":([0-9.]+).*/\1/p' |
    awk -v format="$3" '{ printf format, $1 }'
}
tokens_a_word() {  # tokens_a_word VOCABULARY
  "$bert" tokenize --vocab "$1" <held-out.txt 2>tokenize.log |
    awk -v words="$(wc -w <held-out.txt)" '{ n += NF } END { printf "%.3f", n / words }'
}
exec >&3
echo "| model | training | tokens a word | loss of masked tokens | perplexity of a word | accuracy |"
echo "|---|---|---|---|---|---|"
row() {  # row RUN NAME TRAINING VOCABULARY
  local accuracy
  accuracy=$(sed -nE 's/^ *"accuracy": *([0-9.]+).*/\1/p' "$1-task"/seed-*/summary.json | awk '
    { n += 1; sum += $1; squares += $1 * $1 }
    END { mean = sum / n; printf "%.3f ± %.3f", mean, sqrt((squares - n * mean * mean) / (n - 1) / n) }')
  echo "| $2 | $3 | $(tokens_a_word "$4") | $(figure "$1" mlm_loss %.3f) | $(figure "$1" pseudo_perplexity %.1f) | $accuracy |"
}
million() { awk -v tokens="$1" 'BEGIN { printf "%.1f million tokens", tokens / 1e6 }'; }
minutes=$(seconds general adapted | awk '{ printf "%.1f minutes", $1 / 60 }')
on_field="$(million "$field_tokens") further"
row general general "$(million "$general_tokens"), $(seconds general | awk '{ printf "%.1f minutes", $1 / 60 }')" general.vocab
row adapted adapted "$on_field" general.vocab
row words "adapted, words" "$on_field" words.vocab
row random "adapted, random" "$on_field" words.vocab
row field field "$(million "$field_tokens")" field.vocab
row minutes "field, minutes" "$minutes" field.vocab
if [ -n "$minilm" ]; then
  row minilm MiniLM elsewhere "$minilm/vocab.txt"
  row minilm-adapted "MiniLM, adapted" "$on_field" "$minilm/vocab.txt"
  row minilm-words "MiniLM, words" "$on_field" minilm-words.vocab
fi
