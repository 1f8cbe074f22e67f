"""Writes task_metrics.json: the metrics of other programs for labels and predictions drawn here.

Needs the packages scikit-learn, scipy, seqeval and transformers < 5, whose squad_metrics.py is SQuAD's evaluate-v2.0.py (written with scikit-learn
1.9.1, scipy 1.17.1, seqeval 1.2.2, transformers 4.57.3): python3 tests/golden/task_metrics.py > tests/golden/task_metrics.json
"""
import contextlib
import io
import json
import random
import sys
import types
import warnings

import numpy as np
from scipy import stats
from seqeval import metrics as entities
from sklearn import metrics
from transformers.data.metrics import squad_metrics

warnings.simplefilter("ignore")
numbers = random.Random(7)


def classification(classes, count, agreement):
    labels = [numbers.randrange(classes) for _ in range(count)]
    guesses = [label if numbers.random() < agreement else numbers.randrange(classes) for label in labels]
    return labels, guesses


def classes():
    cases = [classification(c, n, a) for c, n, a in ((2, 50, 0.7), (2, 9, 0.1), (3, 80, 0.5), (5, 200, 0.9), (4, 3, 0.2))]
    cases += [([0, 0, 0], [0, 0, 0]), ([1, 1], [0, 0]), ([0, 1, 0], [0, 0, 0]), ([0, 2, 2], [2, 2, 2]), ([1], [1])]
    for labels, guesses in cases:
        yield {"labels": labels, "predictions": guesses, "accuracy": metrics.accuracy_score(labels, guesses),
               "f1": metrics.f1_score([x == 1 for x in labels], [x == 1 for x in guesses]),
               "macro_f1": metrics.f1_score(labels, guesses, average="macro"),
               "matthews_correlation": metrics.matthews_corrcoef(labels, guesses)}


def correlations():
    x = [numbers.uniform(0, 5) for _ in range(40)]
    cases = [(x, [v + numbers.gauss(0, 1) for v in x]), ([round(v) for v in x], [round(v * 0.7) for v in reversed(x)]), ([1, 2], [2, 1]),
             ([1e8 + v for v in x], [-v for v in x]), ([0.0, 0.0, 1.0, 5.0], [3.0, 3.0, 3.0, 4.0])]
    for a, b in cases:
        yield {"x": list(map(float, a)), "y": list(map(float, b)), "pearson": stats.pearsonr(a, b)[0], "spearman": stats.spearmanr(a, b)[0]}


def tags():
    kinds = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "I-MISC-X", "B", "PER", "I-", "."]
    for size in (3, 7, 12, 12):
        labels = [[numbers.choice(kinds[:size]) for _ in range(numbers.randrange(1, 15))] for _ in range(30)]
        guesses = [[tag if numbers.random() < 0.8 else numbers.choice(kinds[:size]) for tag in sentence] for sentence in labels]
        yield labels, guesses
    yield [["O", "O"], ["O"]], [["O", "O"], ["O"]]
    yield [["B-PER", "I-PER", "O"]], [["O", "O", "O"]]
    yield [["I-PER", "I-LOC", "O", "B-PER"]], [["I-PER", "I-LOC", "B-LOC", "I-PER"]]


def entity_cases():
    for labels, guesses in tags():
        yield {"labels": labels, "predictions": guesses, "precision": entities.precision_score(labels, guesses),
               "recall": entities.recall_score(labels, guesses), "f1": entities.f1_score(labels, guesses),
               "accuracy": entities.accuracy_score(labels, guesses)}


NORMALIZED = ["The  Cat", "a an the", "A-the b", "it's", "Ünïcode ΣΑΣ İ", "an_other the_", "東京 the 京", "\u00a0tab\tnew\n", "e\u0301a the\u0301", "", "!?",
              "U.S.A.", "the²the", "a1 a 1a", "ª the º", "𝐚 a", "aé the—end", "“the” an"]


def squad():
    words = "the a Cat cat's dog, Dog. of in 1990 New York".split()
    text = lambda: " ".join(numbers.choice(words) for _ in range(numbers.randrange(1, 5)))
    examples = []
    for number in range(60):
        answers = [] if number % 3 == 0 else [{"text": text(), "answer_start": 0} for _ in range(numbers.randrange(1, 4))]
        examples.append(types.SimpleNamespace(qas_id=f"q{number}", answers=answers))
    examples[1].answers = [{"text": "the", "answer_start": 0}]  # nothing is left of it
    guesses = {}
    for example in examples:
        choice = numbers.random()
        guesses[example.qas_id] = "" if choice < 0.3 else example.answers[0]["text"] if example.answers and choice < 0.6 else text()
    nulls = {example.qas_id: numbers.randrange(-40, 40) / 8 for example in examples}
    with contextlib.redirect_stdout(io.StringIO()):
        plain = squad_metrics.squad_evaluate(examples, guesses)
        scored = squad_metrics.squad_evaluate(examples, guesses, nulls, 1.0)
    return {"answers": {e.qas_id: [a["text"] for a in e.answers] for e in examples}, "predictions": guesses, "null_scores": nulls,
            "scores": plain, "scores_with_nulls": scored, "normalized": [[t, squad_metrics.normalize_answer(t)] for t in NORMALIZED]}


golden = {"classes": list(classes()), "correlations": list(correlations()), "entities": list(entity_cases()), "squad": squad()}
json.dump(golden, sys.stdout, default=float, separators=(",", ":"))
print()
