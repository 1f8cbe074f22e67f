"""Writes long_texts.json: answers, losses and gradients of a tiny BERT over windows of long texts, merged by hand.

Needs the packages torch and transformers (written with torch 2.11.0 and transformers 5.x): python3 tests/golden/long_texts.py
Windows are those of transformers' tokenizer (stride, return_overflowing_tokens); its models compute each window alone, in
fp64. The window of a token is that of run_squad.py's _check_is_max_context. Positions are torch.nn.functional.interpolate's.
"""
import json
import os
import sys
import tempfile

import torch
import transformers
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertTokenizerFast

torch.manual_seed(37)
torch.set_default_dtype(torch.float64)
LENGTH, STRIDE = 12, 4
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + "a b c d e f g h i j k l ##m ##n ##o ##p".split()
TEXTS = ["a b cm d emno f g h i j k l a cc dm en fop g a b c", "d e f", "k" + "mnop" * 5 + " a b c d", "a b c d e f g h i j",
         "l k j i hm gn fo ep d c b a l k j"]
PAIRS = [("a b c", "d e f g hm in jo k l a b c d e f"), ("a b cm dn e f g h i j k l a", "dm e"), ("a b c", "d e"),
         ("a b c d e f g h", "a b c d e f g h")]
CLASSES, VALUES, SETS = [0, 2, 1, 2, 0], [0.5, -1.0, 2.0, 0.25, 1.5], [[0, 2], [], [1], [0, 1, 2], [2]]
TAGS = 3


def drawn(*shape, scale=0.4):  # multiples of 1/64 have short texts
    return (torch.randn(*shape) * scale * 64).round() / 64


def numbers(x):
    return [float(f"{v:.10g}") for v in x.detach().flatten().tolist()]


directory = tempfile.mkdtemp()
with open(os.path.join(directory, "vocab.txt"), "w") as file:
    file.write("\n".join(VOCABULARY) + "\n")
tokenizer = BertTokenizerFast(os.path.join(directory, "vocab.txt"))
config = BertConfig(vocab_size=len(VOCABULARY), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
                    max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
                    attn_implementation="eager")
model = BertForSequenceClassification(config).eval()
tagger = BertForTokenClassification(config).eval()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        norm = "LayerNorm.weight" in name
        parameter.copy_(drawn(*parameter.shape) + (1 if norm else 0))
    tagger.bert.load_state_dict({k: v for k, v in model.bert.state_dict().items() if not k.startswith("pooler")})
    for parameter in tagger.classifier.parameters():
        parameter.copy_(drawn(*parameter.shape))
attention = drawn(16, scale=1.0).requires_grad_()


def windows_of(text, pair=None):
    """The encodings of the windows of a text, or of the longer text of a pair."""
    room = LENGTH - 2
    arguments, options = [text], {"truncation": True}
    if pair is not None:
        sizes = [len(tokenizer.tokenize(t)) for t in (text, pair)]
        room = LENGTH - 3 - min(sizes)
        arguments, options = [text, pair], {"truncation": "only_first" if sizes[0] > sizes[1] else "only_second"}
    found = tokenizer(*arguments, max_length=LENGTH, stride=max(room - STRIDE, 0), return_overflowing_tokens=True,
                      return_token_type_ids=True, **options)
    return list(zip(found["input_ids"], found["token_type_ids"]))


def outputs(network, window):
    ids, types = window
    return network(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))


def joined(text, pooling, pair=None):
    """The logits of a text."""
    found = windows_of(text, pair)
    logits = torch.cat([outputs(model, window).logits for window in found])
    if pooling == "mean":
        return logits.mean(0)
    if pooling == "max":
        return logits.amax(0)
    if pooling == "first":
        return logits[0]
    vectors = torch.cat([model.bert(input_ids=torch.tensor([i]), token_type_ids=torch.tensor([t])).pooler_output for i, t in found])
    return (F.softmax(vectors @ attention, 0).unsqueeze(1) * logits).sum(0)


def gradients(loss):
    model.zero_grad()
    attention.grad = None
    loss.backward()
    kept = {name: numbers(dict(model.named_parameters())[name].grad)
            for name in ("classifier.weight", "bert.pooler.dense.weight", "bert.embeddings.position_embeddings.weight")}
    if attention.grad is not None:
        kept["window_attention"] = numbers(attention.grad)
    return {"loss": loss.item(), "gradients": kept}


