#!/usr/bin/env bash
# tests/scripts/serve_page.sh BUILD CHECKPOINT [DIRECTORY [TASK]]: asks the page of `bert serve` in headless Chromium, in light and in dark, and looks
# for what it shows of TASK. Screenshots go to DIRECTORY. Without Chromium it prints SKIPPED.
set -euo pipefail
build=$(readlink -f "$1")
checkpoint=$2
directory=${3:-$(mktemp -d)}
task=${4:-fill-mask}
for chromium in chromium chromium-browser google-chrome chrome-headless-shell ''; do
  if command -v "$chromium" >/dev/null; then break; fi
done
[ -n "$chromium" ] || { echo "SKIPPED: there is no Chromium"; exit 0; }
work=$(mktemp -d)
"$build/bert" serve --checkpoint "$checkpoint" --task "$task" --port 0 >"$work/line" &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 300); do
  [ ! -s "$work/line" ] || break
  sleep 0.1
done
url=$(sed -n 's/.* at //p' "$work/line")
[ -n "$url" ] || { echo "bert serve did not start"; exit 1; }
# The hash makes the page ask by itself, once its script has loaded.
show() { # show SCHEME OPTIONS...
  local scheme=$1
  shift
  timeout 60 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --window-size=900,1100 --virtual-time-budget=5000 \
    $([ "$scheme" = light ] || echo --blink-settings=preferredColorScheme=0) "$@" "$url/#ask" 2>/dev/null
}
show light --dump-dom >"$work/dom"
failed=0
expect() {
  grep -qE "$1" "$work/dom" && return
  echo "the page does not show $2"
  failed=1
}
if [ "$task" = embedding ]; then
  expect 'style="background: color-mix\(in srgb, var\(--bar\) 60%, transparent\);">1\.00</td>' "a text's cosine with itself in full colour"
  expect 'download="vectors.json" href="blob:' "the vectors to download"
  [ "$(grep -o '<td class="share"' "$work/dom" | wc -l)" -eq 9 ] || { echo "the page does not compare three texts"; failed=1; }
else
  expect 'class="fill" style="width: [0-9.e-]+%' "a bar"
  expect '<span class="share">[0-9.]+ %' "a probability"
  expect 'class="token special">\[CLS\]' "the token [CLS]"
fi
case $task in
fill-mask)
  expect '<mark>[^<]+</mark>' "the sentence with its word"
  expect 'class="token special">\[MASK\]' "the token [MASK]"
  ;;
text-classification) expect '<h2 id="heading">Labels</h2>' "the labels" ;;
token-classification) expect '<mark title="[0-9.]+ %">[^<]+<small> [^<]+</small></mark>' "a word with its label" ;;
question-answering) expect '<mark title="[0-9.]+ %">[^<]+</mark>' "the answer in its context" ;;
esac
expect '<p id="error" role="alert" hidden' "that there was no error"
[ "$task" != fill-mask ] || for scheme in light dark; do show $scheme --screenshot="$directory/page-$scheme.png" >/dev/null; done
[ $failed = 0 ] && echo "the page shows the answer to $task; screenshots in $directory"
exit $failed
