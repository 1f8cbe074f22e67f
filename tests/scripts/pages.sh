#!/usr/bin/env bash
# tests/scripts/pages.sh BUILD [DIR]: checks every page (*.md) of the tree DIR (default: this one):
#   - a relative link leads to a file, and its #anchor to a heading;
#   - a command line of bert, bertrun or one of the scripts, in a code block or in a code span, has verbs and options that exist, and keys
#     that a configuration has.
# Part of tests/run.sh.
set -euo pipefail
build=$(readlink -f "$1")
root=$(cd "${2:-$(dirname "$(readlink -f "$0")")/../..}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 links=0 commands=0
wrong() {
  echo "$*"
  failed=1
}

# ---- links ----
# anchors FILE: the anchors of a page's headings, as GitHub makes them
anchors() {
  awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ +/, ""); gsub(/`/, ""); print tolower($0) }' "$1" |
    LC_ALL=C sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}
# prose FILE: LINE:TEXT of a page without its code blocks and code spans
prose() { awk '/^```/ { code = !code; next } !code { gsub(/`[^`]*`/, ""); print FNR ":" $0 }' "$1"; }
check_links() {  # check_links PAGE
  local page=$1 line target file anchor
  while IFS=: read -r line target; do
    case $target in http://* | https://* | mailto:*) continue ;; esac
    links=$((links + 1))
    file=${target%%#*} anchor=
    [[ "$target" != *#* ]] || anchor=${target#*#}
    file=${file:+$(dirname "$page")/$file}
    file=${file:-$page}
    if [ ! -e "$file" ]; then
      wrong "${page#"$root"/}:$line: the link to $target leads nowhere"
    elif [ -n "$anchor" ] && ! anchors "$file" | grep -qxF -- "$anchor"; then
      wrong "${page#"$root"/}:$line: $target: there is no such heading"
    fi
  done < <(prose "$page" | sed -nE 's/^([0-9]+):(.*)$/\1\t\2/p' |
    awk -F'\t' '{ text = $2; while (match(text, /\]\([^) ]+/)) { print $1 ":" substr(text, RSTART + 2, RLENGTH - 2); text = substr(text, RSTART + RLENGTH) } }')
}

# ---- commands ----
# help_of NAME COMMAND...: the file with the help of a command; fails where the command has none
help_of() {
  local file=$work/help-${1//\//_}
  shift
  if [ ! -e "$file" ]; then "$@" --help >"$file.new" 2>&1 </dev/null && mv "$file.new" "$file" || return 1; fi
  echo "$file"
}
# check_options WHERE HELP WORD...: every option among the words stands in the help
check_options() {
  local where=$1 help=$2 word
  shift 2
  for word in "$@"; do
    [ "$word" != -- ] || return 0
    for word in ${word//|/ }; do  # --slow|--asan
      [[ "$word" == --[a-z]* ]] || continue
      word=${word%%=*}
      word=${word//_/-}
      grep -qE -- "(^|[^a-z-])$word([^a-z0-9-]|$)" "$help" || wrong "$where: there is no option $word"
    done
  done
}
# check_parts WHERE VERB ACTION PART WORD...: the part of an action has the options
check_parts() {
  local where=$1 verb=$2 action=$3 parts=$4 part help
  shift 4
  for part in ${parts//|/ }; do
    if ! grep -qE "^  $part " "$(help_of "bert-$verb-$action" "$build/bert" "$verb" "$action")"; then
      wrong "$where: bert $verb $action has no $part"
    elif help=$(help_of "bert-$verb-$action-$part" "$build/bert" "$verb" "$action" "$part"); then
      check_options "$where" "$help" "$@"
    else
      wrong "$where: bert $verb $action $part has no help"
    fi
  done
}
# check_bert WHERE VERB WORD...
check_bert() {
  local where=$1 verb=${2:-} actions action= help action_help word config overrides=()
  shift
  [ $# -eq 0 ] || shift
  [[ "$verb" =~ ^[a-z] ]] || return 0  # a placeholder
  for verb in ${verb//|/ }; do
    help_of bert "$build/bert" >/dev/null
    if ! grep -qE "^  $verb " "$work/help-bert"; then
      wrong "$where: there is no verb $verb"
      continue
    fi
    help=$(help_of "bert-$verb" "$build/bert" "$verb") || { wrong "$where: bert $verb has no help"; continue; }
    case $verb in
      data | config | checkpoint | benchmark)
        actions=${1:-}
        [[ "$actions" =~ ^[a-z] ]] || actions=
        [ -z "$actions" ] || shift
        for action in ${actions//|/ }; do
          if ! grep -qE "^  $action " "$help"; then
            wrong "$where: bert $verb has no $action"
          elif action_help=$(help_of "bert-$verb-$action" "$build/bert" "$verb" "$action"); then
            if grep -q "^Usage: bert $verb $action ACTION" "$action_help" && [[ "${1:-}" =~ ^[a-z] ]]; then  # bert data download squad
              check_parts "$where" "$verb" "$action" "$@"
            else
              check_options "$where" "$action_help" "$@"
            fi
          else
            wrong "$where: bert $verb $action has no help"
          fi
        done
        [ -n "$actions" ] || check_options "$where" "$help" "$@"
        ;;
      *) check_options "$where" "$help" "$@" ;;
    esac
    if [[ "$verb" == pretrain || "$verb $action" == "config show" || "$verb $action" == "config validate" ]]; then
      config=$root/configs/bert-base.json
      for word in "$@"; do
        if [[ "$word" == *.json ]] && [ -e "$root/$word" ]; then config=$root/$word; fi
        [[ "$word" =~ ^[a-z_.]+=[^=]+$ ]] && [[ "$word" != *=[A-Z]* ]] && [[ "$word" != *'$'* ]] && overrides+=("$word")
      done
      "$build/bert" config show "$config" "${overrides[@]}" >/dev/null 2>"$work/log" || wrong "$where: $(cat "$work/log")"
    fi
  done
}
# check_command WHERE COMMAND: one command of a shell line
check_command() {
  local where=$1 words i
  read -ra words <<<"$2"
  for i in "${!words[@]}"; do
    case ${words[i]} in
      bert | */bert)
        commands=$((commands + 1))
        check_bert "$where" "${words[@]:i+1}"
        return
        ;;
      bertrun | */bertrun)
        commands=$((commands + 1))
        local own=() j
        for ((j = i + 1; j < ${#words[@]}; ++j)); do
          case ${words[j]} in bert | */bert | -- | *.py) break ;; esac
          own+=("${words[j]}")
        done
        check_options "$where" "$(help_of bertrun "$build/bertrun")" "${own[@]}"
        [ $j -ge ${#words[@]} ] || check_command "$where" "${words[*]:j}"
        return
        ;;
      app/*.sh | tests/*.sh | */app/*.sh | */tests/*.sh)
        local script
        script=$(grep -oE '(app|tests)/[a-z_/]+\.sh$' <<<"${words[i]}")
        commands=$((commands + 1))
        if [ ! -x "$root/$script" ]; then
          wrong "$where: there is no script $script"
        elif [ ${#words[@]} -gt $((i + 1)) ]; then
          check_options "$where" "$(help_of "$script" "$root/$script")" "${words[@]:i+1}"
        fi
        return
        ;;
      *=* | env | sudo | time | nohup | exec | '$' | flock | srun | mpirun | torchrun) ;;  # what may stand before a program
      *) [ "$i" -gt 0 ] || return 0 ;;
    esac
  done
}
# command_lines FILE: LINE<tab>COMMAND of a page's shell blocks, with continued lines joined, and of its code spans
command_lines() {
  awk '
    /^```/ { code = !code; shell = code && $0 ~ /^```(sh|bash|console)?$/; next }
    code && shell {
      if (begun == "") first = FNR
      if (sub(/\\$/, "")) { begun = begun $0 " "; next }
      print first "\t" begun $0
      begun = ""
    }
    !code {
      text = $0
      while (match(text, /`[^`]+`/)) {
        span = substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH)
        if (span ~ /^([a-z.]+\/)*bert(run)? [a-z-]/ || span ~ /^(app|tests)\/[a-z]+\.sh /) print FNR "\t" span
      }
    }' "$1"
}
check_commands() {  # check_commands PAGE
  local page=$1 line text command
  while IFS=$'\t' read -r line text; do
    text=$(sed -E 's/(^| )#.*//; s/[[:space:]]*(&&|;|[|] )[[:space:]]*/\n/g; s/ [0-9]?>+&?[^ ]*( [^ -]\S*)?//g; s/ < ?[^ ]+//g' <<<"$text")
    while read -r command; do
      [ -z "$command" ] || check_command "${page#"$root"/}:$line: $command" "$command"
    done <<<"$text"
  done < <(command_lines "$page")
}

mapfile -t pages < <(cd "$root" && find . -name '*.md' -not -path './build*' -not -path './.git/*' | sort)
for page in "${pages[@]}"; do
  check_links "$root/${page#./}"
  check_commands "$root/${page#./}"
done
[ ${#pages[@]} -gt 0 ] || wrong "no pages in $root"
echo "${#pages[@]} pages, $links links, $commands commands"
exit $failed