def max_context(spans, position):
    """The number of the window with the most context around a token: run_squad.py."""
    best, best_score = None, None
    for index, (start, length) in enumerate(spans):
        if not start <= position < start + length:
            continue
        score = min(position - start, start + length - 1 - position) + 0.01 * length
        if best_score is None or score > best_score:
            best, best_score = index, score
    return best


def tokens_of(text, states):
    """states(window) of each token of a text, from the window with the most context around it."""
    found = windows_of(text)
    spans = [(i * STRIDE, len(ids) - 2) for i, (ids, _) in enumerate(found)]
    assert spans[-1][0] + spans[-1][1] == len(tokenizer.tokenize(text))
    values = [states(window) for window in found]
    rows = []
    for position in range(spans[-1][0] + spans[-1][1]):
        window = max_context(spans, position)
        rows.append(values[window][position - spans[window][0] + 1])
    return values[0][0], rows, values[-1][-1]


def tag_rows(text):
    """The logits of each word's first token."""
    words = tokenizer(text, add_special_tokens=False).word_ids()
    _, rows, _ = tokens_of(text, lambda window: outputs(tagger, window).logits[0])
    return [row for i, row in enumerate(rows) if i == 0 or words[i] != words[i - 1]]


def features(text):
    first, rows, last = tokens_of(text, lambda window: model.bert(
        input_ids=torch.tensor([window[0]]), token_type_ids=torch.tensor([window[1]])).last_hidden_state[0])
    poolers = torch.cat([model.bert(input_ids=torch.tensor([i]), token_type_ids=torch.tensor([t])).pooler_output
                         for i, t in windows_of(text)])
    return {"states": numbers(torch.stack([first, *rows, last])), "pooler": numbers(poolers.mean(0))}


golden = {"vocabulary": VOCABULARY, "length": LENGTH, "stride": STRIDE, "texts": TEXTS, "pairs": PAIRS, "classes": CLASSES,
          "values": VALUES, "sets": SETS,
          "weights": {name: {"shape": list(p.shape), "values": numbers(p)} for name, p in model.named_parameters()},
          "window_attention": numbers(attention),
          "tagger": {name: numbers(p) for name, p in tagger.named_parameters() if name.startswith("classifier")},
          "windows": [[ids for ids, _ in windows_of(text)] for text in TEXTS],
          "pair_windows": [[list(window) for window in windows_of(*pair)] for pair in PAIRS], "logits": {}, "training": {}}
for pooling in ("mean", "max", "first", "attention"):
    golden["logits"][pooling] = [numbers(joined(text, pooling)) for text in TEXTS]
    logits = torch.stack([joined(text, pooling) for text in TEXTS])
    golden["training"][pooling] = gradients(F.cross_entropy(logits, torch.tensor(CLASSES)))
golden["pair_logits"] = [numbers(joined(a, "mean", b)) for a, b in PAIRS]
logits = torch.stack([joined(text, "mean") for text in TEXTS])
sets = torch.tensor([[float(label in row) for label in range(3)] for row in SETS])
golden["training"]["multi_label"] = gradients(F.binary_cross_entropy_with_logits(logits, sets))
logits = torch.stack([joined(text, "attention") for text in TEXTS])  # a number is the first output
golden["training"]["values"] = gradients(F.mse_loss(logits[:, 0], torch.tensor(VALUES)))
golden["tags"] = [[i % TAGS for i in range(len(text.split()))] for text in TEXTS]
rows = [tag_rows(text) for text in TEXTS]
golden["tag_logits"] = [numbers(torch.stack(row)) for row in rows]
loss = F.cross_entropy(torch.stack(sum(rows, [])), torch.tensor(sum(golden["tags"], [])))
tagger.zero_grad()
loss.backward()
golden["tag_training"] = {"loss": loss.item(), "gradients": {"classifier.weight": numbers(tagger.classifier.weight.grad),
                                                            "bert.embeddings.position_embeddings.weight": numbers(
                                                                tagger.bert.embeddings.position_embeddings.weight.grad)}}
golden["features"] = [features(text) for text in TEXTS]
table = drawn(4, 3)
golden["positions"] = {"table": numbers(table), "interpolated": numbers(
    F.interpolate(table.t().unsqueeze(0), size=9, mode="linear", align_corners=True)[0].t())}
golden["versions"] = [torch.__version__, transformers.__version__]
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "long_texts.json")
with open(path, "w") as file:
    json.dump(golden, file, separators=(",", ":"))
    file.write("\n")
