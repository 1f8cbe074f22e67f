"""Writes retrieval.json: what the evaluators and mine_hard_negatives() of sentence-transformers make of vectors and rankings drawn here.

Needs the packages sentence-transformers and datasets (written with sentence-transformers 5.7.0, scikit-learn 1.9.1, torch 2.11.0 and datasets 4.0.0):
python3 tests/golden/retrieval.py > tests/golden/retrieval.json
"""
import contextlib
import io
import json
import random
import sys
import warnings

import torch
from datasets import Dataset
from sentence_transformers.sentence_transformer.evaluation import (BinaryClassificationEvaluator, InformationRetrievalEvaluator,
                                                                   RerankingEvaluator)
from sentence_transformers.util import SimilarityFunction, cos_sim, mine_hard_negatives

warnings.simplefilter("ignore")
numbers = random.Random(5)
SIZE = 3  # numbers of a vector
KINDS = ["cosine", "dot", "euclidean", "manhattan"]


def vector():
    return [numbers.randint(-9, 9) / 4 + 0.125 for _ in range(SIZE)]


class Vectors:
    """In place of a model: the vectors of texts."""

    def __init__(self, vectors, similarity="cosine"):
        self.vectors, self.device = vectors, torch.device("cpu")
        self.similarity = SimilarityFunction.to_similarity_fn(similarity)
        self.similarity_pairwise = SimilarityFunction.to_similarity_pairwise_fn(similarity)

    def encode(self, texts, convert_to_tensor=False, normalize_embeddings=False, **_):
        values = torch.tensor([self.vectors[text] for text in texts])
        values = torch.nn.functional.normalize(values) if normalize_embeddings else values
        return values if convert_to_tensor else values.numpy()

    encode_query = encode_document = encode


def plain(metrics):
    return {name: float(value) for name, value in metrics.items()}


def rankings():
    queries, relevant, found = {}, {}, []
    for q in range(12):
        query = f"q{q}"
        queries[query] = query
        relevant[query] = {f"d{numbers.randrange(150)}" for _ in range(numbers.choice([1, 1, 2, 7, 120]))}
        near = sorted(relevant[query])[: numbers.randrange(9)] + [f"d{n}" for n in numbers.sample(range(150), numbers.choice([0, 3, 130]))]
        documents = list(dict.fromkeys(near))
        numbers.shuffle(documents)
        found.append([{"corpus_id": d, "score": float(len(documents) - i)} for i, d in enumerate(documents)])
    evaluator = InformationRetrievalEvaluator(queries, {"d0": ""}, relevant)
    values = evaluator.compute_metrics([sorted(list_of, key=lambda hit: -hit["score"])[: 100] for list_of in found])
    return {"rankings": {query: [hit["corpus_id"] for hit in list_of] for query, list_of in zip(queries, found)},
            "relevant": {query: sorted(documents) for query, documents in relevant.items()},
            "metrics": {name.replace("@k", f"@{k}"): float(value) for name, by_k in values.items() for k, value in by_k.items()}}


def reranking():
    vectors, samples, scores = {}, [], []
    for s in range(8):
        sizes = numbers.choice([(1, 1), (1, 12), (3, 4), (14, 2)])
        texts = [f"{s}-{i}" for i in range(1 + sum(sizes))]
        for text in texts:
            vectors[text] = vector()
        if s % 2 == 0:  # equal scores
            vectors[texts[-1]] = vectors[texts[1]]
        samples.append({"query": texts[0], "positive": texts[1:1 + sizes[0]], "negative": texts[1 + sizes[0]:]})
        model = Vectors(vectors)
        scores.append({"relevant": sizes[0],
                       "scores": cos_sim(model.encode(texts[:1], True), model.encode(texts[1:], True))[0].tolist()})
    return {"samples": scores, "metrics": plain(RerankingEvaluator(samples, write_csv=False)(Vectors(vectors)))}


def classes():
    for labels in ([numbers.randrange(2) for _ in range(25)], [numbers.randrange(2) for _ in range(6)], [1] * 5, [0, 0, 0], [0, 1]):
        first, second = [vector() for _ in labels], [vector() for _ in labels]
        if len(labels) > 20:
            first[3:9], second[3:9] = [first[0]] * 6, [second[0]] * 6  # equal scores
        vectors = {f"a{i}": v for i, v in enumerate(first)} | {f"b{i}": v for i, v in enumerate(second)}
        texts = [f"a{i}" for i in range(len(labels))], [f"b{i}" for i in range(len(labels))]
        evaluator = BinaryClassificationEvaluator(*texts, labels, write_csv=False, similarity_fn_names=KINDS)
        model = Vectors(vectors)
        scores = {kind: (1 if kind in KINDS[:2] else -1) *
                  SimilarityFunction.to_similarity_pairwise_fn(kind)(torch.tensor(first), torch.tensor(second)) for kind in KINDS}
        evaluator.store_metrics_in_model_card_data = lambda *_: None
        yield {"first": first, "second": second, "labels": labels, "scores": {kind: values.tolist() for kind, values in scores.items()},
               "metrics": plain(evaluator(model))}


def mining():
    queries, documents = {f"q{i}": vector() for i in range(9)}, {f"d{i}": vector() for i in range(40)}
    pairs = [(f"q{i}", f"d{i}") for i in range(9)] + [("q0", "d20"), ("q4", "d21"), ("q4", "d22"), ("q0", "d0")]
    dataset = Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [p for _, p in pairs]})
    cases = [{}, {"num_negatives": 5, "range_min": 4}, {"relative_margin": 0.1}, {"absolute_margin": 0.2, "max_score": 0.7},
             {"range_max": 6, "range_min": 2, "num_negatives": 2, "min_score": 0.1}, {"range_max": 12, "sampling_strategy": "random"},
             {"range_max": 30, "num_negatives": 7, "sampling_strategy": "random", "relative_margin": 0.05},
             {"range_max": 45, "num_negatives": 4}, {"similarity": "euclidean", "relative_margin": 0.1, "max_score": -0.3},
             {"similarity": "manhattan", "absolute_margin": 0.05, "sampling_strategy": "random"}]
    results = []
    for options in cases:
        for form in ("triplet", "n-tuple"):
            model = Vectors(queries | documents, options.get("similarity", "cosine"))
            random.seed(42)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                rows = mine_hard_negatives(dataset, model, corpus=list(documents), output_format=form, output_scores=True, verbose=False,
                                           **{key: value for key, value in options.items() if key != "similarity"})
            results.append({"options": options, "format": form,
                            "rows": [[row[name] for name in rows.column_names if name != "scores"] for row in rows],
                            "scores": [row["scores"] for row in rows]})
    return {"queries": queries, "documents": documents, "pairs": pairs, "results": results}


def samples():
    for size, count, seed in ((10, 3, 42), (21, 5, 0), (22, 5, 0), (85, 6, 7), (86, 6, 7), (1000, 30, 3), (4, 4, 1)):
        yield {"size": size, "count": count, "seed": seed, "numbers": random.Random(seed).sample(range(size), count)}


RerankingEvaluator.store_metrics_in_model_card_data = lambda *_: None
json.dump({"ranking": rankings(), "reranking": reranking(), "classes": list(classes()), "mining": mining(), "samples": list(samples())},
          sys.stdout)
print()
