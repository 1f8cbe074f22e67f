"""Writes cross_encoder_losses.json: losses of sentence-transformers' CrossEncoder on random logits, with their gradients.

Versions: sentence-transformers 5.7.0, torch 2.11.0, Python 3.11. Run: python3 cross_encoder_losses.py
A stand-in for the model gives the logits of the pairs, [rows * passages, 1] or, of CrossEntropyLoss, [rows, passages]: the right
passage of a row is its first class.
"""
import json
import os

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses

torch.manual_seed(2019)
torch.set_default_dtype(torch.float64)
torch.Tensor.float = torch.Tensor.double  # MarginMSELoss makes fp32 of labels
ROWS = 5


def rounded(x):
    return [float(f"{v:.12g}") for v in x.detach().flatten().tolist()]


class Model(CrossEncoder):
    def __init__(self, logits, num_labels):
        torch.nn.Module.__init__(self)
        self.logits, self.labels = logits, num_labels

    num_labels = property(lambda self: self.labels)
    device = torch.device("cpu")

    def preprocess(self, pairs, **options):
        return {"place": pairs[0][1]}

    def forward(self, tokens):
        place = tokens["place"]
        return {"scores": self.logits if place < 0 else self.logits[:, place:place + 1]}


def cross_entropy(logits, labels):
    loss = losses.CrossEntropyLoss(Model(logits, logits.shape[1]))
    return loss([["query"] * ROWS, [-1] * ROWS], torch.zeros(ROWS, dtype=torch.long))


def margin_mse(logits, labels):
    loss = losses.MarginMSELoss(Model(logits, 1))
    return loss([["query"] * ROWS, [0] * ROWS, [1] * ROWS], labels)


cases = []
for name, function, passages in (("cross_entropy", cross_entropy, 2), ("cross_entropy", cross_entropy, 5),
                                 ("margin_mse", margin_mse, 2)):
    logits = torch.tensor(rounded(3 * torch.randn(ROWS, passages))).view(ROWS, passages).requires_grad_()
    labels = torch.tensor(rounded(torch.randn(ROWS)))
    loss = function(logits, labels)
    loss.backward()
    cases.append({"loss": name, "passages": passages, "logits": rounded(logits), "labels": rounded(labels),
                  "value": float(f"{loss.item():.12g}"), "gradient": rounded(logits.grad)})
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cross_encoder_losses.json"), "w") as file:
    json.dump({"rows": ROWS, "cases": cases}, file, separators=(",", ":"))
    file.write("\n")
