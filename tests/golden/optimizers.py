"""Writes optimizers.json: LAMB, AdamW, Adam, BertAdam and StableAdamW in float64. Needs CPython >= 3.8 only (written with 3.11.2).

Written from the formulas, element by element, without code of the program under test. Sources: LAMB of
github.com/NVIDIA/DeepLearningExamples at 729963dd, PyTorch/LanguageModeling/BERT/lamb_amp_opt/csrc/multi_tensor_lamb.cu (after You et al. 2020);
BertAdam of optimization.py in that directory (after google-research/bert): no bias correction, each tensor's gradient clipped on its own; Adam
(Kingma and Ba 2015); AdamW (Loshchilov and Hutter 2019); StableAdamW (Wortsman et al. 2023, algorithm 2, with their corrected betas).
AdamWeightDecayOptimizer of github.com/google-research/bert at eedf5716, optimization.py: tf.clip_by_global_norm, no bias correction, and a
rate that is read before the step is counted: tf.train.polynomial_decay(power 1) over all steps, below the warm-up lr step / warm-up.
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
        bias_correction=True, use_nvlamb=False):
    if rule == "bert_adam":
        bias_correction = False
    decoupled = rule != "adam"
    params = [list(p) for p in start]
    first = [[0.0] * len(p) for p in start]
    second = [[0.0] * len(p) for p in start]
    hats = {id(v): [0.0] * len(v) for v in second}
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
            if rule == "bert_adam":
                factor = min(1.0, max_grad_norm / (norm(raw) + 1e-6)) if max_grad_norm > 0 else 1.0
            update = []
            for i, x in enumerate(raw):
                g = x * factor
                if not decoupled:
                    g += decay * p[i]
                m[i] = beta1 * m[i] + (1.0 - beta1) * g
                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g
                corrected = v[i] / correction2
                u = (m[i] / correction1) / (math.sqrt(corrected) + eps)
                if decoupled:
                    u += decay * p[i]
                update.append(u)
            ratio = 1.0
            if rule == "lamb" and (use_nvlamb or decay != 0.0):
                p_norm, u_norm = norm(p), norm(update)
                if p_norm > 0 and u_norm > 0:
                    ratio = p_norm / u_norm
            if rule == "stable_adamw":
                beta2_hat = beta2 * (1.0 - beta2 ** (step - 1)) / (1.0 - beta2**step)
                for i, x in enumerate(raw):
                    g = x * factor
                    hats[id(v)][i] = beta2_hat * hats[id(v)][i] + (1.0 - beta2_hat) * g * g
                squares = [(x * factor) ** 2 / max(u, eps**2) for x, u in zip(raw, hats[id(v)])]
                ratio = 1.0 / max(1.0, math.sqrt(math.fsum(squares) / len(squares)))
            for i, u in enumerate(update):
                p[i] -= lr * ratio * u
        if step in CHECKPOINTS:
            result["params"][str(step)] = [list(p) for p in params]
    return result


def google(start, gradients, *, lr, num_train_steps, num_warmup_steps):
    params = [list(p) for p in start]
    first = [[0.0] * len(p) for p in start]
    second = [[0.0] * len(p) for p in start]
    rates = []
    for global_step, grads in enumerate(gradients):
        rate = lr * (1.0 - min(global_step, num_train_steps) / num_train_steps)
        if global_step < num_warmup_steps:
            rate = lr * global_step / num_warmup_steps
        rates.append(rate)
        total = norm([x for g in grads for x in g])
        factor = 1.0 / max(total, 1.0)
        for (name, _, _), p, m, v, raw in zip(TENSORS, params, first, second, grads):
            decays = "LayerNorm" not in name and "bias" not in name
            for i, x in enumerate(raw):
                g = x * factor
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.999 * v[i] + 0.001 * g * g
                p[i] -= rate * (m[i] / (math.sqrt(v[i]) + 1e-6) + (0.01 * p[i] if decays else 0.0))
    return {"lr": lr, "num_train_steps": num_train_steps, "num_warmup_steps": num_warmup_steps, "rates": rates, "params": params}


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
        "lamb no bias_correction": {"bias_correction": False},
        "lamb no clipping": {"max_grad_norm": 0.0},
        "adamw": {"lr": 1e-3, "eps": 1e-8},
        "adamw no bias_correction": {"lr": 1e-3, "bias_correction": False},
        "adamw no clipping": {"lr": 1e-3, "eps": 1e-8, "max_grad_norm": 0.0},
        "adam": {"lr": 1e-3, "eps": 1e-8},
        "adam no clipping": {"lr": 1e-3, "eps": 1e-8, "max_grad_norm": 0.0},
        "bert_adam": {"lr": 1e-3},
        "bert_adam no clipping": {"lr": 1e-3, "max_grad_norm": 0.0},
        "stable_adamw": {"lr": 1e-3, "eps": 1e-8, "max_grad_norm": 0.0},
        "stable_adamw clipping": {"lr": 1e-3, "beta2": 0.99, "max_grad_norm": 0.5},
    }
    golden = {
        "tensors": [{"name": name, "shape": shape} for name, shape, _ in TENSORS],
        "start": start,
        "gradients_times_1024": integers,
        "runs": [{"name": name, "options": options, **run(name.split()[0], start, gradients, **options)}
                 for name, options in variants.items()],
        "google": google(start, gradients[:20], lr=1e-4, num_train_steps=100, num_warmup_steps=7),
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
