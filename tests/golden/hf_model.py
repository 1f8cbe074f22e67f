"""Writes hf_model.json: model directories that transformers saves for a tiny BERT, with what transformers answers.

Versions: transformers 5.17.0, torch 2.11.0, Python 3.11. Run: python3 hf_model.py > hf_model.json
Text files are strings, others are hexadecimal digits. `gelu` and `gelu_new` differ by more than the tolerance of the test.
"""
import json
import pathlib
import tempfile

import torch
import transformers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##aff", "##able", "cat", "sat", "on", "a", "mat", ".",
         ",", "cafe", "##s", "中", "42", "of", "and", "to", "in"]
SIZES = dict(vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
             max_position_embeddings=10)
IDS = [[2, 5, 9, 4, 11, 12, 13, 14, 3], [2, 6, 7, 8, 3, 5, 3, 0, 0]]
TYPES = [[0] * 9, [0, 0, 0, 0, 0, 1, 1, 0, 0]]
TEXTS = ["The unaffable cats sat on a mat.", "Café 中42, and [MASK]!"]
torch.manual_seed(2019)
work = pathlib.Path(tempfile.mkdtemp())


def rounded(x):
    return [float(f"{v:.8g}") for v in x.detach().flatten().tolist()]


def files(directory):
    result = {}
    for path in sorted(directory.iterdir()):
        result[path.name] = path.read_bytes().hex() if path.suffix == ".safetensors" else path.read_text()
    return result


def save(name, model, **options):
    model.save_pretrained(work / name, **options)
    return files(work / name)


config = transformers.BertConfig(attn_implementation="eager", **SIZES)
model = transformers.BertForPreTraining(config).eval()
with torch.no_grad():
    for parameter_name, parameter in sorted(model.named_parameters()):
        scale = 0.5 if parameter.dim() == 2 else 0.2
        parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if parameter_name.endswith("LayerNorm.weight") else 0.0))
masked = transformers.BertForMaskedLM(config).eval()
masked.load_state_dict(model.state_dict(), strict=False)
encoder = transformers.BertModel(config).eval()
encoder.load_state_dict(model.bert.state_dict())
answers = transformers.BertForQuestionAnswering(config).eval()
answers.load_state_dict(model.state_dict(), strict=False)

ids, types = torch.tensor(IDS), torch.tensor(TYPES)
mask = (ids != 0).long()
with torch.no_grad():
    out = model(input_ids=ids, token_type_ids=types, attention_mask=mask)
    hidden = encoder(input_ids=ids, token_type_ids=types, attention_mask=mask)
    masked_out = masked(input_ids=ids, token_type_ids=types, attention_mask=mask)
assert (masked_out.logits - out.prediction_logits).abs().max() < 1e-5

(work / "vocab").mkdir()
(work / "vocab" / "vocab.txt").write_text("".join(word + "\n" for word in WORDS))
tokenizer = transformers.BertTokenizer.from_pretrained(work / "vocab")
tokenizer.save_pretrained(work / "tokenizer")
result = {
    "generator": f"transformers {transformers.__version__}, torch {torch.__version__}",
    "directories": {
        "pretraining": save("pretraining", model),
        "sharded": save("sharded", model, max_shard_size="2KB"),
        "masked_lm": save("masked_lm", masked.half()),
        "encoder": save("encoder", encoder),
        "question_answering": save("question_answering", answers),
        "vocab": files(work / "vocab"),
        "tokenizer": files(work / "tokenizer"),
    },
    "input_ids": IDS, "token_type_ids": TYPES,
    "prediction_logits": rounded(out.prediction_logits[mask.bool()]),
    "seq_relationship_logits": rounded(out.seq_relationship_logits),
    "last_hidden_state": rounded(hidden.last_hidden_state[mask.bool()]),
    "pooler_output": rounded(hidden.pooler_output),
    "texts": TEXTS, "text_ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS],
}
print(json.dumps(result, indent=1, ensure_ascii=False))
