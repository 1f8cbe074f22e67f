#!/usr/bin/env bash
# app/quickstart.sh [OPTIONS] [FILE...]
# From raw text to a pre-trained, exported BERT: installs and builds, learns a vocabulary, makes examples, pre-trains a small BERT on
# them, exports it and fills in masked words. It also makes a small table of classified texts for fine-tuning, texts/. A second run does only the steps that are not done yet, and continues an interrupted training.
#
#   FILE...           plain text in UTF-8, in any language, an empty line between documents, at least 10 KB (1 MB or more gives
#                     better results); default: the Jargon File, 1.2 MB of English prose
#   --user            install without root
#   --cpu, --cuda     without or with CUDA; default: with CUDA if an NVIDIA driver is loaded
#
# All results are in build/quickstart/. After set-up it takes at most five minutes on two cores.
#
# Example: app/quickstart.sh notes.txt
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
here=$root/build/quickstart
bert=$root/build/bert
setup=() files=()
say() { echo "quickstart: $*" >&2; }
die() { say "${*:2}"; exit "$1"; }
while [ $# -gt 0 ]; do
  case $1 in
    --user | --cpu | --cuda) setup+=("$1") ;;
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    -*) die 2 "unknown option $1; see app/quickstart.sh --help" ;;
    *) files+=("$1") ;;
  esac
  shift
done

