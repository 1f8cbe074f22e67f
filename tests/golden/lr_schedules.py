"""Writes lr_schedules.json: learning-rate schedules in float64. Needs CPython >= 3.8 only (written with 3.11.2).

Each schedule is written as its original program computes it, without code of the program under test. The originals are
in github.com/NVIDIA/DeepLearningExamples at 729963dd (FRAMEWORK/LanguageModeling/BERT) and in transformers:
- poly, linear, constant: schedulers.py of PyTorch. The variable is k / T; step k counts from 1, T is the number of steps.
- tensorflow: optimization.py of TensorFlow, polynomial_decay of an adjusted rate; steps count from 0.
- poly_rebased, cosine: as in transformers; the variable is the share of the steps after warm-up.
"""

import json
import math
import os


def warm_then(decay):
    def rate(step, lr, w, total, degree):
        x = step / total
        return lr * x / w if x < w else lr * decay(x, w, degree)

    return rate


poly = warm_then(lambda x, w, degree: max(1 - x, 0) ** degree)
linear = warm_then(lambda x, w, degree: max((x - 1) / (w - 1), 0))
constant = warm_then(lambda x, w, degree: 1)
poly_rebased = warm_then(lambda x, w, degree: (1 - min((x - w) / (1 - w), 1)) ** degree)
cosine = warm_then(lambda x, w, degree: 0.5 * (1 + math.cos(math.pi * min((x - w) / (1 - w), 1))))


def tensorflow(step, lr, w, total, degree):
    global_step, warmup = step - 1, math.floor(w * total)
    if global_step < warmup:
        return lr * (global_step / warmup)
    return lr * (1 - min(global_step, total) / total) ** degree


RULES = {"poly": poly, "poly_rebased": poly_rebased, "linear": linear, "cosine": cosine, "constant": constant,
         "tensorflow": tensorflow}
OPTIONS = [(6e-3, 0.2843, 7038, 0.5), (4e-3, 0.128, 1563, 0.5), (3e-5, 0.1, 1000, 1.5), (1e-4, 0.0, 7, 0.5)]


def main():
    entries = []
    for name, rule in RULES.items():
        for lr, w, total, degree in OPTIONS:
            warmup = math.floor(w * total)
            steps = {1, 2, 100, warmup - 1, warmup, warmup + 1, warmup + 2, total // 2, total - 1, total, total + 1, 2 * total}
            points = [[k, 0.0 if k > total and name != "constant" else rule(k, lr, w, total, degree)]
                      for k in sorted(steps) if 1 <= k]
            entries.append({"type": name, "lr": lr, "warmup_proportion": w, "max_steps": total, "degree": degree,
                            "points": points})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lr_schedules.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(entries, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
