"""Writes embedding_losses.json: losses of sentence-transformers on random vectors, with the gradients of the vectors.

Versions: sentence-transformers 5.7.0, torch 2.11.0, Python 3.11. Run: python3 embedding_losses.py
The losses get their vectors directly, so no model is needed. MatryoshkaLoss is computed by its definition: the loss of the
first dimensions, with length 1, times the weight (ForwardDecorator and shrink() in sentence_transformer/losses/matryoshka.py).
"""
import json
import os

import torch
from sentence_transformers.sentence_transformer import losses as st
from sentence_transformers.sentence_transformer.losses.matryoshka import shrink
from sentence_transformers.sentence_transformer.losses.triplet import TripletDistanceMetric

torch.manual_seed(2019)
torch.set_default_dtype(torch.float64)
torch.Tensor.float = torch.Tensor.double  # the losses make fp32 of labels
ROWS, SIZE = 6, 8


def rounded(x):
    return [float(f"{v:.12g}") for v in x.detach().flatten().tolist()]


def random(*shape):
    return torch.tensor(rounded(torch.randn(*shape))).view(*shape)


SCORES = torch.tensor([0.1, 0.9, 0.4, 0.4, 1.0, 0.0])
FLAGS = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
CLASSES = torch.tensor([0, 2, 1, 1, 0, 2])
VECTORS, TEACHER = random(ROWS, 4, SIZE), random(ROWS, 4, SIZE)
WEIGHT, BIAS = random(3, 3 * SIZE), random(3)


class Model(torch.nn.Module):
    device = torch.device("cpu")


def softmax_loss(vectors):
    loss = st.SoftmaxLoss(Model(), SIZE, 3)
    loss.classifier.weight.data, loss.classifier.bias.data = WEIGHT, BIAS
    a, b = vectors
    return loss.loss_fct(loss.classifier(torch.cat([a, b, (a - b).abs()], 1)), CLASSES)


def ranking(**settings):
    return lambda v: st.MultipleNegativesRankingLoss(Model(), **settings).compute_loss_from_embeddings(v, None)


def labelled(name, labels, **settings):
    return lambda v: getattr(st, name)(Model(), **settings).compute_loss_from_embeddings(v, labels)


def mse(vectors):
    return st.MSELoss(Model()).compute_loss_from_embeddings(vectors, list(TEACHER[:, :len(vectors)].unbind(1)))


BOTH = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
# loss, settings of this program, columns, labels, dimensions, function
CASES = [
    ("multiple_negatives_ranking", {}, 2, None, {}, ranking()),
    ("multiple_negatives_ranking", {"scale": 5.0}, 4, None, {}, ranking(scale=5.0)),
    ("multiple_negatives_ranking", {"symmetric": True}, 2, None, {}, ranking(**BOTH)),
    ("multiple_negatives_ranking", {"symmetric": True}, 3, None, {}, ranking(**BOTH)),
    ("multiple_negatives_ranking", {}, 3, None, {8: 1.0, 4: 0.5, 2: 2.0}, ranking()),
    ("cosent", {}, 2, SCORES, {}, labelled("CoSENTLoss", SCORES)),
    ("cosine_similarity", {}, 2, SCORES, {}, labelled("CosineSimilarityLoss", SCORES)),
    ("cosine_similarity", {}, 2, SCORES, {4: 1.0}, labelled("CosineSimilarityLoss", SCORES)),
    ("triplet", {}, 3, None, {}, labelled("TripletLoss", None)),
    ("triplet", {"distance": "cosine", "margin": 0.3}, 3, None, {},
     labelled("TripletLoss", None, distance_metric=TripletDistanceMetric.COSINE, triplet_margin=0.3)),
    ("triplet", {"distance": "manhattan", "margin": 2.0}, 3, None, {},
     labelled("TripletLoss", None, distance_metric=TripletDistanceMetric.MANHATTAN, triplet_margin=2.0)),
    ("contrastive", {}, 2, FLAGS, {}, labelled("ContrastiveLoss", FLAGS)),
    ("contrastive", {"margin": 1.2}, 2, FLAGS, {}, labelled("ContrastiveLoss", FLAGS, margin=1.2)),
    ("online_contrastive", {"margin": 1.5}, 2, FLAGS, {}, labelled("OnlineContrastiveLoss", FLAGS, margin=1.5)),
    ("softmax", {}, 2, CLASSES, {}, softmax_loss),
    ("margin_mse", {}, 3, SCORES, {}, labelled("MarginMSELoss", SCORES)),
    ("mse", {}, 1, None, {}, mse),
    ("mse", {}, 2, None, {}, mse),
]

cases = []
for name, settings, columns, labels, dimensions, function in CASES:
    leaf = VECTORS[:, :columns].clone().requires_grad_()
    if dimensions:
        loss = sum(w * function([shrink(v, d) for v in leaf.unbind(1)]) for d, w in dimensions.items())
    else:
        loss = function(list(leaf.unbind(1)))
    loss.backward()
    cases.append({"loss": name, "settings": settings, "columns": columns,
                  "labels": [] if labels is None else [float(x) for x in labels],
                  "dimensions": [f"{d}:{w}" for d, w in dimensions.items()],
                  "value": float(f"{loss.item():.12g}"), "gradient": rounded(leaf.grad)})

golden = {"rows": ROWS, "texts": 4, "size": SIZE, "vectors": rounded(VECTORS), "teacher": rounded(TEACHER),
          "classifier_weight": rounded(WEIGHT), "classifier_bias": rounded(BIAS), "cases": cases}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "embedding_losses.json"), "w") as file:
    json.dump(golden, file, separators=(",", ":"))
    file.write("\n")
