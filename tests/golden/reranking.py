"""Writes reranking.json: the figures of sentence-transformers' CrossEncoderRerankingEvaluator for scores drawn here.

Needs the package sentence-transformers (written with sentence-transformers 5.7.0, scikit-learn 1.9.1 and numpy 2.4.6):
python3 tests/golden/reranking.py > tests/golden/reranking.json
"""
import json
import random
import warnings

import numpy
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

warnings.simplefilter("ignore")
numbers = random.Random(11)


class Reranker:
    """In place of a model: the scores of pairs."""

    def __init__(self, scores):
        self.scores = scores

    def predict(self, pairs, **_):
        return numpy.array([self.scores[document] for _, document in pairs], dtype=numpy.float32)


samples, scores = [], {}
for s, (positive, negative) in enumerate([(1, 3), (2, 12), (3, 1), (14, 2), (0, 4), (2, 0), (1, 14), (2, 5)]):
    texts = [f"{s}-{i}" for i in range(positive + negative)]
    for text in texts:
        scores[text] = numbers.randrange(64) / 64 if s % 2 else numbers.randrange(4) / 4  # with equal scores
    samples.append({"query": f"q{s}", "positive": texts[:positive], "negative": texts[positive:]})
CrossEncoderRerankingEvaluator.store_metrics_in_model_card_data = lambda *_: None
figures = CrossEncoderRerankingEvaluator(samples, write_csv=False)(Reranker(scores))
print(json.dumps({"samples": [{"relevant": len(sample["positive"]), "scores": [scores[text] for text in sample["positive"] + sample["negative"]]}
                              for sample in samples],
                  "metrics": {name: float(value) for name, value in figures.items()}}))
