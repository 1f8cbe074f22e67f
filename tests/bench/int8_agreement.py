#!/usr/bin/env python3
"""int8_agreement.py BERT CHECKPOINT TEXT... [--masks N]: how often `bert predict --precision int8` gives fp32's best word.

Masks one word in each of N lines of the texts, at a place that depends on the line alone, asks both precisions for the best word, and
prints one line of JSON. The texts must be held out: the model has not seen them in training.
"""
import argparse, hashlib, json, subprocess, tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bert")
    parser.add_argument("checkpoint")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--masks", type=int, default=1000)
    parser.add_argument("--words", type=int, default=40, help="words of a line at most; longer lines are cut")
    given = parser.parse_args()
    lines = []
    for path in given.texts:
        for line in open(path, encoding="utf-8", errors="ignore"):
            words = line.split()[:given.words]
            if len(words) < 8 or "[MASK]" in words:
                continue
            place = int.from_bytes(hashlib.sha256(line.encode()).digest()[:4], "big") % len(words)
            lines.append(" ".join(words[:place] + ["[MASK]"] + words[place + 1:]))
    step = max(1, len(lines) // given.masks)
    lines = lines[::step][:given.masks]
    best = {}
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        for precision in ("fp32", "int8"):
            run = subprocess.run([given.bert, "predict", "--checkpoint", given.checkpoint, "--task", "fill-mask", "--top-k", "1",
                                  "--precision", precision, "--input", file.name, "--skip-bad"], stdout=subprocess.PIPE, check=True, text=True)
            best[precision] = [json.loads(line)["fillers"][0] for line in run.stdout.splitlines()]
    pairs = list(zip(best["fp32"], best["int8"]))
    same = sum(a["token"] == b["token"] for a, b in pairs)
    print(json.dumps({"masks": len(pairs), "same_best_word": same, "share": round(same / len(pairs), 4),
                      "mean_score_fp32": round(sum(a["score"] for a, _ in pairs) / len(pairs), 4)}))


main()