case ${XDG_CACHE_HOME:-/} in
  /*) ;;
  *) say "XDG_CACHE_HOME is ignored: $XDG_CACHE_HOME is no absolute path; using ~/.cache"; unset XDG_CACHE_HOME ;;
esac

# Checks the text before anything is downloaded or built. Some languages write no spaces, so the check does not count words. It counts bytes
# of letters that stand beside another letter: 1,000 words of English have 5,000. Every byte beyond ASCII counts as a letter. bert knows no
# words of more than 200 letters, so runs of more than 600 bytes do not count, unless they contain characters from U+2000 on, where scripts
# without spaces and punctuation are.
least_bytes=10000 least_letters=5000
for i in "${!files[@]}"; do
  file=${files[i]}
  [ -e "$file" ] || die 66 "there is no file $file"
  [ ! -d "$file" ] || die 66 "$file is a directory; name the text files in it"
  [ -f "$file" ] && [ -r "$file" ] || die 66 "cannot read $file: give a text file"
  case $(head -c 2 "$file" | od -An -tx1 | tr -d ' ') in
    fffe | feff) die 65 "$file is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8 FILE" ;;
  esac
  bytes=$(wc -c <"$file")
  invalid=$((bytes - $({ iconv -c -f UTF-8 -t UTF-8 "$file" || true; } | wc -c)))
  [ $invalid -le 10 ] || [ $((100 * invalid)) -le "$bytes" ] ||
    die 65 "$invalid of the $bytes bytes of $file are not UTF-8, and one in 100 may be: is it text? If it is in Latin-1: iconv -f latin1 -t utf8 FILE"
  files[i]=$(readlink -f "$file")
done
if [ ${#files[@]} -gt 0 ]; then
  bytes=$(cat "${files[@]}" | wc -c)
  [ "$bytes" -ge $least_bytes ] ||
    die 65 "the text has $bytes bytes, which is too little to learn from: give at least 10 KB of prose, some 2,000 words; 1 MB is better"
  letters=$(cat "${files[@]}" | LC_ALL=C tr -cs 'A-Za-z\200-\377' '\n' |
    { LC_ALL=C grep -a '..' || true; } | { LC_ALL=C grep -avE $'^[A-Za-z\200-\341]{601,}$' || true; } | tr -d '\n' | wc -c)
  [ "$letters" -ge $least_letters ] ||
    die 65 "only $letters of the text's $bytes bytes belong to words of at most 200 letters, which is too little to learn from: give at least $least_letters, some 1,000 words, in UTF-8; 1 MB is better"
else
  setup+=(--jargon)
fi
"$root/app/setup.sh" "${setup[@]}" || exit $?
mkdir -p "$here"
exec 7>>"$here/lock"
if ! flock -n 7; then
  say "another quick start is running in $here; waiting for it"
  flock 7
fi

# Writes the dictionary's entries as documents, one paragraph per line, without headwords, pronunciations, markup and numbering.
jargon_to_prose() {
  awk '
    function end_paragraph() {
      gsub(/[{}]/, "", text)
      gsub(/ +/, " ", text)
      while (sub(/^ *([0-9]+[a-z]?\.|[a-z]\.|\[[^]]*\]|(n|v|vt|vi|adj|adv|interj|obs|excl|pref|suff|abbrev|prov|quant|imp|pl)\.,?)( |$)/, "", text)) {}
      if (length(text) > 60) document = document text "\n"  # shorter paragraphs are fragments
      text = ""
    }
    function end_document() {
      end_paragraph()
      if (document != "") printf "%s\n", document
      document = ""
    }
    /^[^ ]/ { end_document(); next }
    /^    [^ ]/ { text = text (text == "" ? "" : " ") substr($0, 5); next }
    { end_paragraph() }
    END { end_document() }'
}

# Prints a line "CLASS<tab>TEXT" for each sense of a word: the class of the word, and the first paragraph of its definition.
jargon_classes() {
  awk '
    function class_of(marks) {  # of the first mark
      if (!match(marks, /(^|[ ,])(n|v|vt|vi|adj)\./)) return ""
      marks = substr(marks, RSTART, RLENGTH)
      return marks ~ /n\./ ? "noun" : marks ~ /adj/ ? "adjective" : "verb"
    }
    function end_paragraph(    marks) {
      gsub(/[{}]/, "", text)
      gsub(/ +/, " ", text)
      if (text ~ /^ *[0-9]+[a-z]?\. /) begins = 1
      while (match(text, /^ *([0-9]+[a-z]?\.|[a-z]\.|\[[^]]*\]|(n|v|vt|vi|adj|adv|interj|obs|excl|pref|suff|abbrev|prov|quant|imp|pl)\.,?)( |$)/)) {
        marks = substr(text, 1, RLENGTH)
        text = substr(text, RLENGTH + 1)
        if (class_of(marks) != "") class = class_of(marks)
      }
      if (length(text) > 60 && class != "" && begins) print class "\t" text
      if (text != "") begins = 0
      text = ""
    }
    /^[^ ]/ { end_paragraph(); class = ""; begins = 1; next }
    /^ [^ ]/ { class = class_of($0); next }
    /^    [^ ]/ { text = text (text == "" ? "" : " ") substr($0, 5); next }
    { end_paragraph() }
    END { end_paragraph() }'
}
jargon=
if [ ${#files[@]} -eq 0 ]; then
  jargon=1
  source=/usr/share/dictd/jargon.dict.dz
  [ -r $source ] || source=${XDG_CACHE_HOME:-$HOME/.cache}/bert/jargon/usr/share/dictd/jargon.dict.dz
  files=("$here/text.txt")
  zcat "$source" | jargon_to_prose >"$here/text.new"
  mv "$here/text.new" "${files[0]}"
fi

# The sizes in configs/quickstart.json are for 1 MB. A smaller text gets a smaller vocabulary, because a piece that occurs a few times is
# not learned. It also gets fewer steps, so that each example is read as often. With fewer than 1,000 pieces or 500 steps nothing is
# learned.
bytes=$(cat "${files[@]}" | wc -c)
clamp() { echo $(($1 < $2 ? $2 : $1 > $3 ? $3 : $1)); }
tokens=$(clamp $((bytes / 100)) 1000 4096)
steps=$(clamp $((bytes / 125)) 500 6400)

# Another text or configuration gives other results, so the last results are moved aside. An incomplete result never replaces a complete
# one: if a text failed, its results are dropped when previous/ holds something.
checksum=$( (cat "${files[@]}" "$root/configs/quickstart.json"; echo "$tokens $steps") | sha256sum | cut -d ' ' -f 1)
if [ -e "$here/input.sha256" ] && [ "$(cat "$here/input.sha256")" != "$checksum" ]; then
  made=()
  for name in sentences.txt vocab.txt train.shard validation.shard run bert.pt texts classifier; do [ ! -e "$here/$name" ] || made+=("$here/$name"); done
  if [ -e "$here/bert.pt" ] || [ ! -e "$here/previous" ]; then
    say "another text or configuration than last time: starting anew; what was there is in build/quickstart/previous"
    rm -rf "$here/previous"
    mkdir "$here/previous"
    [ ${#made[@]} -eq 0 ] || mv "${made[@]}" "$here/previous/"
  else
    say "another text or configuration than last time: starting anew, without what that one left unfinished"
    rm -rf "${made[@]}"
  fi
fi
echo "$checksum" >"$here/input.sha256"

# step FILE WHAT COMMAND...: runs the command unless its result FILE exists
step() {
  if [ -e "$1" ]; then
    say "$2: done before"
  else
    say "$2"
    "${@:3}" || exit $?
  fi
}
step "$here/vocab.txt" "learning a vocabulary of $tokens word pieces" \
  "$bert" vocab --input "${files[@]}" --size "$tokens" --allow-fewer --allow-fewer-characters --output "$here/vocab.txt"

# Held-out examples come from separate documents. A text with too few documents is cut after every 20 sentences, a short text after every 5.
# If a language or a text has no full stops, its "sentences" are cut too: at a space, or between two characters.
examples=(--split-sentences --input "${files[@]}")
cut_long() {  # cut_long FILE: prints lines of at most 300 bytes (five times a usual sentence), and no empty lines
  LC_ALL=C awk -v most=300 '
    NF {
      for (begin = 1; length($0) - begin >= most; begin += bytes) {
        part = substr($0, begin, most + 1)
        for (bytes = most; bytes > most / 2 && substr(part, bytes, 1) != " "; ) --bytes
        if (bytes <= most / 2) for (bytes = most; bytes > most / 2 && substr(part, bytes + 1, 1) ~ /[\200-\277]/; ) --bytes
        print substr(part, 1, bytes)
      }
      print substr($0, begin)
    }' "$1" | awk NF
}
if [ ! -e "$here/train.shard" ]; then
  rm -f "$here/sentences.txt"
  for file in "${files[@]}"; do "$bert" data split <"$file" || exit $?; done >"$here/sentences.new"
  documents=$(awk '!NF { ++documents } END { print documents + 0 }' "$here/sentences.new")
  if [ "$documents" -lt 20 ]; then
    cut_long "$here/sentences.new" >"$here/sentences.cut"
    sentences=$(wc -l <"$here/sentences.cut")
    each=$(clamp $((sentences / 20)) 5 20)
    say "the text has few documents (an empty line ends one): cutting it after every $each sentences"
    awk -v each="$each" '{ print; if (NR % each == 0) print "" }' "$here/sentences.cut" >"$here/sentences.txt"
  fi
  rm -f "$here/sentences.new" "$here/sentences.cut"
fi
[ ! -e "$here/sentences.txt" ] || examples=(--input "$here/sentences.txt")
# Training masks 40 % of the tokens; BERT masked 15 %. A short training learns more from more masked tokens at little extra work (Wettig et
# al. 2022, Should You Mask 15 % in Masked Language Modeling?). The held-out examples are masked as BERT's. Figures:
# configs/quickstart.json.
step "$here/train.shard" "making pre-training examples" \
  "$bert" data create "${examples[@]}" --vocab "$here/vocab.txt" --max-seq-length 64 \
  --masked-lm-prob 0.4 --max-predictions-per-seq 26 --dupe-factor 10 --output "$here/train.shard" \
  --validation-output "$here/validation.shard" --validation-share 0.08 --validation-masked-lm-prob 0.15
learned=$(wc -l <"$here/vocab.txt")
size=()
[ "$learned" -eq 4096 ] || size=("model.vocab_size=$learned")
overrides=("${size[@]}")
[ "$steps" -eq 6400 ] || overrides+=("max_steps=$steps" "evaluate_every=$((steps / 4))")
if [ ${#overrides[@]} -gt 0 ]; then
  say "the text has $((bytes / 1000)) KB: a vocabulary of $learned word pieces and $steps steps (4,096 and 6,400 from 800 KB on)"
fi
say "pre-training a small BERT (configs/quickstart.json${overrides[*]:+ ${overrides[*]}})"
"$bert" pretrain "$root/configs/quickstart.json" "${overrides[@]}" || exit $?
newest=$(readlink -e "$here/run/latest") || die 66 "no checkpoint in $here/run/checkpoints"
if [ "$newest" -nt "$here/bert.pt" ]; then rm -f "$here/bert.pt"; fi
step "$here/bert.pt" "exporting $(basename "$newest") as TorchScript" \
  "$bert" export --checkpoint "$newest" --format torchscript --output "$here/bert.pt"

# The table for fine-tuning. Of several files, a text is a sentence and its class the name of its file; of one file, its half.
own_classes() {
  local names file
  names=$(for file in "${files[@]}"; do basename "$file"; done)
  if [ ${#files[@]} -gt 1 ] && [ -z "$(sort <<<"$names" | uniq -d)" ]; then
    for file in "${files[@]}"; do
      "$bert" data split <"$file" >"$here/sentences.new" || return $?
      cut_long "$here/sentences.new" | NAME=$(basename "$file" | tr '\t' ' ') awk '{ print ENVIRON["NAME"] "\t" $0 }'
    done
  else
    if [ -e "$here/sentences.txt" ]; then cat "$here/sentences.txt"; else "$bert" data split <"${files[0]}" || return $?; fi >"$here/sentences.new"
    cut_long "$here/sentences.new" | awk '{ lines[NR] = $0 } END { for (i = 1; i <= NR; ++i) print (2 * i > NR ? "second half" : "first half") "\t" lines[i] }'
  fi
  rm -f "$here/sentences.new"
}
# The second row of each class and every tenth after it are for development; the first is for training. So all classes are in the training
# file. 5,000 rows are enough for a trial.
make_table() {
  rm -rf "$here/texts.new" && mkdir "$here/texts.new" || return 74
  if [ -n "$jargon" ]; then zcat "$source" | jargon_classes; else own_classes; fi >"$here/texts.new/rows" || return $?
  { iconv -c -f UTF-8 -t UTF-8 "$here/texts.new/rows" || true; } | tr -d '\000-\010\013-\037' | (
    cd "$here/texts.new"
    every=$(($(wc -l <rows) / 5000 + 1))
    LC_ALL=C awk -v every="$every" '
      function quoted(cell) { gsub(/"/, "\"\"", cell); return "\"" cell "\"" }
      BEGIN { print "text,label" >"train.csv"; print "text,label" >"dev.csv" }
      NR % every == 0 && (tab = index($0, "\t")) && tab < length($0) {
        label = substr($0, 1, tab - 1)
        print quoted(substr($0, tab + 1)) "," quoted(label) >(rows[label]++ % 10 == 1 ? "dev.csv" : "train.csv")
      }'
    rm rows
  )
  rm -rf "$here/texts" && mv "$here/texts.new" "$here/texts"
}
step "$here/texts/train.csv" "making a table of texts and classes" make_table
# Two texts to classify: of the Jargon File's classes, or the first texts of two classes of the development set.
questions=("To change a program in a hurry, without a thought for its users." "A person who likes to look for faults in programs.")
[ -n "$jargon" ] || mapfile -t questions < <(LC_ALL=C awk -F '","' 'NR > 1 && !seen[$NF]++ && ++count <= 2 { sub(/^"/, "", $1); gsub(/""/, "\"", $1); print $1 }' "$here/texts/dev.csv")
[ ${#questions[@]} -gt 0 ] || questions=("A text.")

# For a text in other than Latin letters, the prompts are sentences of the text. A word, or a character, in the middle is masked.
prompts=(
  "It is one of the most [MASK] things in the world."
  "The program does not work because [MASK] is a bug in it."
  "He said that they had been there for many [MASK]."
)
own_prompts() {
  { if [ -e "$here/sentences.txt" ]; then cat "$here/sentences.txt"; else "$bert" data split <"${files[0]}"; fi; } | LC_ALL=C awk '
    function masked(line,    words, count, at, i, result) {
      count = split(line, words, / +/)
      if (count >= 5) {
        words[int(count / 2) + 1] = "[MASK]"
        for (i = 1; i <= count; ++i) result = result (i > 1 ? " " : "") words[i]
        return result
      }
      for (at = int(length(line) / 2); at > 1 && substr(line, at, 1) !~ /[\300-\377]/; ) --at
      for (i = at + 1; substr(line, i, 1) ~ /[\200-\277]/; ) ++i
      return substr(line, 1, at - 1) "[MASK]" substr(line, i)
    }
    function first(line, most,    i, characters) {  # the model reads 64 tokens, and a token may be a single character
      for (i = 1; i <= length(line); ++i) if (substr(line, i, 1) !~ /[\200-\277]/ && ++characters > most) break
      return substr(line, 1, i - 1)
    }
    length($0) >= 30 && !/["\\[]/ && count < 3000 { lines[++count] = first($0, 55) }
    END { for (i = 1; i <= 3 && i <= count; ++i) print masked(lines[1 + int((2 * i - 1) * (count - 1) / 6)]) }'
}
if [ $((4 * $(cat "${files[@]}" | LC_ALL=C tr -cd '\200-\377' | wc -c))) -gt "$bytes" ]; then
  mapfile -t own < <(own_prompts)
  [ ${#own[@]} -eq 0 ] || prompts=("${own[@]}")
fi
say "filling in masked words with the export"
"$bert" predict --checkpoint "$here/bert.pt" --task fill-mask --top-k 5 "${prompts[@]}" |
  sed -E 's/^\{"text": ?"([^"]*)".*"fillers": ?\[(.*)\]\}$/\1\n\2/' |
  awk '
    !/"token_str"/ { printf "\n%s\n", $0; next }
    {
      while (match($0, /"score": ?[^,]*,[^}]*"token_str": ?"(\\.|[^"\\])*"/)) {
        filler = substr($0, RSTART, RLENGTH)
        $0 = substr($0, RSTART + RLENGTH)
        score = filler
        sub(/^"score": ?/, "", score)
        sub(/^.*"token_str": ?/, "", filler)
        filler = substr(filler, 2, length(filler) - 2)
        gsub(/\\"/, "\"", filler)
        printf "  %5.1f %%  %s\n", 100 * score, filler
      }
    }'

figure() {  # figure NAME: prints a number of summary.json with two decimals
  sed -nE 's/.*"'"$1"'": *([-+0-9.eE]+).*/\1/p' "$here/run/summary.json" | head -n 1 | awk '{printf "%.2f", $1}'
}
quoted() { printf '%q ' "$@"; }
base=$root/build/bert-base
hint=
if awk "BEGIN {exit !($(figure mlm_loss) + 0.3 > $(figure unigram_entropy))}"; then
  hint=$'\nThat is hardly better than word frequencies: the text is small, or unlike prose. With 1 MB the model learns more.\n'
