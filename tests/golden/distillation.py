"""Writes distillation.json: losses between a student's values and a teacher's, and the gradients of the student's.

Versions: torch 2.11.0, Python 3.11. Run: python3 distillation.py
Every sequence is computed alone, without padding. The relations of sequences of one length are also computed as NVIDIA's
TransformerLosses does (github.com/NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT/distillation/losses.py):
KLDivLoss("batchmean") of padded tensors, divided by heads and length. Both must agree.
"""
import json
import math
import os

import torch
from torch.nn import functional as F

torch.manual_seed(1909)
torch.set_default_dtype(torch.float64)


def rounded(x):
    return [float(f"{v:.9g}") for v in x.detach().flatten().tolist()]


def random(*shape, scale=1.0):
    return torch.tensor(rounded(scale * torch.randn(*shape))).view(*shape)


def split(x, heads):  # [S, H] -> [heads, S, D]
    return x.view(x.size(0), heads, -1).transpose(0, 1)


def scores(a, b, heads):
    a, b = split(a, heads), split(b, heads)
    return a @ b.transpose(1, 2) / math.sqrt(a.size(-1))


def relation(lengths, heads, student, teacher):
    total = 0
    for s0, s1, t0, t1 in zip(*(x.split(lengths) for x in student + teacher)):
        p = F.softmax(scores(t0, t1, heads), -1)
        q = F.softmax(scores(s0, s1, heads), -1)
        total = total + (p * (p.log() - q.log())).sum()
    return total / (sum(lengths) * heads)


def nvidia_relation(lengths, heads, student, teacher):
    batch = [torch.stack([scores(a, b, heads) for a, b in zip(*(x.split(lengths) for x in pair))])
             for pair in (student, teacher)]
    loss = torch.nn.KLDivLoss(reduction="batchmean")
    return loss(F.log_softmax(batch[0], -1), F.softmax(batch[1], -1)) / (heads * lengths[0])


def hidden(lengths, student, teacher):
    if student.size(1) == teacher.size(1):
        return torch.nn.CosineEmbeddingLoss()(student, teacher, torch.tensor([1.0]))
    total = 0
    for s, t in zip(student.split(lengths), teacher.split(lengths)):
        for i in range(s.size(0)):
            row = [(F.cosine_similarity(s[i], s[j], 0) - F.cosine_similarity(t[i], t[j], 0)) ** 2 for j in range(s.size(0))]
            total = total + sum(row) / s.size(0)
    return total / sum(lengths)


def soft_targets(student, teacher, temperature):
    p = F.softmax(teacher / temperature, -1)
    cross_entropy = -(p * F.log_softmax(student / temperature, -1)).sum(-1)
    entropy = -(p * p.log()).sum(-1)
    return (cross_entropy - entropy).mean() * temperature**2


def answers(lengths, student, teacher, temperature):
    rows = [soft_targets(s[:, c].unsqueeze(0), t[:, c].unsqueeze(0), temperature)
            for s, t in zip(student.split(lengths), teacher.split(lengths)) for c in range(2)]
    return sum(rows) / len(rows)


def entry(loss, student):
    gradients = torch.autograd.grad(loss, student)
    return {"loss": rounded(loss)[0], "gradients": [rounded(g) for g in gradients]}


def inner_case(lengths, heads, of_student, of_teacher):
    tokens = sum(lengths)
    student = [random(tokens, of_student).requires_grad_() for _ in range(4)]
    teacher = [random(tokens, of_teacher) for _ in range(4)]
    case = {"lengths": lengths, "heads": heads, "student": [rounded(x) for x in student],
            "teacher": [rounded(x) for x in teacher]}
    parts = {"attention": (1, 2), "value": (3, 3)}
    case["hidden"] = entry(hidden(lengths, student[0], teacher[0]), student[:1])
    for name, (a, b) in parts.items():
        pairs = (student[a], student[b]), (teacher[a], teacher[b])
        loss = relation(lengths, heads, *pairs)
        if len(set(lengths)) == 1:
            assert abs(loss - nvidia_relation(lengths, heads, *pairs)) < 1e-12
        case[name] = entry(loss, sorted({student[a], student[b]}, key=lambda x: [y is x for y in student].index(True)))
    return case


def logits_case(function, rows, classes, temperature, lengths=None):
    student, teacher = random(rows, classes, scale=2).requires_grad_(), random(rows, classes, scale=2)
    loss = function(lengths, student, teacher, temperature) if lengths else function(student, teacher, temperature)
    return {"student": rounded(student), "teacher": rounded(teacher), "classes": classes, "temperature": temperature,
            "lengths": lengths or [], **entry(loss, [student])}


def main():
    result = {
        "inner": [inner_case([4, 4, 4], 2, 6, 6), inner_case([3, 5, 1, 2], 2, 6, 8), inner_case([2, 3], 3, 6, 12)],
        "logits": [logits_case(soft_targets, 4, 3, 1.0), logits_case(soft_targets, 5, 2, 4.0),
                   logits_case(answers, 9, 2, 2.0, [3, 5, 1])]}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distillation.json")
    with open(path, "w", encoding="ascii") as out:
        json.dump(result, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
