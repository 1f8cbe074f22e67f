"""Writes lr_schedules.json: learning-rate schedules in float64. Needs CPython >= 3.8 only (written with 3.11.2).

Each schedule is written as its original program computes it, without code of the program under test. The originals are
in github.com/NVIDIA/DeepLearningExamples at 729963dd (FRAMEWORK/LanguageModeling/BERT) and in transformers:
- poly, linear, constant: schedulers.py of PyTorch. The variable is k / T; step k counts from 1, T is the number of steps.
- tensorflow: optimization.py of TensorFlow, polynomial_decay of an adjusted rate; steps count from 0.
- poly_rebased, cosine: as in transformers; the variable is the share of the steps after warm-up.
- min_lr_ratio of the other decays: as in transformers' cosine_with_min_lr and polynomial (lr_end), the decay ends there
  and the warm-up begins at 0. These two are compared with transformers, where it is installed.
- wsd: get_wsd_schedule of transformers, with its numbers of steps. Where transformers 4.46 or later is installed, the
  script compares its own rates with those of transformers. The decay "sqrt" is its own: sqrt(1 - progress).
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

def wsd(step, lr, w, total, decay_type, decay, ratio):
    warmup, decay_steps = round(w * total), round(decay * total)
    stable = total - warmup - decay_steps
    if step < warmup:
        factor = step / warmup * (1 - ratio) + ratio
    elif step < warmup + stable:
        factor = 1.0
    elif step < total:
        progress = (step - warmup - stable) / decay_steps
        shape = {"linear": 1 - progress, "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
                 "sqrt": math.sqrt(1 - progress), "1-sqrt": 1 - math.sqrt(progress)}[decay_type]
        factor = shape * (1 - ratio) + ratio
    else:
        factor = ratio
    return lr * factor


def check_wsd(points, lr, w, total, decay_type, decay, ratio):
    """Compares with transformers, if it is there and has the shape."""
    try:
        import torch
        from transformers import get_wsd_schedule
    except ImportError:
        return False
    if decay_type == "sqrt":
        return False
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    warmup, decay_steps = round(w * total), round(decay * total)
    rate = get_wsd_schedule(optimizer, warmup, decay_steps, num_stable_steps=total - warmup - decay_steps,
                            decay_type=decay_type, min_lr_ratio=ratio).lr_lambdas[0]
    for step, value in points:
        assert abs(lr * rate(step) - value) <= 1e-12 * lr, (step, value, lr * rate(step))
    return True


def with_floor(name, step, lr, w, total, degree, ratio):
    rate = 0.0 if step > total else RULES[name](step, lr, w, total, degree)
    return rate if step / total < w else ratio * lr + (1 - ratio) * rate


def check_floor(points, name, lr, w, total, degree, ratio):
    """Compares with transformers, if it is there and has the decay."""
    try:
        import torch
        from transformers import optimization
    except ImportError:
        return False
    optimizer, warmup = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr), round(w * total)
    if name == "cosine":
        rate = optimization.get_cosine_with_min_lr_schedule_with_warmup(optimizer, warmup, total, min_lr_rate=ratio)
    elif name == "poly_rebased":
        rate = optimization.get_polynomial_decay_schedule_with_warmup(optimizer, warmup, total, lr_end=ratio * lr,
                                                                      power=degree)
    else:
        return False
    for step, value in points:
        if step <= total:  # beyond, their cosine rises again
            assert abs(lr * rate.lr_lambdas[0](step) - value) <= 1e-12 * lr, (name, step, value)
    return True


OPTIONS = [(6e-3, 0.2843, 7038, 0.5), (4e-3, 0.128, 1563, 0.5), (3e-5, 0.1, 1000, 1.5), (1e-4, 0.0, 7, 0.5)]
# lr, warm-up, steps, degree, min_lr_ratio
FLOOR_OPTIONS = [(6e-3, 0.1, 1000, 0.5, 0.1), (4e-3, 200 / 1563, 1563, 0.5, 0.02), (1e-4, 0.0, 8, 1.5, 0.25)]
# lr, warm-up, steps, share of the decay, min_lr_ratio
WSD_OPTIONS = [(8e-4, 0.03, 1000, 0.2, 0.1), (6e-3, 200 / 1563, 1563, 300 / 1563, 0.0), (1e-4, 0.0, 8, 0.5, 0.25),
               (1e-3, 0.1, 100, 0.9, 0.0)]


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
    compared = 0
    for name in ("poly", "poly_rebased", "linear", "cosine"):
        for lr, w, total, degree, ratio in FLOOR_OPTIONS:
            warmup = round(w * total)
            steps = {1, warmup - 1, warmup, warmup + 1, total // 2, total - 1, total, total + 1, 2 * total}
            points = [[k, with_floor(name, k, lr, w, total, degree, ratio)] for k in sorted(steps) if 1 <= k]
            compared += check_floor(points, name, lr, w, total, degree, ratio)
            entries.append({"type": name, "lr": lr, "warmup_proportion": w, "max_steps": total, "degree": degree,
                            "min_lr_ratio": ratio, "points": points})
    assert compared in (0, 2 * len(FLOOR_OPTIONS))
    for decay_type in ("linear", "cosine", "sqrt", "1-sqrt"):
        for lr, w, total, decay, ratio in WSD_OPTIONS:
            warmup, begin = round(w * total), total - round(decay * total)
            steps = {1, 2, warmup - 1, warmup, warmup + 1, total // 2, begin - 1, begin, begin + 1, (begin + total) // 2,
                     total - 1, total, total + 1, 2 * total}
            points = [[k, wsd(k, lr, w, total, decay_type, decay, ratio)] for k in sorted(steps) if 1 <= k]
            compared += check_wsd(points, lr, w, total, decay_type, decay, ratio)
            entries.append({"type": "wsd", "lr": lr, "warmup_proportion": w, "max_steps": total,
                            "decay_type": decay_type, "decay_proportion": decay, "min_lr_ratio": ratio,
                            "points": points})
    print(f"{compared} entries with a least rate or of wsd equal transformers")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lr_schedules.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(entries, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