fi
cat <<TEXT

Held-out loss per masked token (nats)
  untrained model             $(figure mlm_loss_untrained)
  guessing by word frequency  $(figure unigram_entropy)
  trained model               $(figure mlm_loss)
$hint
checkpoint  $newest
metrics     $here/run/metrics.jsonl
summary     $here/run/summary.json
export      $here/bert.pt

Next:
  train longer:
    $(quoted "$bert" pretrain "$root/configs/quickstart.json" "${size[@]}" max_steps=20000 "run_directory=$here/longer")
  fine-tune on a small table, $here/texts, and ask for the class of a text:
    $(quoted "$bert" finetune "$root/configs/text-classification.json" "initial_checkpoint=$here/run" "data.directory=$here/texts" \
      data.max_seq_length=64 optimizer.lr=5e-4 "run_directory=$here/classifier")
    $(quoted "$bert" predict --checkpoint "$here/classifier" --task text-classification "${questions[@]}")
  your own text:
    $(quoted "$root/app/quickstart.sh") FILE...
  BERT-base, on this text or (after --input) on as much as you have:
    mkdir -p $(quoted "$base")
    $(quoted "$bert" vocab --input "${files[@]}" --size 30522 --allow-fewer --output "$base/vocab.txt")
    $(quoted "$bert" data create "${examples[@]}" --vocab "$base/vocab.txt" --max-seq-length 128 --max-predictions-per-seq 20 \
      --output "$base/train.shard" --validation-output "$base/validation.shard")
    $(quoted "$bert" pretrain "$root/configs/pretrain-adam.json" "run_directory=$base/run" "data.train=$base/train.shard" \
      "data.validation=$base/validation.shard" "data.vocab_file=$base/vocab.txt")model.vocab_size=\$(wc -l <$(printf %q "$base/vocab.txt"))
TEXT
