"""Writes label_sets.json: scikit-learn's metrics of independent labels for matrices drawn here.

Needs the package scikit-learn (written with 1.9.1): python3 tests/golden/label_sets.py > tests/golden/label_sets.json
"""
import json
import random
import sys
import warnings

import numpy as np
from sklearn import metrics

warnings.simplefilter("ignore")
numbers = random.Random(11)


def cases():
    for examples, labels, share in ((6, 2, 0.5), (20, 3, 0.3), (40, 5, 0.15), (9, 7, 0.5)):
        right = np.array([[int(numbers.random() < share) for _ in range(labels)] for _ in range(examples)])
        # Steps of a sixteenth make ties.
        scores = np.array([[min(15, max(1, round(16 * (0.3 * y + 0.7 * numbers.random())))) / 16 for y in row] for row in right])
        yield right, scores
    right = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 1, 0]])  # a label without examples, an example without labels
    yield right, np.array([[0.75, 0.5, 0.25], [0.5, 0.5, 0.5], [0.875, 0.125, 0.125], [0.25, 0.25, 0.75]])
    yield np.array([[1, 1], [0, 1]]), np.array([[0.25, 0.75], [0.75, 0.25]])  # an example with all labels


def best_f1(right, scores):
    """The best F1 over all thresholds, from scikit-learn's curve of precision and recall."""
    precision, recall, _ = metrics.precision_recall_curve(right, scores)
    return max(2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall))


def golden():
    for right, scores in cases():
        predicted = (scores > 0.5).astype(int)
        f1 = {average: metrics.f1_score(right, predicted, average=average) for average in ("micro", "macro", "samples")}
        yield {"labels": right.shape[1], "right": right.ravel().tolist(), "scores": scores.ravel().tolist(),
               "f1_micro": f1["micro"], "f1_macro": f1["macro"], "f1_samples": f1["samples"],
               "average_precision": metrics.average_precision_score(right, scores, average="macro"),
               "label_ranking_average_precision": metrics.label_ranking_average_precision_score(right, scores),
               "best_f1_micro": best_f1(right.ravel(), scores.ravel())}


json.dump(list(golden()), sys.stdout, default=float, separators=(",", ":"))
print()
