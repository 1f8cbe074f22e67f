"""Writes labels.json: other programs' metrics of several numbers, of entities in schemes, and of relations, for values drawn here.

Needs the packages scikit-learn, scipy and seqeval (written with 1.9.1, 1.17.1 and 1.2.2):
python3 tests/golden/labels.py > tests/golden/labels.json
"""
import json
import random
import sys
import warnings

import numpy as np
from scipy import stats
from seqeval import metrics as entities
from seqeval import scheme as schemes
from sklearn import metrics

warnings.simplefilter("ignore")
numbers = random.Random(37)


def numbers_of_texts():
    for rows, columns in ((40, 3), (7, 2), (25, 1)):
        right = np.array([[round(numbers.gauss(0, 2), 3) for _ in range(columns)] for _ in range(rows)])
        guesses = np.array([[round(0.5 * v + numbers.gauss(0, 1), 3) for v in row] for row in right])
        raw = "raw_values"
        yield {"right": right.tolist(), "predictions": guesses.tolist(),
               "pearson": [stats.pearsonr(*pair)[0] for pair in zip(right.T, guesses.T)],
               "spearman": [stats.spearmanr(*pair)[0] for pair in zip(right.T, guesses.T)],
               "mse": metrics.mean_squared_error(right, guesses, multioutput=raw),
               "mae": metrics.mean_absolute_error(right, guesses, multioutput=raw),
               "r2": metrics.r2_score(right, guesses, multioutput=raw),
               "mean_mse": metrics.mean_squared_error(right, guesses), "mean_r2": metrics.r2_score(right, guesses)}


PREFIXES = {"IOB1": "IB", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}


def tagged_sentences():
    """Any order of tags: many are no entities of the scheme."""
    for name, prefixes in PREFIXES.items():
        kinds = ["O"] + [f"{prefix}-{kind}" for kind in ("PER", "LOC") for prefix in prefixes]
        labels = [[numbers.choice(kinds) for _ in range(numbers.randrange(1, 15))] for _ in range(60)]
        guesses = [[tag if numbers.random() < 0.8 else numbers.choice(kinds) for tag in sentence] for sentence in labels]
        how = {"mode": "strict", "scheme": getattr(schemes, name)}
        found = schemes.Entities(labels, how["scheme"]).entities
        yield {"scheme": name, "labels": labels, "predictions": guesses, "precision": entities.precision_score(labels, guesses, **how),
               "recall": entities.recall_score(labels, guesses, **how), "f1": entities.f1_score(labels, guesses, **how),
               "entities": [[[e.tag, e.start, e.end - 1] for e in sentence] for sentence in found]}


def relations():
    """Micro F1 without the negative class 0, as the scorers of ChemProt and DDI compute it."""
    for classes, count, agreement in ((6, 120, 0.6), (2, 30, 0.7), (4, 9, 0.2), (3, 5, 0.0)):
        labels = [numbers.randrange(classes) for _ in range(count)]
        guesses = [label if numbers.random() < agreement else numbers.randrange(classes) for label in labels]
        positive = list(range(1, classes))
        precision, recall, f1, _ = metrics.precision_recall_fscore_support(labels, guesses, labels=positive, average="micro", zero_division=0)
        yield {"classes": classes, "labels": labels, "predictions": guesses, "precision": precision, "recall": recall, "f1": f1}
    yield {"classes": 3, "labels": [0, 0], "predictions": [0, 0], "precision": 0, "recall": 0, "f1": 0}


golden = {"numbers": list(numbers_of_texts()), "entities": list(tagged_sentences()), "relations": list(relations())}
json.dump(golden, sys.stdout, default=lambda value: value.tolist() if isinstance(value, np.ndarray) else float(value), separators=(",", ":"))
print()
