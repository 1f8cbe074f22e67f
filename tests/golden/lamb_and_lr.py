"""Writes lamb_and_lr.json: LAMB, AdamW and learning-rate schedules in float64. Needs CPython >= 3.8 only (written with 3.11.2).

Written from the formulas (recipe.md 2.1, 2.2; Loshchilov and Hutter 2019), element by element, with no code of the program under test.
Gradients are multiples of 1/1024, so that they are the same numbers in every floating-point type.
"""

import json
import math
import os
import random

TENSORS = [("dense.weight", [3, 4], True), ("dense.bias", [4], False), ("tied.weight", [2, 4], True), ("LayerNorm.weight", [2], False)]
STEPS = 100
CHECKPOINTS = (1, 10, 100)


def norm(values):
    return math.sqrt(math.fsum(x * x for x in values))


def run(rule, start, gradients, *, lr=6e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01, max_grad_norm=1.0,
        bias_correction=True, grad_averaging=True, use_nvlamb=False, decoupled_weight_decay=True):
    params = [list(p) for p in start]
    first = [[0.0] * len(p) for p in start]
    second = [[0.0] * len(p) for p in start]
    result = {"grad_norm": [], "params": {}}
    for step, grads in enumerate(gradients, 1):
        total = norm([x for g in grads for x in g])
        result["grad_norm"].append(total)
        factor = 1.0
        if max_grad_norm > 0:
            factor = 1.0 / max(1.0, total / max_grad_norm) if rule == "lamb" else min(1.0, max_grad_norm / (total + 1e-6))
        correction1 = 1.0 - beta1**step if bias_correction else 1.0
        correction2 = 1.0 - beta2**step if bias_correction else 1.0
        for (_, _, decays), p, m, v, raw in zip(TENSORS, params, first, second, grads):
            decay = weight_decay if decays else 0.0
            update = []
            for i, x in enumerate(raw):
                g = x * factor
                if rule == "lamb" and not decoupled_weight_decay:
                    g += decay * p[i]
                m[i] = beta1 * m[i] + (g * (1.0 - beta1) if grad_averaging or rule == "adamw" else g)
                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g
                u = (m[i] / correction1) / (math.sqrt(v[i] / correction2) + eps)
                if rule == "adamw" or decoupled_weight_decay:
                    u += decay * p[i]
                update.append(u)
            ratio = 1.0
            if rule == "lamb" and (use_nvlamb or decay != 0.0):
                p_norm, u_norm = norm(p), norm(update)
                ratio = p_norm / u_norm if p_norm > 0 and u_norm > 0 else 1.0
            for i, u in enumerate(update):
                p[i] -= lr * ratio * u
        if step in CHECKPOINTS:
            result["params"][str(step)] = [list(p) for p in params]
    return result


def poly(k, lr, w, total, degree=0.5):
    return lr * (k / total) / w if k / total < w else lr * (1 - k / total) ** degree


def linear(k, lr, w, total):
    return lr * (k / total) / w if k / total < w else lr * max((k / total - 1) / (w - 1), 0)


def main():
    rng = random.Random(20240404)
    sizes = [math.prod(shape) for _, shape, _ in TENSORS]
    start = [[rng.randint(-2048, 2048) / 1024 for _ in range(n)] for n in sizes]
    start[3] = [1.0, 1.0]
    integers = [[[rng.randint(-1024, 1024) // (1 + step % 7) for _ in range(n)] for n in sizes] for step in range(STEPS)]
    integers[4] = [[0] * n for n in sizes]
    gradients = [[[x / 1024 for x in g] for g in step] for step in integers]
    variants = {
        "lamb": {},
        "lamb use_nvlamb": {"use_nvlamb": True},
        "lamb no grad_averaging": {"grad_averaging": False},
        "lamb no bias_correction": {"bias_correction": False},
        "lamb l2": {"decoupled_weight_decay": False},
        "lamb no clipping": {"max_grad_norm": 0.0},
        "adamw": {"lr": 1e-3, "eps": 1e-8},
        "adamw no bias_correction": {"lr": 1e-3, "bias_correction": False},
        "adamw no clipping": {"lr": 1e-3, "eps": 1e-8, "max_grad_norm": 0.0},
    }
    schedules = []
    for kind, rule, lr, w, total, steps in (
        ("poly", poly, 6e-3, 0.2843, 7038, (1, 100, 1880, 1881, 1882, 2000, 2001, 3000, 5000, 7037, 7038)),
        ("poly", poly, 4e-3, 0.128, 1563, (1, 100, 200, 201, 500, 1000, 1562, 1563)),
        ("linear", linear, 3e-5, 0.1, 1000, (1, 100, 101, 500, 999, 1000)),
    ):
        schedules.append({"type": kind, "lr": lr, "warmup_proportion": w, "max_steps": total,
                          "points": [[k, rule(k, lr, w, total)] for k in steps]})
    golden = {
        "tensors": [{"name": name, "shape": shape} for name, shape, _ in TENSORS],
        "start": start,
        "gradients_times_1024": integers,
        "runs": [{"name": name, "options": options, **run(name.split()[0], start, gradients, **options)}
                 for name, options in variants.items()],
        "schedules": schedules,
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lamb_and_lr.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
