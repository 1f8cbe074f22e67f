"""Writes grad_scaler.json: the scales, counters and skips of torch.amp.GradScaler (torch 2.11.0) on random gradients.

There are three long patterns of one optimizer, and 1,000 short patterns of one to three optimizers that share a scaler. An event is a
backward, one action for each optimizer (a letter of the pattern, see below), and update(). Small letters step; capital letters call
unscale_() first. For each event the golden has the optimizers that stepped (bit i of a digit for optimizer i), the index of the scale in
"scales" as two digits of base 64, and the counter as one digit. ALPHABET has the digits.

    f finite   i one element is inf   n one element is NaN   - no call   u, j unscale_() without step, finite or inf
"""

import json
import os
import random
import string

import torch

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
CONFIGS = [
    {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 5},
    {"init_scale": 1048576.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 40},
    {"init_scale": 1000.0, "growth_factor": 1.5, "backoff_factor": 0.75, "growth_interval": 3},
    {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 1},
    {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2},
]
LONG_EVENTS, SHORT_PATTERNS, MOST_EVENTS = 1000, 1000, 12


def run(config, events):
    scaler = torch.amp.GradScaler("cpu", **CONFIGS[config])
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in events[0]]
    optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in parameters]
    stepped, scales, trackers = "", [], ""
    for event in events:
        before = [parameter.detach().clone() for parameter in parameters]
        scaler.scale(sum(parameter.sum() for parameter in parameters)).backward()
        for letter, parameter, optimizer in zip(event, parameters, optimizers):
            if letter in "iIjnN":
                parameter.grad[1] = float("nan" if letter in "nN" else "inf")
            if letter in "FINuj":
                scaler.unscale_(optimizer)
            if letter in "fFiInN":
                scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
        stepped += str(sum(1 << i for i, parameter in enumerate(parameters) if not parameter.equal(before[i])))
        scales.append(scaler.get_scale())
        trackers += ALPHABET[scaler._growth_tracker.item()]
    return config, len(parameters), "".join(events), stepped, scales, trackers


def short_pattern(rng):
    optimizers = rng.randint(1, 3)
    chance = rng.choice((0.02, 0.1, 0.3))  # probability of inf or NaN
    events = []
    while len(events) < rng.randint(4, MOST_EVENTS):
        event = "".join(rng.choice("iInNj") if rng.random() < chance else rng.choice("fffFFu-") for _ in range(optimizers))
        if set(event) != {"-"}:
            events.append(event)
    return rng.randrange(len(CONFIGS)), events


def main():
    rng = random.Random(44710)
    patterns = [(config, ["i" if rng.random() < chance else "f" for _ in range(LONG_EVENTS)])
                for config, chance in enumerate((0.15, 0.02, 0.2))]
    patterns += [short_pattern(rng) for _ in range(SHORT_PATTERNS)]
    runs = [run(*pattern) for pattern in patterns]
    scales = sorted({scale for *_, of_run, _ in runs for scale in of_run})
    place = {scale: ALPHABET[i // 64] + ALPHABET[i % 64] for i, scale in enumerate(scales)}
    golden = {
        "torch": torch.__version__,
        "alphabet": ALPHABET,
        "configs": CONFIGS,
        "scales": scales,
        "fields": ["config", "optimizers", "events", "stepped", "scales", "trackers"],
        "patterns": [[*head, "".join(place[scale] for scale in of_run), trackers] for *head, of_run, trackers in runs],
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grad_scaler.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
