#!/usr/bin/env bash
# tests/scripts/command_lines.sh BUILD: checks what the programs say of their own command lines:
#   - the text of every --help fits a screen, and its examples have options that exist; those that need no data of others run;
#   - the completion of bash, in a real bash; the scripts of zsh and fish are read by these shells;
#   - the manual pages, by man or mandoc.
# Part of tests/run.sh. Prints "SKIPPED: REASON" for a program that is not installed.
set -euo pipefail
build=$(readlink -f "$1")
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() {
  echo "$*"
  failed=1
}
most_lines=50 most_columns=120

# ---- --help ----
# check_help PROGRAM WORD...: the help of a command, then that of its actions
check_help() {
  local name=${1##*/} help=$work/help line option action
  [ $# -eq 1 ] || name+=" ${*:2}"
  help+=-${name// /-}
  "$@" --help >"$help" 2>&1 </dev/null || { wrong "$name --help: exit code $?"; return; }
  echo "$name" >>"$work/commands"
  [ "$(wc -l <"$help")" -le $most_lines ] || wrong "$name --help: $(wc -l <"$help") lines, more than $most_lines"
  line=$(awk -v most=$most_columns 'length > most { print FNR ": " length " columns"; exit }' "$help")
  [ -z "$line" ] || wrong "$name --help: line $line, more than $most_columns"
  awk '/^Example: / { example = 1; sub(/^Example: /, "") } !/^ / && !example { next } example && (/^ / || started++ == 0) { sub(/^ +/, ""); print; next } { example = 0 }' \
    "$help" >"$help.examples"
  [ -s "$help.examples" ] || wrong "$name --help: no example"
  for option in $(grep -oE -- '(^| )--[a-z][a-z-]*' "$help.examples"); do
    grep -qE -- "(^|[^a-z-])$option([^a-z-]|$)" "$help" || { grep -q bertrun "$help.examples" && "$build/bertrun" --help | grep -q -- "$option"; } ||
      { [ $# -lt 3 ] && grep -q "^Usage: .* ACTION" "$help"; } || wrong "$name --help: the example has $option, which does not exist"
  done
  ! grep -q '^Usage: .* ACTION' "$help" || for action in $(sed -nE 's/^  ([a-z][a-z-]*) .*/\1/p' "$help"); do check_help "$@" "$action"; done
}
"$build/bert" --help >"$work/help-bert"
for verb in $(sed -nE 's/^  ([a-z][a-z-]*) .*/\1/p' "$work/help-bert"); do check_help "$build/bert" "$verb"; done
check_help "$build/bertrun"
[ "$(wc -l <"$work/help-bert")" -le $most_lines ] || wrong "bert --help: $(wc -l <"$work/help-bert") lines, more than $most_lines"
[ "$(wc -l <"$work/commands")" -ge 35 ] || wrong "found only $(wc -l <"$work/commands") commands"

# Examples with the files that they name. An example that downloads, trains, or reads a checkpoint is left out.
mkdir "$work/examples"
ln -s "$root/configs" "$work/examples/configs"
cp "$root/LICENSE" "$work/examples/book.txt"
ran=0
while read -r command; do
  [ -e "$work/help-${command// /-}.examples" ] || { wrong "there is no command $command"; continue; }
  while read -r example; do
    ran=$((ran + 1))
    (cd "$work/examples" && PATH=$build:$PATH bash -o pipefail -c "$example") >"$work/log" 2>&1 </dev/null || wrong "$example: exit code $?: $(cat "$work/log")"
  done <"$work/help-${command// /-}.examples"
done <<'COMMANDS'
bert config new
bert config validate
bert config show
bert config schema
bert config reference
bert config diff
bert completion
bert plan
bert version
COMMANDS
[ $ran -ge 9 ] || wrong "ran only $ran examples"

# ---- bash ----
"$build/bert" completion bash >"$work/bert.bash"
bash -n "$work/bert.bash" || wrong "bash does not read the completion"
# replies LINE [BREAKS]: the completions of a line, sorted, in one line. BREAKS are the characters that divide words.
replies() {
  local breaks=${2-$' \t\n"\'><=;|&(:'}
  bash --norc -c 'source "$1"; COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$3; _bert; printf "%s\n" "${COMPREPLY[@]}"' bash "$work/bert.bash" "$1" "$breaks" |
    sort | xargs
}
completes() {  # completes LINE WANTED [BREAKS]
  local got
  got=$(replies "$1" "${@:3}")
  [ "$got" = "$2" ] || wrong "bash completes '$1' with '$got', expected '$2'"
}
completes 'bert pretr' pretrain
completes 'bert data cr' create
completes 'bert data download sq' squad
completes 'build/bert config s' 'schema show'
completes 'bert data create --num-th' --num-threads
completes 'bert data create --input a b --format ' 'arrow hdf5 parquet shard tfrecord tfrecord.gz'
completes 'bert data create --format=sh' shard
completes 'bert data create --format=sh' --format=shard $' \t\n'
completes 'bert tokenize --vocab v.txt --format to' tokens
completes 'bert tokenize --vocab ' ''
completes 'bert data create --num-threads ' ''
completes 'bert pretrain optim' ''
completes 'bert pretrain c.json optimizer.l' 'optimizer.layer_lr_decay= optimizer.lr='
completes 'bert pretrain c.json optimizer.type=ad' 'adam adamw'
completes 'bert pretrain c.json optimizer.type=adamw' optimizer.type=adamw $' \t\n'
completes 'bert pretrain c.json seed=1 model.hidden_a' model.hidden_act=
completes 'bert pretrain c.json doc_str' ''
completes 'bert finetune c.json num_train' num_train_epochs=
completes 'bert finetune c.json task=squad-v' 'squad-v1 squad-v2'
completes 'bert config show c.json num_train' num_train_epochs=
completes 'bert benchmark st' step
completes 'bert benchmark step --config c.json prec' precision=
completes 'bert evaluate mr' mrpc
completes 'bertrun --nproc-per-n' --nproc-per-node
completes 'bertrun --nproc-per-node 2 b' bert
completes 'bertrun --standalone --nproc-per-node 2 bert pretr' pretrain
completes 'bertrun --nproc-per-node=2 -- bert pretrain c.json precision=b' 'bf16 bf16-weights'
completes 'bertrun --nproc-per-node 2 python3 tr' ''
[[ " $(replies 'bert ') " == *" vocab "*  ]] || wrong "bash does not complete the verbs"
[[ " $(replies 'bert pretrain c.json ') " == *" max_steps= "* ]] || wrong "bash does not complete the keys"

# In an interactive bash, a verb, a key, and files, with readline's own division of the line.
cat >"$work/type.py" <<'PYTHON'
import os, pty, re, select, sys, time
script, directory = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.chdir(directory)
    os.environ.update(PS1="$ ", TERM="dumb", HISTFILE="/dev/null")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
def read(until):
    seen, end = "", time.monotonic() + 20
    while until not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
os.write(terminal, f"bind 'set enable-bracketed-paste off'; source {script}; bert() {{ echo \"GOT:$*\"; }}; echo read''y\n".encode())
read("ready")
failed = 0
for typed, wanted in (("bert pretr\tc.js\toptimizer.l\tr\t1", "GOT:pretrain c.json optimizer.lr=1"),
                      ("bert tokenize --format tok\t--vocab voc\t", "GOT:tokenize --format tokens --vocab vocab.txt"),
                      ("bert pretrain c.json optimizer.type=lam\t", "GOT:pretrain c.json optimizer.type=lamb")):
    os.write(terminal, (typed + "\n").encode())
    got = re.sub(r" +", " ", read(wanted))
    if wanted not in got:
        failed = 1
        print(f"an interactive bash makes of {typed!r} {got!r}, expected {wanted!r}")
sys.exit(failed)
PYTHON
touch "$work/examples/c.json" "$work/examples/vocab.txt"
python3 "$work/type.py" "$work/bert.bash" "$work/examples" || failed=1

# ---- zsh and fish ----
for shell in zsh fish; do
  "$build/bert" completion $shell >"$work/bert.$shell"
  if command -v $shell >/dev/null; then
    $shell -n "$work/bert.$shell" || wrong "$shell does not read the completion"
  else
    echo "SKIPPED: no $shell to read the completion with"
  fi
done
if command -v fish >/dev/null; then
  export HOME=$work XDG_CONFIG_HOME=$work XDG_DATA_HOME=$work
  fish_completes() {
    local got
    got=$(cd "$work/examples" && fish --no-config -c "source $work/bert.fish; complete -C '$1'" | cut -f 1 | sort | xargs)
    [ "$got" = "$2" ] || wrong "fish completes '$1' with '$got', expected '$2'"
  }
  fish_completes 'bert pretr' pretrain
  fish_completes 'bert data create --format sh' shard
  fish_completes 'bert pretrain c.json optimizer.type=ada' 'optimizer.type=adam optimizer.type=adamw'
  fish_completes 'bertrun --nproc-per-node 2 bert config valid' validate
fi

# ---- manual pages ----
"$build/bert" man --output "$work/man"
verbs=$(sed -nE 's/^  ([a-z][a-z-]*) .*/\1/p' "$work/help-bert")
for page in bert bertrun $(sed 's/^/bert-/' <<<"$verbs"); do [ -s "$work/man/$page.1" ] || wrong "there is no page $page"; done
[ "$(ls "$work/man" | wc -l)" -eq $(($(wc -w <<<"$verbs") + 2)) ] || wrong "there are other pages: $(ls "$work/man" | xargs)"
"$build/bert" man pretrain | cmp - "$work/man/bert-pretrain.1" || wrong "bert man pretrain is another page than bert-pretrain.1"
code=0
"$build/bert" man pretrian >/dev/null 2>"$work/log" || code=$?
[ $code -eq 2 ] && grep -q "did you mean 'pretrain'" "$work/log" || wrong "bert man pretrian: exit code $code, $(cat "$work/log")"
checked=
for page in "$work"/man/*.1; do
  # Options of `man` and its reader: the checks of Debian's lintian.
  if command -v groff >/dev/null; then
    checked=1
    LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 groff -ww -z -man -Tutf8 -K utf8 "$page" >"$work/log" 2>&1 || true
    [ ! -s "$work/log" ] || wrong "$(head -n 5 "$work/log")"
  fi
  if command -v mandoc >/dev/null; then
    checked=1
    mandoc -T lint -W warning "$page" 2>&1 | grep -v 'missing date' >"$work/log" || true  # pages without a date are the same in every build
    [ ! -s "$work/log" ] || wrong "$(head -n 5 "$work/log")"
  fi
done
[ -n "$checked" ] || echo "SKIPPED: neither groff nor mandoc to read the manual pages with"
echo "$(wc -l <"$work/commands") commands, $ran examples run"
exit $failed
