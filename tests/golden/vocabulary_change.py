"""Writes vocabulary_change.json: the rows of a new vocabulary for the models of hf_model.json, as transformers would use them.

Versions: transformers 5.17.0, tokenizers of it, torch 2.11.0, numpy 2.4.6, Python 3.11. Run: python3 vocabulary_change.py > vocabulary_change.json
A new row is numpy's mean in float64 of the rows of the pieces, which come from transformers' tokenizer, or for ##continuations from a
WordPiece model of tokenizers whose words begin with continuations.
"""
import json
import pathlib
import tempfile

import numpy
import tokenizers
import torch
import transformers

NEW = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##aff", "##able", "cat", "sat", "on", "a", "mat", ".", ",", "cafe",
       "##s", "中", "unaffable", "and", "of", "to", "in", "##ables", "Cafés", "cats", "##affables", "matcat", "##zzz"]
TEXT = "The unaffable cats of matcat."
golden = json.loads((pathlib.Path(__file__).parent / "hf_model.json").read_text())
work = pathlib.Path(tempfile.mkdtemp())


def write(name):
    (work / name).mkdir()
    for directory in (name, "tokenizer"):
        for file, content in golden["directories"][directory].items():
            data = bytes.fromhex(content) if file.endswith(".safetensors") else content.encode()
            (work / name / file).write_bytes(data)
    return work / name


def pieces(old, token):
    if not token.startswith("##"):
        return old.tokenize(token)
    vocab = {word[2:]: i for i, word in enumerate(old.get_vocab()) if word.startswith("##")}
    vocab |= {word: len(vocab) + i for i, word in enumerate(old.get_vocab()) if word.startswith("##")}
    model = tokenizers.models.WordPiece(vocab | {"[UNK]": 2 * len(vocab)}, unk_token="[UNK]")
    names = [piece.value for piece in model.tokenize(token[2:])]
    return [name if name.startswith("##") or name == "[UNK]" else "##" + name for name in names]


result = {"generator": f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, numpy {numpy.__version__}",
          "tokens": NEW, "text": TEXT, "models": {}}
for name, classes in (("pretraining", transformers.BertForPreTraining), ("masked_lm", transformers.BertForMaskedLM)):
    directory = write(name)
    old = transformers.BertTokenizer.from_pretrained(directory)
    model = classes.from_pretrained(directory, dtype=torch.float16 if name == "masked_lm" else torch.float32).eval()
    ids = {token: old.convert_tokens_to_ids([token] if token in old.get_vocab() else pieces(old, token)) for token in NEW}
    words = model.bert.embeddings.word_embeddings.weight.detach().numpy()
    bias = model.cls.predictions.bias.detach().numpy()
    new_words = numpy.stack([words[ids[token]].astype(numpy.float64).mean(0).astype(words.dtype) for token in NEW])
    new_bias = numpy.stack([bias[ids[token]].astype(numpy.float64).mean(0).astype(bias.dtype) for token in NEW])
    result["models"][name] = {"word_embeddings": new_words.flatten().tolist(), "bias": new_bias.tolist()}
    if name == "pretraining":
        result["pieces"] = {token: ids[token] for token in NEW if token not in old.get_vocab()}
        model.resize_token_embeddings(len(NEW), mean_resizing=False)
        with torch.no_grad():
            model.bert.embeddings.word_embeddings.weight.copy_(torch.tensor(new_words))
            model.cls.predictions.bias.copy_(torch.tensor(new_bias))
            tokenizer = transformers.BertTokenizer(vocab={token: i for i, token in enumerate(NEW)}, do_lower_case=True)
            inputs = tokenizer(TEXT, return_tensors="pt")
            result["input_ids"] = inputs["input_ids"][0].tolist()
            result["prediction_logits"] = model(**inputs).prediction_logits[0].flatten().tolist()
print(json.dumps(result, ensure_ascii=False))
