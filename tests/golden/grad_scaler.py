"""Writes grad_scaler.json: the scales, counters and skips of torch.amp.GradScaler (torch 2.11.0) on random finite and inf gradients."""

import json
import os
import random

import torch

EVENTS = 1000
CASES = [
    {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 5},
    {"init_scale": 1048576.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 40},
    {"init_scale": 1000.0, "growth_factor": 1.5, "backoff_factor": 0.75, "growth_interval": 3},
]


def run(case, pattern):
    scaler = torch.amp.GradScaler("cpu", **case)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scales, trackers, steps = [], [], []
    for event in pattern:
        optimizer.zero_grad()
        before = parameter.item()
        scaler.scale(parameter.sum()).backward()
        if event == "1":
            parameter.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        steps.append("1" if parameter.item() != before else "0")
        scales.append(scaler.get_scale())
        trackers.append(scaler._growth_tracker.item())
    return {**case, "pattern": pattern, "stepped": "".join(steps), "scales": scales, "trackers": trackers}


def main():
    rng = random.Random(44710)
    cases = []
    for case, chance in zip(CASES, (0.15, 0.02, 0.2)):
        cases.append(run(case, "".join("1" if rng.random() < chance else "0" for _ in range(EVENTS))))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grad_scaler.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump({"torch": torch.__version__, "cases": cases}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
