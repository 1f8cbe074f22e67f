"""Writes bert_pretraining.json: the results of a small BertForPreTraining and its siblings by Hugging Face.

Versions: transformers 5.17.0, torch 2.11.0, Python 3.11. Run: python3 bert_pretraining.py > bert_pretraining.json
Weights are rounded to three decimals, so that the file has the exact weights of the computation. Results are computed in double.
"""
import json

import torch
import transformers

SIZES = dict(vocab_size=29, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
             max_position_embeddings=12, type_vocab_size=2, layer_norm_eps=1e-12)
NUM_LABELS = 3  # labels of the two classifiers
LENGTHS = [9, 4, 1, 7]  # lengths of the sequences; one fills the batch, one is a single token
S = 9
LABELS = [[2, 11], [5, 3], [8, 28], [27, 0], [28, 7], [33, 19]]  # flattened position in [B, S], original id
NEXT_SENTENCE = [1, 0, 0, 1]
SIBLINGS = ["BertForQuestionAnswering", "BertForSequenceClassification", "BertForTokenClassification",
            "BertForMultipleChoice"]
torch.manual_seed(2018)
torch.set_default_dtype(torch.float64)


def rounded(x, digits=8):
    return [float(f"{v:.{digits}g}") for v in x.detach().double().flatten().tolist()]


def fill(model, known):
    """Fills every parameter with small random values (LayerNorm near 1, biases not 0). The same name gets the same values."""
    for name, p in sorted(model.named_parameters()):
        if name not in known:
            scale = 0.08 if "embeddings" in name else 0.4 if p.dim() == 2 else 0.2
            value = torch.randn_like(p) * scale + (1.0 if name.endswith("LayerNorm.weight") else 0.0)
            known[name] = (value * 1000).round() / 1000
        with torch.no_grad():
            p.copy_(known[name])


def make(name, act):
    num_labels = NUM_LABELS if name.endswith("Classification") else 2
    config = transformers.BertConfig(hidden_act=act, attn_implementation="eager", num_labels=num_labels, **SIZES)
    return getattr(transformers, name)(config).double().eval()


ids = torch.randint(3, SIZES["vocab_size"], (len(LENGTHS), S))
types = torch.zeros_like(ids)
mask = torch.zeros_like(ids)
for b, length in enumerate(LENGTHS):
    mask[b, :length] = 1
    types[b, length // 2:length] = 1
ids = ids * mask
labels = torch.full(ids.shape, -100)
for position, label in LABELS:
    assert mask.view(-1)[position] == 1
    labels.view(-1)[position] = label

def exact(tensors):
    return {n: [round(v, 3) for v in p.flatten().tolist()] for n, p in sorted(tensors.items())}


weights, heads = {}, {name: {} for name in SIBLINGS}
result = {"config": SIZES, "num_labels": NUM_LABELS, "weights": {}, "heads": {},
          "input_ids": ids.tolist(), "token_type_ids": types.tolist(), "attention_mask": mask.tolist(),
          "labels": LABELS, "next_sentence_labels": NEXT_SENTENCE, "cases": {}}
for act in ["gelu_new", "gelu"]:
    model = make("BertForPreTraining", act)
    fill(model, weights)
    inputs = dict(input_ids=ids, token_type_ids=types, attention_mask=mask)
    out = model(**inputs, labels=labels, next_sentence_label=torch.tensor(NEXT_SENTENCE))
    out.loss.backward()
    mlm = torch.nn.functional.cross_entropy(out.prediction_logits.view(-1, SIZES["vocab_size"]), labels.view(-1))
    nsp = torch.nn.functional.cross_entropy(out.seq_relationship_logits, torch.tensor(NEXT_SENTENCE))
    case = {"mlm_loss": mlm.item(), "nsp_loss": nsp.item(), "total_loss": out.loss.item(),
            "mlm_logits": rounded(out.prediction_logits[mask.bool()]), "nsp_logits": rounded(out.seq_relationship_logits),
            "gradients": {n: rounded(p.grad, 7) for n, p in sorted(model.named_parameters())}}
    for sibling in SIBLINGS:
        model = make(sibling, act)
        fill(model, weights | heads[sibling])
        heads[sibling] = {n: p.detach() for n, p in model.named_parameters() if not n.startswith("bert.")}
        if sibling == "BertForMultipleChoice":
            inputs = {k: v.view(2, 2, S) for k, v in inputs.items()}
        out = model(**inputs)
        if sibling == "BertForQuestionAnswering":
            logits = torch.stack([out.start_logits[mask.bool()], out.end_logits[mask.bool()]])
        else:
            logits = out.logits[mask.bool()] if sibling == "BertForTokenClassification" else out.logits
        case[sibling] = rounded(logits)
    result["cases"][act] = case

# After all draws, which this model repeats: the same weights without the pooler and the next-sentence head.
model = make("BertForMaskedLM", "gelu_new")
fill(model, weights)
out = model(input_ids=ids, token_type_ids=types, attention_mask=mask, labels=labels)
out.loss.backward()
result["cases"]["gelu_new"]["BertForMaskedLM"] = {
    "mlm_loss": out.loss.item(), "gradients": {n: rounded(p.grad, 7) for n, p in sorted(model.named_parameters())}}
result["weights"] = exact(weights)
result["heads"] = {name: exact(tensors) for name, tensors in heads.items()}
print("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in result.items()) + "}")
